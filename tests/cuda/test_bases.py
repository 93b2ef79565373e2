"""Each built-in adapter on each packed base, on the CUDA emulator: three ranks, one GPU each, have the bits of one
rank. Tested under fsdp, in the full suite under every strategy, and against the CPU's losses within a tolerance. A
separate kernel computes DoRA's norms of a packed base."""
import pytest
from harness import CUDA, FULL, agree, make_model, make_text, read, same_tensors, says, weft, write, write_ini

CELLS = [("nf4", "lora adapter.r=3 adapter.dora=yes", 1e-5), ("nf4x64", "llama-adapter adapter.length=4", 1e-5)]
if FULL:
    CELLS = [(base, *cell) for base in ("nf4", "nf4x64", "int8", "fp8") for cell in [
        ("lora adapter.r=3", 1e-5), ("lora adapter.r=3 adapter.dora=yes", 1e-5), ("ia3", 1e-5),
        ("prefix adapter.length=5 adapter.init_std=0.3", 1e-5), ("llama-adapter adapter.length=4", 1e-5),
        ("mlp-head adapter.width=24", 1e-5),
        ("lora adapter.r=3 adapter.dora=yes adapter.dropout=0.1 train.precision=bf16", 1e-3)]]


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    make_model("model", 64, 16, 128, 2, 521)
    make_text(20)
    write_ini("cuda.ini", run="out=out", model="path=model start=fresh",
              data="path=games.txt document=line context=16 validation=2",
              train="steps=6 global_batch=6 micro_batch=1 clip=0.5 schedule=constant", eval="every=none",
              checkpoint="every=none", optimizer="plugin=adamw lr=1e-2")
    write("cpu.ini", read("cuda.ini") + "[device]\nthreads = 1\n")
    write("cuda.ini", read("cuda.ini") + CUDA)


@pytest.mark.parametrize("base, adapter, most", CELLS)
def test_cell(base, adapter, most):
    words = f"model.base={base} adapter.plugin={adapter}"
    ranks = "comm.plugin=nccl --ranks 3"
    weft(f"train cpu.ini --overwrite run.out=cpu {words}")
    weft(f"train cuda.ini --overwrite run.out=one {words}")
    agree("one", "cpu", most)
    weft(f"train cuda.ini --overwrite run.out=three strategy.plugin=fsdp {ranks} {words}")
    same_tensors("one/model", "three/model")
    if FULL:
        says(weft(f"prove cuda.ini --steps 1 {ranks} {words}").out, " equal, 0 not covered, 0 different")
