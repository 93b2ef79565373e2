"""A plugin that ends its process with status 0: the watchdog detects the lost rank, and names the plugin and its slot.
With --ranks and under a launcher."""
import pathlib
import re
import shutil

import pytest
from harness import ANY, WEFT, changed_plugin, launcher, lines, make_ranks_run, needs, start, wait_until

PLACE = r"in its prepare,( with status 0,)? in step 2, at instruction [0-9]+, STEP"


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    make_ranks_run()
    changed_plugin("optimizer", "sgd", "leaver", "IN_PREPARE=vanish")


@pytest.mark.parametrize("how", ["ranks", "bare"])
@pytest.mark.parametrize("id", ["mpich", "openmpi"])
def test_plugin_that_ends_a_rank(id, how):
    needs(id)
    shutil.rmtree("one", ignore_errors=True)
    command = [WEFT, "train", "run.ini", f"comm.plugin=mpi-{id}", "optimizer.plugin=leaver", "train.global_batch=2"]
    process = start(*([*command, "--ranks", "2"] if how == "ranks" else [*launcher(id, 2), *command]))
    process.wait(1 if how == "ranks" else ANY)  # a foreign launcher returns the status chosen by the plugin
    named = re.compile(f"^weft[a-z ]*: rank [01] .*optimizer:leaver .*{PLACE}")
    wait_until(lambda: lines(process.err, named), "report", 100, process)  # the watchdog may end after the launcher
    assert not pathlib.Path("one/model").exists()
