"""Records of a run, their continuation by a resume, and the target of `best`."""
import os
import pathlib
import shutil
import time

import pytest
from harness import checkpoints, make_run, records, refused, says, weft

FIELDS = {
    "metrics": "step loss lr grad_norm tokens epoch tokens_per_second resident phases seconds time",
    "evaluations": "step loss perplexity tokens took seconds time",
    "checkpoints": "step what best took beside seconds time",
    "phases": "step steps ranks seconds time",
}
BEST = pathlib.Path("out/checkpoints/best")


def found(file):
    return records(f"out/{file}.jsonl")


def steps(file):
    return [record["step"] for record in found(file)]


def rises(name, *files):
    for file in files:
        values = [record[name] for record in found(file)]
        assert values == sorted(values)


def train(*arguments):
    return weft("train run.ini --overwrite", *arguments)


def leads(step):
    """best points to the step, and is usable as a model."""
    assert os.readlink(BEST) == f"step-{step}" and (BEST / "model.safetensors").is_file()


def lowest():
    """The saved step with the lowest evaluation loss."""
    return min((record["loss"], record["step"]) for record in found("evaluations") if record["step"] > 0)[1]


def kept():
    return sorted(os.listdir("out/checkpoints"))


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_run("steps = 6\n[eval]\nevery = 2\n[checkpoint]\nevery = 2\nkeep = 1\n[optimizer]\nlr = 3e-2\n")


def test_records_of_a_run():
    began = time.time()
    train()
    assert steps("metrics") == [1, 2, 3, 4, 5, 6] and steps("evaluations") == [0, 2, 4, 6]
    assert steps("checkpoints") == [2, 4, 6, 6] and steps("phases") == [2, 4, 6] and steps("starts") == [0]
    for file, names in FIELDS.items():
        assert all(list(record) == names.split() for record in found(file))
    rises("seconds", *FIELDS)
    start, last = found("starts")[0], found("metrics")[5]
    assert last["epoch"] == pytest.approx(6 * 12 / start["data"]["sequences"], abs=1e-5)
    assert int(began) <= last["time"] < began + 1200 and last["resident"] > 1e6
    # The parts of a record's time add up to it: they determine the speed, with the targets of that one step.
    for record in found("metrics"):
        assert len(record["phases"]) == 9
        assert record["tokens"] / sum(record["phases"].values()) == pytest.approx(record["tokens_per_second"], rel=0.01)
    # Planned memory equals allocated memory.
    planned = start["planned"][0]
    assert planned["lines"] == found("phases")[0]["ranks"][0]["taken"] and planned["first"] == planned["last"] == 0
    assert planned["total"] == sum(planned["lines"].values()) > 0
    config = {entry["key"]: entry for entry in start["config"]}
    assert config["optimizer.lr"]["value"] == 0.03 and config["optimizer.lr"]["source"].startswith("run.ini:")
    assert config["run.metrics_every"] == {"key": "run.metrics_every", "value": 1, "source": "default"}


def test_best_of_the_run_above():
    leads(lowest())
    assert any(record["best"] is True for record in found("checkpoints"))
    weft("eval run.ini model.path=out/checkpoints/best model.start=weights")


def test_best_of_a_run_that_gets_worse():
    """A destructive learning rate: the best checkpoint is an early one, and is kept as long as retention permits."""
    train("train.steps=10", "optimizer.lr=3")
    assert lowest() < 10
    leads(lowest())
    assert kept() == sorted(["best", f"step-{lowest()}", "step-10"])
    train("train.steps=10", "optimizer.lr=3", "checkpoint.keep_best=no")
    assert kept() == ["step-10"]


def test_best_without_evaluation_and_with_an_obstacle():
    train("train.steps=2", "eval.every=none")
    assert kept() == ["step-2"]
    shutil.rmtree("out/checkpoints")
    BEST.mkdir(parents=True)
    train("train.steps=2")
    leads(2)
    BEST.unlink()
    BEST.mkdir()
    says(weft("train run.ini --resume train.steps=4"), "out/checkpoints/best")
    assert not BEST.is_symlink()


def test_resumed_run():
    train("train.steps=5", "train.schedule=constant", "checkpoint.keep=2")
    before = found("metrics")[3]["seconds"]
    shutil.rmtree("out/checkpoints/step-5")  # as if killed before the save
    weft("train run.ini --resume train.schedule=constant train.steps=8")
    assert steps("metrics") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found("starts")[1]["resumed"] is True and found("starts")[1]["steps"] == 8
    for name in "step", "seconds":
        rises(name, "starts", *FIELDS)
    assert found("metrics")[4]["seconds"] > before


def test_interval():
    train("train.steps=7", "run.metrics_every=3")
    assert steps("metrics") == [1, 3, 6, 7]
    refused("train run.ini run.metrics_every=0", status=1, says="[run] metrics_every = 0")


def test_files_for_tensorboard():
    """They lie next to the records; report.tensorboard reads them."""
    train("train.steps=2", "run.tensorboard=yes")
    assert len(os.listdir("out/tensorboard")) == 1 and checkpoints("out")
