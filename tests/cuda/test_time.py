"""`weft plan --time` on the CUDA emulator, with its asynchronous streams. NCCL calls are timed until their data has
arrived, between ranks not connected by a program, and by ranks in lockstep; ranks that share a GPU over MPI are timed
too. A GPU uses no host processors, so the forecast does not mention them."""
import copy

import pytest
from harness import (CUDA, FULL, has, make_model, make_text, read, read_json, refused, says, weft, write, write_ini,
                     write_json)

CELLS = [(1, 2, "comm.plugin=mpi-mpich device.cuda.share=yes strategy.plugin=fsdp"),
         (2, 2, "comm.plugin=nccl strategy.plugin=fsdp"),
         (2, 2, "comm.plugin=nccl strategy.plugin=mp strategy.schedule=1f1b")]
if FULL:
    CELLS += [(2, 2, "comm.plugin=nccl strategy.plugin=ddp"), (3, 3, "comm.plugin=nccl strategy.plugin=fsdp"),
              (4, 4, "comm.plugin=nccl strategy.plugin=mp")]


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    for name in "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_":  # the emulator allocates memory per message
        emulator.setenv(name, "1000000000")
    make_model("model", 32, 8, 56, 1, 512)
    make_text(40)
    write_ini("run.ini", run="out=out", model="plugin=llama path=model start=fresh",
              data="path=games.txt document=line context=16", train="steps=4 global_batch=12 micro_batch=1")
    write("run.ini", read("run.ini") + CUDA)


@pytest.mark.parametrize("cards, ranks, words", CELLS)
def test_measurement(cards, ranks, words):
    if "mpich" in words and not has("mpich"):
        return
    result = weft(f"plan run.ini {words} --ranks {ranks} --time --json", env={"WEFT_EMULATOR_DEVICES": cards})
    times, rates = result.json["time"], result.json["rates"]
    assert len(times["ranks"]) == ranks
    for rank in times["ranks"]:  # each computes, and waits for communication
        assert 0 < rank["compute"] <= times["step_seconds"] * 1.000001
        assert 0 < rank["exposed"] <= times["step_seconds"]
    # No host moves 32 MiB in 0.2 ms, or finishes 33 times as many bytes before it waits for the first.
    largest = [pairs[-1] for pairs in rates["exchanges"].values()]
    assert len(largest) == 4 and all(size == 33554432 and seconds >= 2e-4 for size, seconds in largest)
    says(result.out, f"each rank computes on a device (CUDA emulator sm_90, sm_90), as the {ranks} that were measured")
    assert not any("threads" in text or "processors are enough" in text for text in times["assumed"])
    write_json(f"rates.{ranks}.{words.split('=')[-1]}.json", result.json)


def test_more_ranks():
    """16 cards do not share the host's processors, of which there are two, or many. With the rates measured above."""
    words = "run.ini comm.plugin=nccl strategy.plugin=ddp"
    measured = read_json("rates.2.fsdp.json")
    steps = set()
    for processors in 2, 64:
        rates = copy.deepcopy(measured)
        rates["rates"]["processors"] = processors
        write_json("rates.json", rates)
        times = weft(f"plan {words} train.global_batch=64 --ranks 16 --rates rates.json --json").json["time"]
        steps.add(times["step_seconds"])
        assert any("16 ranks" in text and "2 that were measured" in text for text in times["assumed"])
        assert not any("processors are enough" in text for text in times["assumed"])
    assert len(steps) == 1
    measured["rates"]["own_processors"] = False
    write_json("rates.json", measured)
    refused(f"plan {words} --ranks 2 --rates rates.json", says=["rates.json", "processors"])
