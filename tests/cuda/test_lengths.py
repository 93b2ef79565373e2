"""Steps with micro-batches of several lengths are captured in slices and replayed on the CUDA emulator: nearly all of
them after each micro-batch has had each length. They have the bits of steps without graphs, on one rank and on several
over NCCL. A program that cannot be divided reports that it is not replayed."""
import pathlib
import shutil

import pytest
from harness import (CUDA, FULL, SOURCE, counts, fields, full_only, hashes, losses, read, read_json, says, train, write)

MICRO_BATCHES = 8
STEPS = 40 if FULL else 14
NCCL = "--ranks 2 comm.plugin=nccl strategy.plugin="
PROGRAMS = [("", 2, 8), (f"{NCCL}ddp", 4, 10)]  # most graphs per slice, and steps before replays
if FULL:  # each of two ranks has half of the slices, with the micro-batches of both
    PROGRAMS += [(NCCL + words, 4, 10) for words in ("ddp strategy.reduce=fast strategy.reduce_at=last",
                                                     "fsdp strategy.prefetch=0", "fsdp strategy.shard=optimizer")]


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    """Sequences of two lengths: no two documents fit into one."""
    shutil.copytree(SOURCE / "configs", "configs")
    games = [line for line in read("configs/chess/train.txt").splitlines() if len(line) > 200][:64]
    write("games.txt", "".join(line[:62 if n * 7 % 3 == 0 else 92] + "\n" for n, line in enumerate(games, 1)))
    write("run.ini", read("configs/prove.ini").partition("\n[device]")[0].replace(
        "= prove\n", "= configs/prove\n").replace("= chess", "= configs/chess") + "\n" + CUDA)


def run_steps(words):
    """Returns the run's bits with the bytes sent, its number of captures and of replays, and its output."""
    pathlib.Path("counts").unlink(missing_ok=True)
    said = train("out", f"data.path=games.txt data.lengths=38 train.schedule=constant train.steps={STEPS} "
                 f"train.global_batch={MICRO_BATCHES} train.micro_batch=1 {words}",
                 env={"WEFT_EMULATOR_COUNTS": pathlib.Path("counts").resolve()})
    ranks = read_json("out/ranks.json")["ranks"] if pathlib.Path("out/ranks.json").exists() else []
    bits = hashes("out/model", "*.safetensors"), losses("out"), fields("out", "grad_norm"), [r["sent"] for r in ranks]
    return bits, *(sum(counts("counts", call)) for call in ("cudaStreamEndCapture", "cudaGraphLaunch")), said


@pytest.mark.parametrize("words, lists, warm", PROGRAMS)
def test_slices(words, lists, warm):
    instructions = run_steps(f"{words} run.replay=no")
    assert instructions[1:3] == (0, 0)
    bits, captures, replays, _ = run_steps(f"{words} run.replay=yes")
    assert bits == instructions[0]
    assert MICRO_BATCHES < captures <= MICRO_BATCHES * lists
    assert replays >= MICRO_BATCHES * (STEPS - warm)


@full_only
def test_too_many_lengths():
    says(run_steps(f"{NCCL}mp data.lengths=28,32,36")[3], "not replayed", "16")
