"""The launches that `weft plan` predicts for a step equal those of a step on the CUDA emulator: kernels, matmuls and
copies, of one rank and of several, in both precisions, with and without optional parts of a step. A step's launches are
the difference between runs of one and two steps. A step allocates no GPU memory and no pinned memory."""
import pathlib
import re
import shutil

import pytest
from harness import CUDA, FULL, SOURCE, counts, has, lines, needs, read, says, weft, write

SHORT = "train.global_batch=4"
NCCL = f"--ranks 2 comm.plugin=nccl {SHORT}"
MPI = f"--ranks 2 comm.plugin=mpi-mpich data.lengths= {SHORT}"


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    shutil.copytree(SOURCE / "configs", "configs")
    cpu = read("configs/prove.ini").partition("\n[device]")[0] + "\n"
    write("configs/cpu.ini", cpu)
    write("configs/run.ini", cpu + CUDA)


def started(steps, words, **env):
    """Trains so many steps; the calls of all processes are in the file counts. Returns the Result."""
    pathlib.Path("counts").unlink(missing_ok=True)
    shutil.rmtree("run", ignore_errors=True)
    return weft(f"train configs/run.ini run.out={pathlib.Path('run').resolve()} train.steps={steps} {words}",
                env={"WEFT_EMULATOR_COUNTS": pathlib.Path("counts").resolve(), **env})


def totals():
    """Returns the kernels, matmuls and copies in the file counts, then its sums, norms, conversions and updates."""
    kernels = [line.split() for line in read("counts").splitlines() if line.startswith("kernel ")]
    matmuls = sum(int(words[-1]) for words in kernels if words[1] == "cublasLtMatmul")
    return [sum(int(words[-1]) for words in kernels) - matmuls, matmuls,
            sum(counts("counts", "cudaMemcpyAsync") + counts("counts", "cudaMemsetAsync")),
            *(sum(int(words[-1]) for words in kernels if words[1].startswith(name))
              for name in ("add_cells<", "norm_rows<", "convert<")),
            sum(counts("counts", "cuLaunchKernel"))]


def allocations():
    """Returns the allocations of each process."""
    return sorted(lines(read("counts"), re.compile("^call (cudaMalloc|cudaHostAlloc) ")))


def launches(words, ranks=1):
    """Checks the prediction of a step, of which MPI makes own copies of data. Returns the sums, norms, conversions and
    updates of a step of all ranks."""
    words += " train.schedule=constant" + (f" --ranks {ranks} comm.plugin=mpi-mpich" if ranks > 1 else "")
    planned = weft(f"plan configs/run.ini --json {words}").json["launches"]
    planned = [planned[name] for name in ("kernels", "products", "copies")]
    ran, memory = [], []
    for steps in 1, 2:
        started(steps, f"run.replay=no {words}")
        ran.append(totals())
        memory.append(allocations())
    step = [two - one for one, two in zip(*ran)]
    compared = 3 if ranks == 1 else 2
    assert all(planned) and planned[:compared] == [n / ranks for n in step[:compared]]
    assert memory[0] == memory[1]
    return step[3:]


def test_one_rank():
    """Each of 12 micro-batches has 7 norms; 6 of them are fused with the preceding add. The remaining separate adds are
    the gradients of 4 units over these micro-batches. The update, one launch, writes the matrices' bf16 copies. Memory
    is five lines of the plan, a buffer each."""
    assert launches("train.precision=bf16") == [44, 84, 0, 1]
    assert counts("counts", "cudaMalloc") == [5]
    launches("strategy.reduce=tree")


def test_ranks():
    """Between two blocks fsdp gathers the next one, which records an instruction in the stream: the last 3 half-blocks
    of a micro-batch are not fused with a norm."""
    needs("mpich")
    assert launches("strategy.plugin=ddp", 2)[:2] == [88, 84]
    assert launches("strategy.plugin=fsdp train.precision=bf16", 2)[:2] == [124, 84]


@pytest.mark.parametrize("words", [
    f"{NCCL} strategy.plugin=fsdp", f"{MPI} strategy.plugin=mp",
    *([f"{NCCL} strategy.plugin=mp", f"{MPI} strategy.plugin=fsdp"] if FULL else [])])
def test_memory(words):
    """Four steps allocate as much as one, independent of timing: the first step allocates the communication buffers."""
    if "mpich" in words and not has("mpich"):
        return
    found = []
    for steps, env in (1, {}), (4, {}), (4, {"WEFT_EMULATOR_MODE": "any", "WEFT_EMULATOR_SEED": 3}):
        started(steps, f"train.schedule=constant {words}", **env)
        found.append(allocations())
    assert found[0] and found[0] == found[1] == found[2]


@pytest.mark.parametrize("words", [SHORT, *([f"{NCCL} strategy.plugin=fsdp"] if FULL else [])])
def test_pinned_memory(words):
    """The first step allocates none, either: each allocation fails before it."""
    started(1, f"train.schedule=constant {words}")
    for i in range(1, max(counts("counts", "cudaHostAlloc")) + 1):
        shutil.rmtree("run", ignore_errors=True)
        said = weft(f"train configs/run.ini run.out={pathlib.Path('run').resolve()} train.steps=1 {words}", status=1,
                    env={"WEFT_EMULATOR_FAIL": f"cudaHostAlloc:{i}=2"})
        assert "step 1" not in said.err


def test_copies():
    """Weights and checkpoints move through pinned memory only, in a complete run and in its resume."""
    for steps in 2, 4:
        pathlib.Path("counts").unlink(missing_ok=True)
        weft(f"train configs/run.ini run.out={pathlib.Path('saved').resolve()} checkpoint.every=2 train.precision=bf16",
             "train.schedule=constant", f"train.steps={steps}", *(["--resume"] if steps == 4 else []),
             env={"WEFT_EMULATOR_COUNTS": pathlib.Path("counts").resolve()})
        assert counts("counts", "cudaMemcpyAsync") and "pageable" not in read("counts")


def test_plan():
    said = weft("plan configs/run.ini").out
    says(said, re.compile(r"^device +CUDA emulator sm_90, sm_90, cuBLASLt [\d.]*, rounded attention$"))
    says(said, re.compile(r"^launches +1,\d+ a step: \d+ kernels and \d+ calls of a library; copies: \d+$"))
    assert not lines(weft("plan configs/cpu.ini").out, re.compile("^launches"))
