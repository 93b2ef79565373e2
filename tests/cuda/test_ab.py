"""`weft ab` among ranks with one GPU each, over NCCL: rank 0 collects the results of a step's micro-batches. Strategies
have equal bits, and for a key that changes bits the first difference is reported. On the CUDA emulator."""
import pathlib

import pytest
from harness import CUDA, make_model, make_text, read, says, weft, write, write_ini


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    make_model("model", 32, 8, 56, 1, 512)
    make_text(40)
    write_ini("run.ini", run="out=out", model="plugin=llama path=model start=fresh",
              data="path=games.txt document=line context=16", train="steps=4 global_batch=2 micro_batch=1",
              comm="plugin=nccl")
    write("run.ini", read("run.ini") + CUDA)


@pytest.mark.parametrize("words, status, facts", [
    ("strategy.plugin=fsdp,mp", 21, ["numbers ", "B has the bits of A", "3 steps"]),
    ("strategy.plugin=fsdp --vary train.precision=fp32,bf16", 20, ["numbers ", "step 1, micro-batch 0", "loss"])])
def test_arms(words, status, facts):
    says(weft(f"ab run.ini --steps 1 --rounds 1 --learn 0 {words} --ranks 2", status=status).out, *facts)
    assert not pathlib.Path("out").exists()
