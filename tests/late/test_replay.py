"""A run with captured and replayed steps has the bits of one run instruction by instruction: on one rank and on
several, resumed, evaluated, with micro-batches of one length and of several. Its sent bytes are counted equally. The
message names the plugin that prevents capture."""
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, SOURCE, full_only, hashes, make_model, make_text, needs, read, read_json, records,
                     refused, says, weft, write_ini)

LATE = f"{BUILD}/tests/late:{BUILD}/tests/faults:{BUILD}/plugins"
REPLAYS = pathlib.Path("replays")
TWO = "--ranks 2"


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    needs("mpich")
    make_model("model", 32, 8, 56, 3, 512)
    make_text(60)
    write_ini("run.ini", run="out=out", model="plugin=llama path=model start=fresh",
              data="plugin=text path=games.txt document=line context=32 validation=10",
              train="steps=8 global_batch=4 micro_batch=1 clip=0.5", eval="every=4", checkpoint="every=4",
              device="threads=1")


def result():
    """The trained weights, and each step's numbers."""
    return hashes("out/model", "*.safetensors"), [
        [(record["loss"], record.get("grad_norm")) for record in records(f"out/{file}.jsonl")]
        for file in ("metrics", "evaluations")]


def on_cpu(words=""):
    weft(f"train run.ini --overwrite {words}", env={"WEFT_PLUGIN_PATH": BUILD / "plugins"})
    return result()


def late(mode="last", **variables):
    """The environment of the late device."""
    REPLAYS.write_text("")
    return {"WEFT_PLUGIN_PATH": LATE, "WEFT_LATE_MODE": mode, "WEFT_LATE_SEED": 7,
            "WEFT_LATE_REPLAYS": REPLAYS.resolve(), **variables}


def on_late(words, mode="last", **variables):
    """Returns the result, and the most replayed passes of a process."""
    output = weft(f"train run.ini {words}", env=late(mode, **variables))
    return result(), max(map(int, read(REPLAYS).split())), output


def sent():
    """Bytes sent by each rank, by purpose."""
    found = [rank["sent"] for rank in read_json("out/ranks.json")["ranks"]]
    assert all(bytes["total"] > 0 for bytes in found)
    return found


def same(expected, words, least, mode="last", **variables):
    """The late device has the expected result after at least that number of replayed passes. Returns the output."""
    found, replays, output = on_late(words, mode, **variables)
    assert found == expected and replays >= least
    return output


# ---- one rank


def test_one_rank():
    expected = on_cpu()
    for mode in "last", "any":
        same(expected, "--overwrite run.replay=yes", 7, mode)  # all steps except the first, and evaluations
    shutil.rmtree("out/checkpoints/step-8")
    same(expected, "--resume", 3, "ahead")
    assert on_late("--overwrite run.replay=no")[:2] == (expected, 0)


@pytest.mark.parametrize("words", [
    "train.precision=bf16", "train.activation_checkpointing=yes", "data.context=100 data.lengths=60",
    "train.global_batch=1", "data.context=100"])
def test_settings(words):
    same(on_cpu(words), f"--overwrite run.replay=yes {words}", 1)


# ---- two ranks


def of_two(words, least, mode="last"):
    expected = on_cpu(f"{TWO} comm.plugin=mpi-mpich {words}"), sent()
    same(expected[0], f"{TWO} --overwrite comm.plugin=own run.replay=yes {words}", least, mode)
    assert sent() == expected[1]
    return expected[0]


@pytest.mark.parametrize("words", [
    "strategy.plugin=ddp", "strategy.plugin=mp strategy.schedule=1f1b", "strategy.plugin=fsdp strategy.prefetch=1"])
def test_two_ranks(words):
    of_two(words, 7)


def test_two_ranks_resumed():
    words = "strategy.plugin=fsdp strategy.shard=optimizer train.precision=bf16 strategy.reduce_dtype=bf16"
    expected = of_two(words, 7)
    shutil.rmtree("out/checkpoints/step-8")
    same(expected, f"{TWO} --resume comm.plugin=own {words}", 3, "behind")


@pytest.mark.parametrize("words", ["ddp strategy.reduce=tree", "fsdp strategy.prefetch=0"])
def test_slices_by_the_lengths_of_both_ranks(words):
    of_two(f"strategy.plugin={words} train.steps=16 train.global_batch=8 data.context=100 data.lengths=95", 20,
           "any")  # four per step


def test_lists_of_lengths_evicted_before_reuse():
    words = ("train.steps=48 train.global_batch=8 eval.every=none checkpoint.every=none data.context=100 "
             "data.lengths=80,90,98 strategy.plugin=mp")
    output = same(on_cpu(f"{TWO} comm.plugin=mpi-mpich {words}"), f"{TWO} --overwrite comm.plugin=own {words}", 0)
    says(output, "steps are not replayed", "16", count=1)
    refused(f"train run.ini --overwrite {TWO} comm.plugin=own run.replay=yes {words}", env=late(),
            says=["[run] replay = yes", "16"])


@full_only
def test_proof_on_four_ranks():
    """The small grid."""

    def cells(words, **options):
        out = weft(f"prove {SOURCE}/configs/prove.ini --ranks 4 --steps 3 {words}", **options).out
        return re.sub("(?m); [0-9.]* s$", "", out)

    expected = cells("comm.plugin=mpi-mpich", env={"WEFT_PLUGIN_PATH": BUILD / "plugins"})
    says(expected, " 38 equal, 0 not covered, 0 different")
    assert cells("comm.plugin=own run.replay=yes", env=late()) == expected
    assert max(map(int, read(REPLAYS).split())) >= 30


# ---- plugins without capture


def test_exchanges_that_the_host_drives():
    words = f"{TWO} comm.plugin=mpi-mpich strategy.plugin=ddp"
    assert on_late(f"--overwrite {words}")[:2] == (on_cpu(words), 0)
    refused(f"train run.ini --overwrite {words} run.replay=yes", env=late(),
            says=["[run] replay = yes", "comm:mpi-mpich"])


def test_device_that_cannot_capture():
    refused("train run.ini --overwrite run.replay=yes", env=late(WEFT_LATE_FORGETS=1), says="replay = auto")
    output = same(on_cpu(), "--overwrite", 0, WEFT_LATE_CANNOT=1)
    says(output, "The late device cannot record this.")
    refused("train run.ini --overwrite run.replay=yes", env=late(WEFT_LATE_CANNOT=1), says="[run] replay = yes")
