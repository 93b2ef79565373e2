"""`weft train --print-values N`: values of exactly N steps, for every micro-batch, and a run with unchanged bits."""
import os
import re

import pytest
from harness import BUILD, has, launcher, losses, make_run, read, refused, run, same_tensors, says, WEFT, weft, write


@pytest.fixture(scope="module", autouse=True)
def values(scratch):
    """The values of two steps."""
    make_run("steps = 3\n")
    write("run.ini", read("run.ini").replace("global_batch = 12", "global_batch = 2"))
    weft("train run.ini run.out=plain")
    out = weft("train run.ini run.out=printed --print-values 2").out
    same_tensors("plain/model", "printed/model")
    return out


@pytest.mark.parametrize("count, pattern", [
    (4, "step [12]  FORWARD embed micro-batch [01]  +carry  "),
    (4, "step [12]  BACKWARD head micro-batch [01]  +loss  "),
    (4, "step [12]  BACKWARD layers.0.attn micro-batch [01]  +model.layers.0.self_attn.q_proj.weight, gradient  "
        r".*\.\.\. of 1600$"),
    (2, "step [12]  STEP  +model.layers.0.mlp.up_proj.weight, exp_avg_sq  "),
    (2, "step [12]  NORM  +norm  "),
    (0, "step 3  ")])
def test_lines(values, count, pattern):
    says(values, re.compile(f"^{pattern}"), count=count)


def test_losses(values):
    """Each is the sum over the targets of its micro-batch: their sum, divided by the step's targets, is recorded."""
    loss = [float(value) for value in re.findall(r"(?m)^step 1  BACKWARD head.*  loss  +([^ \n]+)", values)]
    targets, = re.findall(r"(?m)^step 1  NORM  +targets  +([^ \n]+)", values)
    assert f"{sum(loss) / float(targets):.4f}" == f"{losses('printed')[0]:.4f}"


def test_replay():
    """On a device that replays captured graphs, the printed steps run instruction by instruction."""
    late = {"WEFT_LATE_MODE": "last", "WEFT_PLUGIN_PATH": BUILD / "tests/late"}
    weft("train run.ini run.out=late train.steps=6", env=late)
    out = weft("train run.ini run.out=late_printed train.steps=6 --print-values 5", env=late).out
    says(out, re.compile("^step [1-5]  BACKWARD head micro-batch [01]  +loss  "), count=10)
    same_tensors("late/model", "late_printed/model")


def test_bf16():
    """A carry has two bytes per element."""
    out = weft("train run.ini run.out=half train.precision=bf16 --print-values 1").out
    says(out, re.compile("^step 1  FORWARD embed micro-batch [01]  +carry  "), count=2)


def test_refused():
    refused("train run.ini run.out=two --ranks 2 --print-values 1", says=["--print-values", "--ranks", "2"])
    if has("mpich"):  # a launcher's ranks are not requested with a flag
        result = run(*launcher("mpich", 2), WEFT, "train", "run.ini", "run.out=two", "strategy.plugin=ddp",
                     "--print-values", "1", status=range(1, 128))
        says(result, "--print-values", "2")
    refused("train run.ini run.out=two --quiet --print-values 1", says=["--quiet"])
    assert not os.path.exists("two")
