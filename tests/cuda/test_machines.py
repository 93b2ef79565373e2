"""Missing requirements of a machine, in complete runs with [device] plugin = cuda: each stops with one message before
anything is written. Without a driver: test_no_driver.py. The emulator imitates such machines."""
import os
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, CUDA, EMULATOR, SANITIZED, WEFT, differences, has, make_model, make_text, needs, read,
                     read_json, refused, run, says, start, weft, write, write_ini)

CONTEXT = 332 << 20  # bytes of a device's context and libraries on the emulator
NCCL = "comm.plugin=nccl strategy.plugin="
SHARE = "device.cuda.share=yes comm.plugin=mpi-mpich strategy.plugin=fsdp"
LARGE = "train.micro_batch=16 train.global_batch=32 data.context=64"


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    emulator.delenv("WEFT_EMULATOR_DEVICES")
    make_model("model", 32, 8, 56, 1, 512)
    make_model("wide", 32, 264, 56, 1, 512)
    make_text(40)
    write_ini("run.ini", run="out=out", model="plugin=llama path=model start=fresh", tokenizer="plugin=bpe",
              data="plugin=text path=games.txt document=line context=16", train="steps=1 global_batch=6 micro_batch=1",
              optimizer="plugin=adamw")
    write("run.ini", read("run.ini") + CUDA)


@pytest.fixture(autouse=True)
def no_output():
    shutil.rmtree("out", ignore_errors=True)


def environment(**variables):
    """The variables of the emulator."""
    return {f"WEFT_EMULATOR_{name}": value for name, value in variables.items()}


def stops(facts, words="", command="train", env=None, **emulator):
    """The command fails with one message, releases everything and writes no model. Returns the Result."""
    shutil.rmtree("out", ignore_errors=True)
    said = refused(f"{command} run.ini {words}", says=facts, env={**environment(**emulator), **(env or {})})
    assert not pathlib.Path("out/model").exists()
    assert not re.search("not released|signal", str(said))
    return said


def train(words="", **emulator):
    shutil.rmtree("out", ignore_errors=True)
    return weft(f"train run.ini {words}", env=environment(**emulator))


def test_driver_and_cards():
    stops(["NVIDIA driver", "12.4", "13.0"], DRIVER=12040)
    stops("no NVIDIA card", DEVICES=0)
    stops(["sm_75", "7.5", "8.0"], CAPABILITY=75)


def test_context():
    """The memory of the context, cuBLASLt and NCCL is not planned: it is measured, listed separately, and absent in a
    plan. The plan equals the run's memory to the byte: with that and the separate part it runs, with a byte less it
    does not."""
    says(weft("plan run.ini").out, re.compile(r"^fits +a device's 15\.7 GiB"), count=1)
    says(weft("plan run.ini").out, re.compile(r"^apart +the device's other 332\.0 MiB "), count=1)
    fit = weft("plan run.ini --json").json["fit"]
    assert fit["apart"] == CONTEXT
    most = fit["planned"] + CONTEXT
    libraries = "0 B" if SANITIZED else r"[\d.]+ MiB"  # the C library does not count a sanitizer's allocations
    says(train(MEMORY=most), re.compile(f"; libraries {libraries}, and 332.0 MiB of the device with its context$"))
    stops(["332.0 MiB", "nothing was started"], MEMORY=most - 1)
    stops("has no memory for a buffer of", "--no-fit", MEMORY=most - 1)


@pytest.mark.parametrize("command", ["train", "profile"])
def test_device_line(command):
    """The line of a GPU has no threads."""
    says(weft(f"{command} run.ini"),
         re.compile(r"^device +CUDA emulator sm_90, sm_90, cuBLASLt [\d.]*, rounded attention$"))


SAVED = "checkpoint.every=1 train.steps=2"


@pytest.mark.parametrize("ranks, fullest, words", [
    (2, 0, f"{NCCL}ddp"), (2, 1, f"{NCCL}mp"), (2, 0, f"{NCCL}fsdp {SAVED}"),
    # Checkpoint boundary pages go between neighbours and open no channels: a rank that reports only to rank 0 has a
    # channel only to rank 0.
    (4, 0, f"{NCCL}fsdp {SAVED} train.global_batch=8"), (2, 0, f"comm.plugin=mpi-mpich strategy.plugin=fsdp {SAVED}")])
def test_exact_memory(ranks, fullest, words):
    """A rank's planned memory and its separate part, including groups and channels of the communicator, suffice. With a
    byte less on the fuller rank nothing starts."""
    if "mpich" in words and not has("mpich"):
        return
    words += f" --ranks {ranks}"
    planned = weft(f"plan run.ini --json --print-links {words}").json
    train(words, DEVICES=ranks)
    assert not differences(planned, "out")
    rows = read_json("out/ranks.json")["ranks"]
    needed = [row["planned"] + row["apart"] for row in rows]
    assert len(needed) == ranks and max(needed) == needed[fullest]
    if ranks == 4:
        assert len({row["apart"] for row in rows[1:]}) == 1
    train(words, DEVICES=ranks, MEMORY=max(needed))
    said = stops(f"rank {fullest}'s device", words, DEVICES=ranks, MEMORY=max(needed) - 1)
    says(said, "MiB of it", "of its context and libraries", "nothing was started")


def test_full_card():
    """A GPU filled by context and libraries: for one rank, and for several, which communicate before planning."""
    stops(["0 B", "332.0 MiB", "nothing was started"], MEMORY="332M")
    stops("333.0 MiB of this rank's 333.0 MiB", f"--ranks 2 {NCCL}fsdp", DEVICES=2, MEMORY="333M")


@pytest.fixture(scope="module")
def no_context(inputs, emulator):
    """The context takes no memory."""
    emulator.setenv("WEFT_EMULATOR_CONTEXT", "0")


def test_small_card(no_context):
    """The message has the largest part and the settings that would fit. prove starts no cell that would not fit; if it
    must, the GPU reports the error."""
    stops(["workspace", "a device has 1.0 MiB", "nothing was started"], MEMORY="1M")
    stops("train.micro_batch=", LARGE, MEMORY="3M")
    prove = f"{LARGE} --steps 1 --ranks"
    stops(["on 1 rank", "5.7 MiB", "3.3 MiB of it workspace", "3.0 MiB", "train.micro_batch="], f"{prove} 1", "prove",
          MEMORY="3M")
    stops("has no memory for a buffer of", f"{prove} 1 --no-fit", "prove", MEMORY="3M")
    stops(["on 2 ranks", "6.2 MiB", "3.5 MiB of it workspace", "rank 1's device has 3.0 MiB", "train.micro_batch="],
          f"{prove} 2 comm.plugin=nccl", "prove", DEVICES=2, MEMORY="3M")


def test_shared_card(no_context):
    """Two ranks on one GPU have half of it each, and so do two of three on two GPUs; memory outside the plan is
    reported where it is missing."""
    needs("mpich")
    stops("rank 0's device has 825.0 KiB", f"{SHARE} --ranks 2", MEMORY="1650K")
    stops("rank 0's device has 825.0 KiB", f"{SHARE} --ranks 3", DEVICES=2, MEMORY="1650K")
    stops(["Card 0", "has no memory for a buffer of"], f"{SHARE} --ranks 2 --no-fit", MEMORY="1650K")


@pytest.mark.parametrize("words, memory", [("", "8.0"), ("device.cuda.share=yes", "4.0"),
                                           ("--nodes 2 device.cuda.share=yes", "8.0")])
def test_planned_card(no_context, words, memory):
    said = weft(f"plan run.ini --ranks 2 strategy.plugin=fsdp {words}", env=environment(MEMORY="8M")).out
    says(said, re.compile(rf"^fits +the {memory} MiB of rank 0's device"))


def test_more_ranks_than_cards(no_context):
    """NCCL rejects a shared GPU, regardless of [device]: every rank reports the sharing ranks, as NCCL informs only
    those. Ranks that each see a different single GPU do not share one."""
    stops(["1 card for 2 ranks", "share = yes", "[comm] plugin = mpi"], f"--ranks 2 {NCCL}fsdp")
    stops("2 cards for 3 ranks", f"--ranks 3 {NCCL}fsdp", DEVICES=2)
    share = f"device.cuda.share=yes {NCCL}fsdp --ranks"
    said = stops(["ranks 0, 2 share card 0000:01:00.0", "[comm] plugin = mpi"], f"{share} 3", DEVICES=2)
    says(said, "ranks 0, 2 share card 0000:01:00.0", count=3)
    stops("ranks 0, 2, 4 share card 0000:01:00.0; ranks 1, 3 share card 0000:02:00.0",
          f"{share} 5 train.global_batch=10", DEVICES=2)
    train(f"{share} 2", DEVICES=2)
    train(f"--ranks 2 {NCCL}fsdp", APART=1)
    stops("rank 0's device has 1.0 MiB", f"--ranks 2 {NCCL}fsdp", APART=1, MEMORY="1M")


def test_two_models():
    """GPUs of two models cannot be ranks of one run, even with one instruction set. Nor can a run continue on another
    model without --resume=inexact."""
    said = stops("device", f"--ranks 2 {NCCL}fsdp", DEVICES=2, MODELS="H100,H200")
    says(said, re.compile("the device's model +H100 +H200"))
    train(SAVED, MODELS="H100")
    shutil.rmtree("out/checkpoints/step-2")
    refused(f"train run.ini {SAVED} --resume", says=["device's model", "H200", "H100"], env=environment(MODELS="H200"))
    says(weft(f"train run.ini {SAVED} --resume=inexact", env=environment(MODELS="H200")), "device's model", "H200",
         "H100")


@pytest.mark.parametrize("command", ["plan", "train"])
@pytest.mark.parametrize("words, facts, variables", [
    ("model.path=wide", "head_dim is 264", {}),
    ("device.cuda.attention=cudnn", "attention = cudnn", {}),
    # NVRTC's 6: an error in the source.
    ("device.cuda.cache=none", "cannot be compiled", {"FAIL": "nvrtcCompileProgram:1=6"})])
def test_unsupported(command, words, facts, variables):
    """It is reported before a run creates its directory, as in the plan."""
    stops(facts, words, command, **variables)
    assert not pathlib.Path("out").exists()


def test_unsupported_on_ranks():
    stops(["head_dim is 264", "256"], f"model.path=wide --ranks 2 {NCCL}fsdp", DEVICES=2)
    assert not pathlib.Path("out").exists()


def launched(rank, cards):
    """Starts one of two ranks by hand. Their rendezvous is by the id of the process that starts them."""
    return start(WEFT, *f"train run.ini {NCCL}fsdp device.share=yes run.patience=2".split(), env={
        "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "RANK": rank, **environment(DEVICES=cards)})


@pytest.mark.parametrize("cards", [1, 2])
def test_rank_without_card(cards):
    """The other rank's message names the missing rank and what it waits for."""
    first, second = launched(0, 0), launched(1, cards)
    says(first.wait(status=range(1, 124)), "no NVIDIA card")
    says(second.wait(status=range(1, 124)),
         re.compile(r"(cards?|machines?|the id of the world from rank 0): rank 0, .*(ended|Connection reset|Broken)"))
    assert not pathlib.Path("out/model").exists()


def test_missing_rank():
    says(launched(0, 1).wait(status=range(1, 124)), "NCCL", "rank 1", "2 s ([run] patience)")
    assert not pathlib.Path("out/model").exists()


def test_nccl_without_cuda():
    """The fix depends on the number of ranks, also before ranks have connected."""
    for command in "train", "plan":
        stops(["[device] plugin = cuda", "[comm] plugin = self"], "device.plugin=cpu comm.plugin=nccl", command)
        stops(["nccl", "[device] plugin = cuda", "[comm] plugin = mpi"], f"device.plugin=cpu --ranks 2 {NCCL}fsdp",
              command)
    stops("to mpi, or to nccl", "--ranks 2 comm.plugin=self strategy.plugin=fsdp")


def test_one_rank_of_nccl():
    """A single-rank command opens no communicator: a run trained over NCCL works on CPUs with one option."""
    train("comm.plugin=nccl", DEVICES=1)
    weft("eval out device.plugin=cpu")
    weft("generate out device.plugin=cpu --prompt e4 --tokens 2")
    weft("profile run.ini device.plugin=cpu comm.plugin=nccl --steps 1")


def test_missing_nccl():
    """Without the communicator, and without the library that it is linked to."""
    pathlib.Path("without").mkdir()
    for file in [*(BUILD / "plugins").glob("*.so"), EMULATOR / "weft-device-cuda.so"]:
        link = pathlib.Path("without") / file.name
        link.unlink(missing_ok=True)
        if file.name != "weft-comm-nccl.so":
            link.symlink_to(file)
    without = os.path.abspath("without")
    shutil.copy(WEFT, "alone")  # without plugins in its directory
    said = run(os.path.abspath("alone"), *f"train run.ini --ranks 2 {NCCL}fsdp".split(), status=range(1, 124),
               env={"WEFT_PLUGIN_PATH": without, **environment(DEVICES=2)})
    says(said, "[comm] plugin = nccl")
    says(said, "configs/packages.sh cuda")
    library = b"libweft-cuda-emulator.so"
    write("broken/weft-comm-nccl.so", "")
    pathlib.Path("broken/weft-comm-nccl.so").write_bytes((EMULATOR / "weft-comm-nccl.so").read_bytes().replace(
        library, b"libnccl-is-missing000.so"))
    stops("libnccl-is-missing000.so", f"--ranks 2 {NCCL}fsdp",
          env={"WEFT_PLUGIN_PATH": f"{os.path.abspath('broken')}:{without}"}, DEVICES=2)
    assert not pathlib.Path("out/model").exists()
