"""Asynchronous checkpoints through pinned memory, on the CUDA emulator. [checkpoint] async = auto selects them there.
They have the bytes of synchronous saves, for one rank and for several over NCCL. Also: the plan, a machine without
enough memory, and failing calls."""
import pathlib
import re
import shutil

import pytest
from harness import (CC, CUDA, SOURCE, counts, hashes, make_model, make_text, read, records, refused, run, same_tensors,
                     says, weft, write, write_ini)

FSDP = "--ranks 4 comm.plugin=nccl strategy.plugin=fsdp"


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    emulator.setenv("WEFT_EMULATOR_COUNTS", str(pathlib.Path("counts").resolve()))
    make_model("model", 32, 8, 56, 1, 512)
    make_text(40)
    write_ini("run.ini", model="plugin=llama path=model start=fresh", data="path=games.txt document=line context=16",
              train="steps=5 global_batch=4 micro_batch=1 precision=bf16", optimizer="plugin=adamw",
              checkpoint="every=2")
    write("run.ini", read("run.ini") + CUDA)
    run(*CC, "-O1", "-fPIC", "-shared", "-D_GNU_SOURCE", "-o", "slow_disk.so", SOURCE / "tests/checkpoint/slow_disk.c",
        "-ldl")


def save(out, words="", **env):
    """Trains into OUT; the calls are in the file counts."""
    pathlib.Path("counts").unlink(missing_ok=True)
    weft(f"train run.ini run.out={out} --quiet {words}", env=env)


def is_async(out):
    """The checkpoints of steps 2 and 4 are saved while training continues."""
    saves = [row for row in records(f"{out}/checkpoints.jsonl") if row.get("what") == "checkpoint"]
    assert len([row for row in saves if row.get("beside", 0) > 0]) == 2


@pytest.fixture(scope="module")
def synchronous(inputs):
    """A run with synchronous saves in sync/. Returns its allocations of pinned memory."""
    save("sync", "checkpoint.async=no")
    assert len(hashes("sync", "*.safetensors")) >= 10
    return sum(counts("counts", "cudaHostAlloc"))


@pytest.fixture(scope="module")
def kernels(synchronous):
    """Runs with asynchronous saves in each mode of the emulator. Returns the number of kernels of a run."""
    for mode in "last", "any", "soon":
        save(f"auto.{mode}", WEFT_EMULATOR_MODE=mode, WEFT_EMULATOR_SEED=5)
    return sum(counts("counts", "kernel"))


@pytest.mark.parametrize("mode", ["last", "any", "soon"])
def test_one_rank(kernels, mode):
    same_tensors("sync", f"auto.{mode}")
    is_async(f"auto.{mode}")


def test_pinned_memory(synchronous):
    """Only the last step's save and the model's save allocate the buffers that synchronous saves allocate each time."""
    save("pinned")
    assert not counts("counts", "pageableCopy")
    assert sum(counts("counts", "cudaHostAlloc")) < synchronous


@pytest.fixture(scope="module")
def four(synchronous):
    """Four ranks. Returns the number of kernels of a rank."""
    save("sync.4", f"{FSDP} checkpoint.async=no")
    save("auto.4", FSDP)
    return max(counts("counts", "kernel"))


def test_four_ranks(four):
    same_tensors("sync.4", "auto.4")
    same_tensors("sync", "auto.4")
    is_async("auto.4")


@pytest.mark.parametrize("adapter", ["prefix", "lora"])
def test_adapter(adapter):
    """Data stored in a different order than in the model is sent from all ranks to the writer."""
    words = f"--ranks 2 comm.plugin=nccl adapter.plugin={adapter} train.precision=fp32"
    save(f"sync.{adapter}", f"{words} strategy.plugin=ddp checkpoint.async=no")
    for strategy in "fsdp", "mp":
        save(f"{adapter}.{strategy}", f"{words} strategy.plugin={strategy}")
        same_tensors(f"sync.{adapter}/checkpoints", f"{adapter}.{strategy}/checkpoints")
        is_async(f"{adapter}.{strategy}")


def test_plan():
    """The copy is in the host's memory: the memory of the device is the same."""
    said = [weft("plan run.ini", *words).out for words in ([], ["checkpoint.async=no"])]
    says(said[0], re.compile("^saving +asynchronous, .* host's memory"))
    memory = [re.search(r"^memory.*?total[^\n]*", text, re.M | re.S)[0] for text in said]
    assert memory[0] == memory[1]
    saving = weft("plan run.ini --json").json["saving"]
    assert saving["beside"] and not saving["of_total"]


def fails(facts, fail, words="", **env):
    """That call fails while a save of step 2 or 4 is in flight or starts."""
    shutil.rmtree("fails", ignore_errors=True)
    said = refused(f"train run.ini run.out=fails --quiet {words}", status=1, says=facts, env={
        "WEFT_EMULATOR_FAIL": fail, "SLOW_DISK": ".tmp/model", "SLOW_SECONDS": 1,
        "LD_PRELOAD": pathlib.Path("slow_disk.so").resolve(), **env})
    assert not re.search(r"not released|cuda emulator:|signal \d", str(said))


def test_no_memory(synchronous):
    """The copy's memory is among the first allocations of pinned memory: one of them fails with its message."""
    for i in range(1, synchronous + 1):
        shutil.rmtree("alloc", ignore_errors=True)
        said = weft("train run.ini run.out=alloc --quiet", status=[0, 1],
                    env={"WEFT_EMULATOR_FAIL": f"cudaHostAlloc:{i}=2"})
        if re.search(r"\[checkpoint\] async.* no \d* bytes", str(said)):
            return
    pytest.fail("no message where pinned memory is missing")


def test_failing_kernel(kernels):
    """In step 3, while the checkpoint of step 2 is written, which is completed."""
    fails("on device cuda", f"kernel:{kernels * 3 // 5}=700")
    assert pathlib.Path("fails/checkpoints/step-2/manifest.json").exists()


def test_failing_rank(four):
    fails(["[3] weft train: ", "on device cuda"], f"kernel:{four * 3 // 5}=700", FSDP, WEFT_EMULATOR_FAIL_RANK=3)
