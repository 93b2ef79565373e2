"""`weft profile --roofline` on the CUDA emulator, and NVTX ranges: one around each instruction of the step program, by
its name, balanced, and none unless they are requested."""
import pathlib
import re
import shutil

import pytest
from harness import CUDA, SOURCE, lines, read, refused, same_tensors, says, weft, write

SMALL = "configs/run.ini train.global_batch=4 train.micro_batch=2 train.schedule=constant"


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    shutil.copytree(SOURCE / "configs", "configs")
    write("configs/run.ini", read("configs/prove.ini").partition("\n[device]")[0] + "\n" + CUDA)
    for name in "RANGES", "COUNTS":
        emulator.setenv(f"WEFT_EMULATOR_{name}", str(pathlib.Path(name.lower()).resolve()))


def test_roofline():
    said = weft(f"profile {SMALL} train.precision=bf16 --roofline --steps 1 --warmup 0").out
    says(said, re.compile(r"^peak +[\d.]+ [kMGT]FLOP/s, memory [\d.]+ [kMGT]B/s; the step reaches [\d.]+ % "))
    says(said, re.compile(r"^memory .* planned, .* 3\d*\.0 MiB more; .* peak on the host "))
    for row in "linear forward", "rms_norm backward", "attention backward", "optimizer":
        says(said, re.compile(f"^{row} .* [kMGT](FLOP|B   ) .*[kMGT](FLOP/s|B/s   ) +[0-9.]+ %$"))
    rates = lines(said, re.compile("^(linear|optimizer|add|norm) .*%$"))
    assert len({len(row) for row in rates}) == 1  # rates of FLOPs and of bytes end in one column


def ranges(out, words):
    """Trains two steps; returns the lines of the ranges."""
    pathlib.Path("ranges").unlink(missing_ok=True)
    weft(f"train {SMALL} train.steps=2 run.out={pathlib.Path(out).resolve()} {words}")
    return read("ranges").splitlines() if pathlib.Path("ranges").exists() else []


def test_ranges():
    """The rehearsal of a step, before memory is allocated, has ranges, too."""
    said = weft(f"plan {SMALL} train.activation_checkpointing=yes --print-program").out
    program = re.findall(r"^ *\d+ +\d  ([A-Z].*?)(?:  .*)?$", said, re.M)
    assert "BACKWARD layers.0.attn micro-batch 1" in program
    words = "train.activation_checkpointing=yes run.replay=no"
    assert ranges("without", words) == []
    assert not lines(read("counts"), "nvtx")
    found = ranges("with", f"{words} device.cuda.nvtx=yes")
    same_tensors("without/model", "with/model")
    assert [row for row in found if row.startswith("begin")] == [f"begin 0 {name}" for name in program * 3]
    assert [row.split()[0] for row in found] == ["begin", "end"] * (len(found) // 2)
    assert all(row.split()[1] == "0" for row in found)


def test_failed_instruction():
    """It closes its range."""
    pathlib.Path("ranges").unlink(missing_ok=True)
    refused(f"train {SMALL} run.out=fails train.steps=1 run.replay=no device.cuda.nvtx=yes", says="cublasLtMatmul",
            env={"WEFT_EMULATOR_FAIL": "cublasLtMatmul:20=14"})
    kinds = [row.split()[0] for row in read("ranges").splitlines()]
    assert kinds.count("begin") == kinds.count("end") > 0


def test_captured_step():
    """It has ranges in its rehearsal, its first pass and its capture; a replay has none."""
    assert len(lines("\n".join(ranges("replayed", "device.cuda.nvtx=yes train.steps=4")), "begin 0 STEP")) == 3
