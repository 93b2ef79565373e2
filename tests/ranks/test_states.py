"""Optimizer states in bf16 and in 8-bit blocks: same bytes on any number of ranks, memory as planned, the same result
after a resume on other ranks, losses close to fp32, and an error if a checkpoint has other states."""
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FULL, agree, all_equal, hashes, losses, make_run, needs, plan, refused, resume,
                     runs_as_planned, same_tensors, train, weft)

BOTH = ["8bit", "bf16"] if FULL else ["8bit"]


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    make_run("steps = 6\nclip = 1.0\n[eval]\nevery = none\n[optimizer]\nplugin = adamw\nlr = 3e-3\n"
             "[checkpoint]\nevery = 3\nkeep = 99\n[device]\nthreads = 1\n")
    train("fp32")
    for states in "bf16", "8bit":
        train(states, f"optimizer.states={states}")


def state_header(out, name):
    """Returns the header of a state's file in the run's last checkpoint."""
    file = pathlib.Path(out) / f"checkpoints/step-6/state/{name}.safetensors"
    return file.read_bytes().split(b"}}", 1)[0].decode(errors="replace")


def bytes_of(words):
    """Returns the optimizer's memory in the plan."""
    return plan(words)["memory"]["optimizer"]


@pytest.mark.parametrize("states", ["bf16", "8bit"])
def test_losses(states):
    agree(states, "fp32", 0.002)
    assert losses(states) != losses("fp32")


def test_bytes():
    """Two states. 67,033 numbers on a grid of 256 elements, to which each tensor is padded: 260 bytes a block."""
    all_fp32, eight = bytes_of("optimizer.states=fp32"), bytes_of("optimizer.states=8bit")
    assert bytes_of("optimizer.states=bf16") == all_fp32 / 2
    assert all_fp32 / 4 < eight < all_fp32 * 0.28 and eight / 2 % 64 == 0
    assert '"dtype":"BF16"' in state_header("bf16", "exp_avg")
    assert re.search(r'"dtype":"U8","shape":\[1,\d*,260\]', state_header("8bit", "exp_avg_sq"))


def test_sgd():
    train("sgd", "optimizer.plugin=sgd optimizer.momentum=0.9 optimizer.states=8bit")
    assert any(re.search(r'"shape":\[1,\d*,260\]', state_header("sgd", pathlib.Path(name).stem))
               for name in hashes("sgd/checkpoints/step-6/state", "*.safetensors"))


def test_late_device():
    """A device that executes late."""
    train("late", "optimizer.states=8bit", env={"WEFT_PLUGIN_PATH": f"{BUILD}/tests/late:{BUILD}/plugins"})
    same_tensors("8bit", "late")


def test_resume():
    train("part", "optimizer.states=8bit train.steps=3")
    resume("part", "optimizer.states=8bit")
    same_tensors("8bit/checkpoints/step-6", "part/checkpoints/step-6")


def test_other_states():
    """Other states in a checkpoint are an error; accepted plain numbers are rounded, blocks are not created."""
    def fresh():
        shutil.rmtree("other", ignore_errors=True)
        shutil.copytree("fp32", "other", ignore=shutil.ignore_patterns("step-6"))

    fresh()
    refused("train run.ini --resume run.out=other optimizer.states=bf16", says=["exp_avg", "bf16", "(none)"])
    weft("train run.ini --resume=inexact run.out=other optimizer.states=bf16")
    fresh()
    refused("train run.ini --resume=inexact run.out=other optimizer.states=8bit",
            says=["model.embed_tokens.weight", "dyn8x256"])
    refused("train run.ini optimizer.states=half", says="states = half")


def test_ranks():
    needs("mpich")
    for states in BOTH:
        all_equal(f"optimizer.states={states}", 3, 2)
    for strategy in ["fsdp", "mp"] if FULL else ["fsdp"]:
        runs_as_planned("three", f"optimizer.states=8bit strategy.plugin={strategy}", 3)
        same_tensors("8bit", "three")
    for states in BOTH:  # four ranks, then two, then one
        words = f"optimizer.states={states} checkpoint.every=1"
        train("many", f"{words} strategy.plugin=fsdp train.steps=2", 4)
        resume("many", f"{words} strategy.plugin=fsdp train.steps=4", 2)
        resume("many", f"optimizer.states={states}")
        same_tensors(f"{states}/checkpoints/step-6", "many/checkpoints/step-6")
