"""fp16 with a loss scale: memory as planned, losses close to fp32. Skipped steps are counted, change no state and delay
the schedule, on any number of ranks and after a resume on others. A scale at its minimum stops the run."""
import pytest
from harness import (BUILD, FULL, all_equal, fields, losses, make_run, needs, plan, read_json, refused, resume,
                     runs_as_planned, same_tensors, says, train)

LATE = {"WEFT_PLUGIN_PATH": f"{BUILD}/tests/late:{BUILD}/plugins"}
# The scale is too high at the start, and again after it has grown.
SKIPS = "train.loss_scale=1.7e10 train.scale_backoff=0.00006103515625 train.scale_growth=16384 train.scale_every=3"


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    make_run("steps = 8\nclip = 1.0\nprecision = fp16\nschedule = linear\nwarmup = 2\n[eval]\nevery = none\n"
             "[checkpoint]\nevery = 2\nkeep = 99\n[device]\nthreads = 1\n")
    says(train("one"), "loss scale 65536", "0 steps skipped, 8 updates")


@pytest.fixture(scope="module")
def skips(inputs):
    """The output of a run with two skipped steps."""
    return train("skips", f"{SKIPS} run.tensorboard=yes")


@pytest.mark.parametrize("words, facts", [
    ("train.precision=bf16 train.loss_scale=8", ["[train] loss_scale = 8", "precision = fp16"]),
    ("train.loss_scale=0.25", ["[train] loss_scale = 0.25", "scale_floor = 1"]),
    ("train.precision=fp32 strategy.reduce_dtype=fp16", ["[strategy] reduce_dtype = fp16"]),
    ("train.weights=bf16", ["[train] weights = bf16"]),
    ("train.precision=bf16 model.base=fp16", ["[model] base = fp16"]),
    (f"run.out=floor train.loss_scale=1.7e10 train.scale_floor=1e10", ["loss scale", "1e+10"])])
def test_errors(words, facts):
    refused("train run.ini --overwrite", *words.split(), says=facts)


def test_one_rank():
    train("wide", "train.precision=fp32")
    assert not fields("wide", "skipped_steps")
    assert 0 < max(abs(a / b - 1) for a, b in zip(losses("one"), losses("wide"))) < 2e-3
    assert plan()["memory"]["total"] != plan("train.precision=fp32")["memory"]["total"]


def test_skipped_steps(skips):
    """The schedule is delayed, as the records show."""
    assert fields("skips", "skipped") == [step in (1, 5) for step in range(1, 9)]
    assert fields("skips", "skipped_steps") == [1, 1, 1, 1, 2, 2, 2, 2]
    lr = fields("one", "lr")
    assert fields("skips", "lr") == [lr[i] for i in (0, 0, 1, 2, 3, 3, 4, 5)]
    assert [norm is None for norm in fields("skips", "grad_norm")] == fields("skips", "skipped")
    says(skips, "step 1 is skipped", "loss scale 1.7e+10")
    says(skips.out, "loss scale", "2 steps skipped, 6 updates")
    assert read_json("skips/checkpoints/step-8/state/run.json")["loss_scale"]["skipped"] == 2


@pytest.mark.parametrize("step", [2, 4, 6] if FULL else [4])
def test_resume(skips, step):
    """The scale, its count of good steps and the skipped steps continue."""
    train("cut", f"{SKIPS} train.steps={step}")
    resume("cut", SKIPS)
    for name in "skipped", "loss_scale":
        assert fields("cut", name) == fields("skips", name)


def test_late_device(skips):
    """A device that executes late, with replayed steps."""
    train("late", f"{SKIPS} run.replay=yes", env=LATE)
    same_tensors("skips", "late")
    assert fields("late", "skipped") == fields("skips", "skipped")


def test_ranks(skips):
    needs("mpich")
    all_equal(SKIPS, 3 if FULL else 2, 6)
    if FULL:
        all_equal("strategy.reduce_dtype=fp16", 2, 2)
    for strategy in ["fsdp strategy.root=replicated", "fsdp strategy.shard=optimizer", "ddp", "mp"][:4 if FULL else 1]:
        train("three", f"strategy.plugin={strategy} {SKIPS}", 3)
        same_tensors("skips", "three")
        assert fields("three", "skipped") == fields("skips", "skipped")
    runs_as_planned("three", "strategy.plugin=fsdp", 3)
    train("fast", "strategy.plugin=ddp strategy.reduce=fast strategy.reduce_dtype=fp16", 2)
    train("many", f"strategy.plugin=fsdp {SKIPS} train.steps=4", 3)
    resume("many", f"strategy.plugin=fsdp {SKIPS}", 2)
    same_tensors("skips/checkpoints/step-8", "many/checkpoints/step-8")
