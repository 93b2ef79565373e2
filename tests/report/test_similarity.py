"""[run] similarity: reported by every evaluation, relative to the run's start; the same on any number of ranks and
after a resume; an error if it cannot be measured."""
import csv
import os
import pathlib
import re
import shutil

import pytest
from harness import make_run, needs, read, records, refused, says, weft, write


def train(out, *arguments):
    return weft(f"train run.ini run.out={out}", *arguments)


def reported(out):
    """Steps and values of its evaluations."""
    return [(record["step"], record["similarity"]) for record in records(f"{out}/evaluations.jsonl")
            if "similarity" in record]


@pytest.fixture(scope="module", autouse=True)
def result(scratch):
    make_run("steps = 4\n[run]\nsimilarity = yes\n[eval]\nevery = 2\n[checkpoint]\nevery = 2\nkeep = 9\n"
             "[optimizer]\nlr = 1e-2\n[device]\nthreads = 1\n")
    return train("one")


@pytest.fixture(scope="module")
def last(result):
    """The value after the run, as shown."""
    return f"{reported('one')[2][1]:.4g}"


def test_values(result, last):
    assert [step for step, _ in reported("one")] == [0, 2, 4]
    assert reported("one")[0][1] == 0 and all(0 < value <= 2 for _, value in reported("one")[1:])
    says(result, re.compile(f"^similarity {last}, "))


def test_tools_that_show_it(last):
    says(weft("report one"), re.compile(f"^similarity +{last}$"))
    assert f"similarity {last}" in read("one/report.html") and f"<b>{last}</b>" in read("one/report.html")
    row, = csv.DictReader(weft("report one --csv").out.splitlines())
    assert f"{float(row['similarity']):.4g}" == last
    train("tensorboard", "train.steps=2", "run.tensorboard=yes")
    assert any(b"eval/similarity" in file.read_bytes() for file in pathlib.Path("tensorboard/tensorboard").iterdir())


def test_unchanged_model():
    train("still", "optimizer.lr=0")
    assert {value for _, value in reported("still")} == {0}


def test_run_without_the_measurement():
    """Nothing else differs."""
    result = train("without", "run.similarity=no")
    assert "similarity" not in str(result) + read("without/evaluations.jsonl")
    assert not os.path.exists("without/similarity.json")
    says(weft("report without"), re.compile("^similarity"), count=0)
    assert "similarity" not in re.sub("run.similarity", "", read("without/report.html"))
    for name in "loss", "perplexity":
        assert [record[name] for record in records("one/evaluations.jsonl")] == [
            record[name] for record in records("without/evaluations.jsonl")]


def test_resumed_run(scratch, last):
    shutil.copytree("one", "resumed", symlinks=True)
    shutil.rmtree("resumed/checkpoints/step-4")
    shutil.rmtree("resumed/model")
    says(train("resumed", "--resume"), re.compile(f"^similarity {last}, "))
    assert reported("resumed") == reported("one")
    shutil.rmtree("resumed/checkpoints/step-4")
    write("resumed/similarity.json", '{"mean_last_hidden_state": [1, 2]}')
    says(train("resumed", "--resume"), "[run] similarity", f"{scratch}/resumed/similarity.json", "step 0")
    assert reported("resumed")[-1][0] == 2


def test_overwrite():
    shutil.copytree("one", "over", symlinks=True)
    train("over", "--overwrite", "run.similarity=no")
    assert not os.path.exists("over/similarity.json")


def test_not_measurable():
    refused("config check run.ini eval.every=none", says=["[run] similarity = yes", "[eval] every = none", "100%"])
    train("ends", "eval.every=100%")
    assert [step for step, _ in reported("ends")] == [0, 2, 4]  # with each save too


@pytest.mark.parametrize("strategy, ranks", [("ddp", 3), ("fsdp", 3), ("mp", 2)])
def test_several_ranks(strategy, ranks):
    """The same digits."""
    needs("mpich")
    train(strategy, f"--ranks={ranks}", "comm.plugin=mpi-mpich", f"strategy.plugin={strategy}")
    assert reported(strategy) == reported("one")
