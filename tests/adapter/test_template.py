"""An adapter built only against the SDK's headers (sdk/template/adapter-core): it trains, has one result under every
strategy, is saved and continued; and violations of adapter rules are reported with its name."""
import os

import pytest
from harness import (SOURCE, build_plugin, changed_plugin, losses, make_run, needs, patched, patches, read_json,
                     refused, says, weft)

CORE = SOURCE / "sdk/template/adapter-core/core.c"
VIOLATIONS = dict(patches(SOURCE / "tests/adapter/core.patch"))


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    build_plugin("adapter", "core", CORE, flags=["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-lm"])
    make_run("steps = 6\n[eval]\nevery = none\n[optimizer]\nplugin = adamw\nlr     = 1e-2\n[adapter]\nplugin = core\n"
             "rank   = 3\n[device]\nthreads = 1\n")


def test_run():
    assert f'"trained":{3 * 7 * 9},' in "".join(weft("plan run.ini --json").out.split())  # the cores alone
    weft("train run.ini --overwrite train.steps=12")
    assert len(losses("out")) == 12 and losses("out")[-1] < losses("out")[0]
    assert read_json("out/model/adapter_config.json")["peft_type"] == "CORE"
    os.rename("out/model", "first")
    go_on = "run.ini model.path=first model.start=weights adapter.from=first"
    weft(f"train {go_on} --overwrite train.steps=1 optimizer.lr=0")
    weft(f"eval {go_on} adapter.plugin=core --json")
    refused("merge first first merged", says="cannot be merged")


@pytest.mark.parametrize("id, facts", [
    ("narrow", ["3 fp32", "40 fp32"]), ("nothing", ["no value of this segment"]), ("idle", ["claims no site"]),
    ("beyond", ["site 26 of 26"]), ("shape", ["carry"]), ("twice", ["(0,"]), ("silent", ["slot create"])])
def test_violation(id, facts):
    source = patched(CORE, VIOLATIONS[id], f"{id}.c")
    changed_plugin("adapter", source.resolve(), id, by="renamed")
    refused(f"plan run.ini adapter.plugin={id}", says=[f"adapter:{id}", *facts])


def test_ranks():
    needs("mpich")
    says(weft("prove run.ini comm.plugin=mpi-mpich --ranks 3 --steps 2").out, "equal, 0 not covered, 0 different")
