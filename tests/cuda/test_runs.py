"""Complete runs on the CUDA emulator with [device] plugin = cuda: the CPU's loss within a tolerance, generated text,
and ranks with the bits of one rank (one GPU each over NCCL, one shared over MPI). Also a stopped run resumed on fewer
ranks."""
import os
import re
import shutil

import pytest
from harness import (CUDA, FULL, SOURCE, communicator, counts, fields, losses, read, same_tensors, says, weft, write)

HALF = "train.precision=fp16 train.loss_scale=1.7e10 train.scale_backoff=0.00006103515625"
COMMUNICATORS = ["nccl", *(["mpi-mpich"] if communicator("mpich").exists() else [])]


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    shutil.copytree(SOURCE / "configs", "configs")
    cpu = read("configs/prove.ini").partition("\n[device]")[0] + "\n"
    write("configs/cpu.ini", cpu)
    write("configs/cuda.ini", cpu + CUDA)
    train("gpu", f"train.steps={200 if FULL else 4}")


def train(out, words="", ini="cuda", **options):
    return weft("train", f"configs/{ini}.ini", f"run.out={os.path.abspath(out)}", *words.split(), **options)


def is_near(a, b, most):
    """As many losses, and each within that part."""
    first, second = losses(a), losses(b)
    assert len(first) == len(second) > 0
    assert max(abs(y / x - 1) for x, y in zip(first, second)) <= most


def test_fp32():
    train("cpu", f"train.steps={200 if FULL else 4}", "cpu")
    is_near("cpu", "gpu", 2e-6)


def test_bf16():
    """A long run drifts if roundings differ."""
    words = f"train.precision=bf16 train.steps={200 if FULL else 3}"
    train("cpu16", words, "cpu")
    train("gpu16", words)
    is_near("cpu16", "gpu16", 2e-2 if FULL else 1e-4)


def test_fp16():
    """The initial loss scale is too large: the GPU skips the update by itself, in replayed steps, too."""
    words = f"{HALF} train.steps={200 if FULL else 3}"
    train("cpuhalf", words, "cpu")
    train("gpuhalf", words)
    is_near("cpuhalf", "gpuhalf", 5e-3 if FULL else 1e-4)
    for out in "cpuhalf", "gpuhalf":
        assert fields(out, "skipped").count(True) == 1
    train("eager", f"{words} run.replay=no")
    same_tensors("eager/model", "gpuhalf/model")


def test_failed_capture():
    """A matmul fails only while a step is captured: the run captures no more, and its bits are the same."""
    train("counted", "train.steps=3 run.replay=no", env={"WEFT_EMULATOR_COUNTS": os.path.abspath("counts")})
    env = {"WEFT_EMULATOR_FAIL": f"cublasLtMatmul:{sum(counts('counts', 'cublasLtMatmul')) // 3 + 1}=14"}
    says(train("fallback", "train.steps=3", env=env).err, "cublasLtMatmul", "CUBLAS_STATUS_INTERNAL_ERROR", count=1)
    same_tensors("counted/model", "fallback/model")
    train("ends", "train.steps=3 run.replay=yes", env=env, status=1)


def test_generate():
    words = "generate gpu --prompt '1 2 3' --tokens 12 --temperature 0"
    text = weft(words).out
    assert text and text == weft(words, "--no-cache").out == weft(words, "device.plugin=cpu").out


def on(comm, ranks):
    """Returns the words that select a communicator, and its variables: a GPU for each rank, or one that they share."""
    if ranks == 1:
        return "", {}
    share = comm != "nccl"
    return (f"--ranks {ranks} comm.plugin={comm} device.cuda.share={'yes' if share else 'no'}",
            {"WEFT_EMULATOR_DEVICES": 1 if share else 4})


def steps(out, comm, ranks, words):
    """Steps with a learning rate independent of their number."""
    more, env = on(comm, ranks)
    train(out, f"train.schedule=constant checkpoint.every=1 {more} {words}", env=env)


@pytest.fixture(scope="module")
def one(inputs):
    steps("one", "", 1, "train.steps=3")


@pytest.mark.parametrize("comm", COMMUNICATORS)
def test_resume(one, comm):
    """A run of 4 ranks is resumed by 2, and then by 1."""
    steps(comm, comm, 4, "train.steps=1 strategy.plugin=fsdp")
    steps(comm, comm, 2, "train.steps=2 strategy.plugin=mp strategy.schedule=1f1b --resume")
    steps(comm, comm, 1, "train.steps=3 --resume")
    same_tensors("one/model", f"{comm}/model")
    same_tensors("one/checkpoints/step-3", f"{comm}/checkpoints/step-3")


@pytest.mark.parametrize("comm, words", [
    (comm, words) for comm in COMMUNICATORS for words in (
        "--steps 3", "--steps 2 train.precision=bf16", f"--steps 2 {HALF}",
        "--steps 2 strategy.reduce=tree train.global_batch=16")] if FULL else [
    ("nccl", "--steps 1 train.global_batch=4 train.micro_batch=1 data.context=16 data.lengths=8")])
def test_prove(comm, words):
    """Every strategy on up to 4 ranks: all cells are equal, with one checksum."""
    more, env = on(comm, 4)
    said = weft(f"prove configs/cuda.ini {more} {words}", env=env).out
    equal = int(re.search(r": ([1-9]\d*) equal, 0 not covered, 0 different", said)[1])
    checksums = re.findall(r" (\S+) +equal(?: \(the reference\))?$", said, re.M)
    assert len(checksums) == equal and len(set(checksums)) == 1 and re.fullmatch("[0-9a-f]{12}", checksums[0])


@pytest.mark.parametrize("i", range(12 if FULL else 2))
def test_three_ranks(i):
    """Ranks with the shards of one step exit orderly, repeatedly."""
    steps(f"ends.{i}", "nccl", 3, "train.steps=1 strategy.plugin=fsdp train.global_batch=6")
