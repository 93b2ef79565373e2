"""Complete runs on the late device have the CPU device's bits: the small grid of `weft prove` on four ranks, a run with
asynchronous saves that is resumed, on one rank and on two, and generation."""
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FULL, SOURCE, full_only, hashes, make_run, needs, read, records, says, weft)


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    needs("mpich")
    make_run("steps = 4\n[checkpoint]\nevery = 2\n")


def on(mode, words, **variables):
    """Runs weft on the CPU device, or on the late device in a mode, and returns standard output."""
    late = f"{BUILD}/tests/late:" if mode else ""
    return weft(words, env={"WEFT_PLUGIN_PATH": f"{late}{BUILD}/plugins", "WEFT_LATE_MODE": mode, "WEFT_LATE_SEED": 7,
                            **variables}).out


@pytest.mark.parametrize("modes, words", [
    (["last", "ahead"], ""), (["any"], "train.precision=bf16 strategy.reduce_dtype=bf16")
] if FULL else [(["last"], "")])  # the quick suite has the cells of one rank
def test_grid_of_prove(modes, words):
    """Each cell's hash and verdict."""

    def cells(mode):
        out = on(mode, f"prove {SOURCE}/configs/prove.ini --ranks {4 if FULL else 1} --steps 2 {words}")
        return re.sub("(?m); [0-9.]* m*s$", "", out)

    expected = cells(None)
    says(expected, f" {38 if FULL else 8} equal, 0 not covered, 0 different")
    assert [cells(mode) for mode in modes] == [expected] * len(modes)


def resumed(mode, words, **variables):
    """From the middle; files and states are loaded through the late device."""

    def train(mode, more=""):
        on(mode, f"train run.ini comm.plugin=mpi-mpich {words} {more}", **variables)
        return hashes("out/model", "*.safetensors"), [
            (record["loss"], record["grad_norm"]) for record in records("out/metrics.jsonl")]

    expected = train(None, "--overwrite")
    assert train(mode, "--overwrite checkpoint.async=yes") == expected
    shutil.rmtree("out/checkpoints/step-4")
    assert train(mode, "--resume") == expected


@full_only
@pytest.mark.parametrize("mode, words", [("last", "strategy.plugin=single"), ("soon", "--ranks 2 strategy.plugin=mp")])
def test_other_resumed_runs(mode, words):
    resumed(mode, words)


def test_resumed_run():
    resumed("last", "--ranks 2 strategy.plugin=fsdp strategy.prefetch=1 train.precision=bf16")


def test_ranks_request_the_device_of_their_index():
    index = pathlib.Path("index").resolve()
    resumed("any", "--ranks 2 strategy.plugin=ddp", WEFT_LATE_INDEX=index)
    assert set(read(index).split()) == {"0", "1"}


def test_generation():
    words = ("generate run.ini model.path=out/model model.start=weights --prompt '1. e4 e5' --tokens 20 "
             "--temperature 0 --ignore-eos")
    expected = on(None, words)
    assert expected and [on(mode, words) for mode in ("last", "ahead", "soon")] == [expected] * 3
