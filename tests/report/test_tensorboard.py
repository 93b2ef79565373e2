"""Event files next to the records, read by the real tensorboard package: the same numbers at the same steps, also after
a resume from a step before the last one."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from harness import BUILD, FAILS, make_run, run, weft, write

VENV = BUILD / "tensorboard"  # downloaded once per build directory; an incomplete environment has another name
COMPARE = '''
"""Compares the values that tensorboard reads of out/tensorboard with those of out/*.jsonl."""
import json, struct, sys
from tensorboard.backend.event_processing import event_accumulator

read = event_accumulator.EventAccumulator("out/tensorboard", size_guidance={event_accumulator.SCALARS: 0})
read.Reload()
FIELDS = {"train/loss": ("metrics", "loss"), "train/learning_rate": ("metrics", "lr"),
          "train/grad_norm": ("metrics", "grad_norm"), "train/epoch": ("metrics", "epoch"),
          "train/tokens_per_second": ("metrics", "tokens_per_second"), "memory/resident": ("metrics", "resident"),
          "eval/loss": ("evaluations", "loss"), "eval/perplexity": ("evaluations", "perplexity")}
single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
tags = sorted(read.Tags()["scalars"])
assert tags == sorted(FIELDS), tags
for tag, (kind, field) in FIELDS.items():
    lines = [json.loads(line) for line in open(f"out/{kind}.jsonl")]
    events = read.Scalars(tag)
    assert [e.step for e in events] == [line["step"] for line in lines], (tag, [e.step for e in events])
    for event, line in zip(events, lines):
        # Values printed with fewer digits are compared with that precision.
        near = abs(event.value - line[field]) <= 1e-5 * abs(line[field]) + 0.06 * (field == "tokens_per_second")
        assert single(line[field]) == event.value or (
            kind == "metrics" and field in ("epoch", "tokens_per_second") and near), (tag, line, event)
        assert abs(event.wall_time - line["time"]) < 60, (tag, event)
print(len(read.Scalars("train/loss")))
'''


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    if not VENV.is_dir():
        new = f"{VENV}.new"
        shutil.rmtree(new, ignore_errors=True)
        for command in ([sys.executable, "-m", "venv", new],
                        [f"{new}/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
                         "--retries", "1", "--timeout", "60", "tensorboard"]):
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                pytest.skip(f"the tensorboard package cannot be installed here: {made.stderr.strip()[-200:]}")
        if not VENV.is_dir():
            os.rename(new, VENV)
    make_run("steps = 5\nschedule = constant\n[eval]\nevery = 2\n[checkpoint]\nevery = 2\n")
    write("compare.py", COMPARE)


def train(*arguments):
    weft("train run.ini", *arguments)


def compare(**options):
    return run(VENV / "bin/python", "compare.py", **options)


def test_event_files():
    """No files unless requested. Killed before step 5 was saved, its events are removed by the resume."""
    events = pathlib.Path("out/tensorboard")
    train()
    assert not events.exists()
    train("--overwrite", "run.tensorboard=yes")
    assert compare().out.split()[-1] == "5"
    shutil.rmtree("out/checkpoints/step-5")
    shutil.rmtree("out/model")
    train("--resume", "run.tensorboard=yes", "train.steps=8")
    assert len(list(events.iterdir())) == 2  # one for each process
    assert compare().out.split()[-1] == "8"
    # The reader detects a changed byte, so the test is meaningful.
    file = max(events.iterdir())
    content = file.read_bytes()
    file.write_bytes(content[:-20] + b"X" + content[-19:])
    compare(status=FAILS)
    train("--overwrite")
    assert not events.exists()
