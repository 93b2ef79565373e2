"""Device algorithms are selected once. Two ranks whose cuBLASLt prefers different algorithms train the bits of one
rank. A resume on a machine with other preferences continues with the checkpoint's algorithms, and the plan prints them.
On the CUDA emulator, where WEFT_EMULATOR_WAY changes the preferred algorithm."""
import hashlib
import pathlib
import re
import shutil

import pytest
from harness import (CUDA, SOURCE, WEFT, hashes, launcher, needs, read, refused, resume, run, same_tensors, says,
                     train, weft, write)

OTHER = {"WEFT_EMULATOR_WAY": 1}


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    write("text.txt", "".join(f"1. e4 e5 2. f4 exf4 3. Nf3 g5 {i}\n" for i in range(60)))
    write("run.ini", f"""\
[model]
plugin = llama
path   = {SOURCE}/configs/chess/base
[tokenizer]
plugin = bpe
[data]
plugin  = text
path    = text.txt
context = 16
[train]
steps        = 3
global_batch = 2
micro_batch  = 1
[optimizer]
plugin = adamw
[checkpoint]
every = 2
{CUDA}share = yes
""")
    train("one")
    train("other", env=OTHER)
    assert hashes("one/model", "*.safetensors") != hashes("other/model", "*.safetensors")


def checkpoint():
    """A run in again/ that was stopped at step 2."""
    shutil.rmtree("again", ignore_errors=True)
    shutil.copytree("one/checkpoints/step-2", "again/checkpoints/step-2")


def test_resume():
    checkpoint()
    resume("again", env=OTHER)
    same_tensors("one/model", "again/model")


def test_plan():
    """The plan prints the algorithms, and the checkpoint has the same."""
    planned = sorted(set(re.findall(r'"for": "([^"]*)"', weft("plan run.ini --json").out)))
    kept = re.findall(r'"(fp32 to [^"]*)"', read("one/checkpoints/step-2/state/run.json").partition('"choices"')[2])
    assert planned and planned == sorted(kept)
    says(weft("plan run.ini").out, re.compile(f"^chosen +{len(planned)} choices "))


def test_unavailable():
    """It is an error, and --resume=inexact selects another."""
    checkpoint()
    record = pathlib.Path("again/checkpoints/step-2/state/run.json")
    before = record.read_text()
    record.write_text(re.sub(r'("value": ")[0-9a-f]{128}', r"\g<1>" + "0" * 128, before))
    manifest = pathlib.Path("again/checkpoints/step-2/manifest.json")
    manifest.write_text(manifest.read_text().replace(*(hashlib.sha256(text.encode()).hexdigest()
                                                       for text in (before, record.read_text()))))
    refused("train run.ini --resume run.out=again", says=["cuBLASLt", "matmul", "algorithm"])
    says(weft("train run.ini --resume=inexact run.out=again"), "algorithms", "again")


def test_ranks():
    """Two ranks with different preferences."""
    needs("mpich")
    run(*launcher("mpich", 2), "sh", "-c", 'WEFT_EMULATOR_WAY=$PMI_RANK exec "$@"', "sh", WEFT, "train", "run.ini",
        "run.out=two", "comm.plugin=mpi-mpich", "strategy.plugin=ddp")
    same_tensors("one/model", "two/model")
