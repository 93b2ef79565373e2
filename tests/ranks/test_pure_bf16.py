"""Weights trained in bf16 without masters: memory as planned. Losses are close to those of a run with masters if
rounding errors are compensated, and worse if not. Same bytes on any number of ranks, and the same result after a resume
on others."""
import pathlib

import pytest
from harness import (BUILD, FULL, all_equal, losses, make_run, needs, refused, resume, runs_as_planned, same_tensors,
                     says, train, weft)


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    make_run("steps = 6\nclip = 1.0\nprecision = bf16\nweights = bf16\n[eval]\nevery = none\n[optimizer]\n"
             "plugin = anyprecision\nlr = 1e-3\n[checkpoint]\nevery = 3\nkeep = 99\n[device]\nthreads = 1\n")
    train("one")


def test_errors():
    refused("train run.ini train.precision=fp32", says="[train] weights = bf16")


def test_plan():
    says(weft("plan run.ini").out, "67,200 parameters in bf16 (134,400 bytes)")


def test_compensation():
    """Thirty steps with updates mostly below half of a weight's last bit: progress beside a run that loses them."""
    ends = []
    adamw = "train.weights=fp32 optimizer.plugin=adamw"
    for words in f"{adamw} optimizer.lr=0", adamw, "", "optimizer.use_kahan_summation=no":
        train("slow", f"train.steps=30 checkpoint.every=none optimizer.lr=1e-5 optimizer.weight_decay=0 {words}")
        ends.append(losses("slow")[-1])
    still, masters, kept, lossy = ends
    assert masters < still
    assert 0.9 < (still - kept) / (still - masters) < 1.1
    assert (still - lossy) / (still - masters) < 0.5


def test_checkpoint():
    """A bf16 checkpoint is complete without a masters file, and is read without a change."""
    train("narrow", "checkpoint.dtype=bf16")
    assert not pathlib.Path("narrow/checkpoints/step-6/state/master.safetensors").exists()
    train("again", "train.steps=1 optimizer.lr=0 model.start=weights model.path=narrow/model")
    same_tensors("narrow/model", "again/model")


def test_late_device():
    """Gains are read in fp32, on a device that executes late."""
    train("late", env={"WEFT_PLUGIN_PATH": f"{BUILD}/tests/late:{BUILD}/plugins"})
    same_tensors("one", "late")


def test_frozen():
    """Frozen parameters, and an optimizer without compensation."""
    train("head", "train.trainable=last:1 optimizer.plugin=sgd optimizer.momentum=0.9 optimizer.states=8bit")


def test_ranks():
    needs("mpich")
    all_equal("train.trainable=last:2", 3 if FULL else 2, 2)
    for strategy in ["fsdp strategy.root=replicated", "fsdp strategy.shard=optimizer", "ddp", "mp"][:4 if FULL else 1]:
        train("three", f"strategy.plugin={strategy}", 3)
        same_tensors("one", "three")
    runs_as_planned("three", "strategy.plugin=fsdp", 3)
    train("many", "strategy.plugin=fsdp train.steps=3", 3)
    resume("many", "strategy.plugin=fsdp", 2)
    same_tensors("one/checkpoints/step-6", "many/checkpoints/step-6")
