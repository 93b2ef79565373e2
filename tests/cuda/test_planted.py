"""Each call of CUDA, cuBLASLt, NVRTC or NCCL fails once, in short runs of one rank, of two over NCCL and of two over
MPI. The runs write an asynchronous checkpoint at each step except the last; evaluation and generation of the first
run's model are tested too. Each ends orderly with a message that names the call (or NCCL's operation), its purpose and
the rank, and leaks no device memory. A failing release may let the run continue with the same bits, and is logged. The
quick suite tests a few calls. The full suite tests each call of a single rank and each NCCL call; of the rest, which
another leg covers, it tests some from the first to the last. PLANTED='cudaMalloc|kernel' tests only these calls."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil

import pytest
from harness import (CUDA, FULL, counts, lines, make_model, make_text, needs, read, refused, start_weft, weft, write,
                     write_ini)

LEGS = {  # the words of a leg's run, and the calls that the quick suite tests
    "train": ("train run.ini run.out={out}", "cudaMalloc|cudaHostAlloc|cudaMemcpyAsync|cudaLaunchKernel|kernel|"
              "cudaEventRecord|cudaStreamEndCapture|cudaGraphLaunch|cublasLtMatmul|nvrtcCompileProgram|cuLaunchKernel|"
              "cudaSetDevice|cuModuleLoadData|cuModuleGetFunction|cudaFreeHost"),
    "nccl": ("train run.ini run.out={out} --ranks 2 comm.plugin=nccl strategy.plugin=fsdp",
             "ncclCommInitRank|ncclAllGather|ncclSend|ncclGroupEnd|ncclCommGetAsyncError|cudaMemcpyAsync|kernel|"
             "cudaFree"),
    "mpi": ("train run.ini run.out={out} --ranks 2 comm.plugin=mpi-mpich strategy.plugin=fsdp",
            "cudaEventQuery|cudaEventSynchronize|cudaHostAlloc"),
    "eval": ("eval made data.path=game.txt --json", "cudaMemcpyAsync|kernel|cublasLtMatmul|cudaGraphLaunch"),
    "generate": ("generate made --prompt e4 --tokens 4 --temperature 0",
                 "cudaMemcpyAsync|kernel|cudaLaunchKernel|cudaStreamSynchronize")}
CODES = {"cuda": 719, "cubl": 14, "nvrt": 11, "nccl": 3, "kern": 700}
NCCL = {"ncclAllGather": "all_gather", "ncclReduceScatter": "reduce_scatter", "ncclAllReduce": "(all_reduce|barrier)",
        "ncclBroadcast": "broadcast", "ncclSend": "(send|recv|all_to_all)", "ncclRecv": "(send|recv|all_to_all)",
        "ncclGroupStart": "(send|recv|all_to_all)", "ncclGroupEnd": "(send|recv|all_to_all)", "ncclCommInitRank": ".*",
        "ncclGetUniqueId": "a name for .*", "ncclGetVersion": "its version"}
# The message of a call that may be for anything, without its purpose.
BARE = re.compile(
    r"weft [a-z]+: ((device|comm):[^ ]* \([^)]*\)(, in [a-z]*)?: )?((fill|copy|read|write|upload|download|synchronize|"
    r"record_event|wait|await|reached) on device|NCCL, (all_|reduce_|broadcast|send|recv|barrier))")
# Calls that may fail in a run that succeeds: releases, waits and queries, which are logged; and the texts of errors,
# and calls after the run.
LOGGED = re.compile("cudaFree|.*Destroy$|nvrtcDestroyProgram|cuModuleUnload|ncclCommDestroy|cudaStreamSynchronize|"
                    "cudaEventSynchronize|cudaEventQuery|cudaSetDevice|cudaMemGetInfo")
SILENT = re.compile("cublasLtMatmulAlgoConfigGetAttribute|cu.*GetError|ncclCommGetAsyncError|ncclCommAbort")


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    emulator.setenv("WEFT_EMULATOR_DEVICES", "2")
    make_model("model", 32, 8, 56, 1, 512)
    make_text(40)
    write("game.txt", read("games.txt").splitlines()[0] + "\n")
    write_ini("run.ini", run="out=out", model=f"plugin=llama path={os.path.abspath('model')} start=fresh",
              tokenizer="plugin=bpe", data=f"plugin=text path={os.path.abspath('games.txt')} document=line context=16",
              train="steps=3 global_batch=6 micro_batch=1", checkpoint="every=1", optimizer="plugin=adamw")
    write("run.ini", read("run.ini") + CUDA)
    weft("train run.ini run.out=made")


def run_leg(leg, out, words="", status=0, **emulator):
    """Runs a leg, whose last rank counts its calls and has the planted error. Returns the Result and the bytes
    that must be equal."""
    env = {f"WEFT_EMULATOR_{name}": value for name, value in emulator.items()}
    if leg in ("nccl", "mpi"):
        env["WEFT_EMULATOR_FAIL_RANK"] = 1
    result = start_weft(f"{LEGS[leg][0].format(out=out)} {words}", env=env).wait(status)
    if result.status != 0:
        return result, None
    if leg in ("eval", "generate"):
        return result, json.loads(result.out)["loss"] if leg == "eval" else result.out
    return result, pathlib.Path(out, "model/model.safetensors").read_bytes()


def wrong_end(leg, call, which, wanted):
    """Fails a call. Returns what is wrong with the end of the run, or None."""
    out = f"run.{leg}.{call}.{which}"
    several = leg in ("nccl", "mpi")
    pattern = f"{call} answered"
    if call == "cudaLaunchKernel":  # updates use the driver's call
        pattern = "cu(da)?LaunchKernel answered"
    elif call == "kernel":
        pattern = "answered .*cudaErrorIllegalAddress, 700"
    elif call.startswith("nccl"):
        pattern = f"NCCL, {NCCL[call]}: internal error" if call in NCCL else "NCCL.* internal error"
    # Compiled code would be found in the cache.
    result, bits = run_leg(leg, out, "device.cache=none" if call.startswith("nvrtc") else "", [0, 1, 9],
                           COUNTS=os.path.abspath(f"{out}.counts"), FAIL=f"{call}:{which}={CODES.get(call[:4], 999)}")
    said = str(result)
    wrong = []
    if result.status == 0:
        reached = max(counts(f"{out}.counts", call), default=0) >= which
        if LOGGED.match(call):
            if reached and not re.search(f"weft: error: .*{call}", said):
                wrong.append("is not logged")
        elif reached and not SILENT.match(call):
            wrong.append("has no message")
        if bits != wanted:
            wrong.append("changes bits")
    elif result.status == 9 and not (leg == "mpi" and "THE EXIT STRING: Killed" in said):
        wrong.append("ends with status 9")  # MPICH's launcher kills the other ranks, and sometimes reports that instead
    else:
        found = lines("\n".join(lines(said, re.compile("weft (train|eval|generate): "))), re.compile(pattern))
        if not found:
            wrong.append("is not named")
        if any(BARE.search(line) for line in found):
            wrong.append("has no purpose")
        if any(", in training" in line and not re.search(r"step \d", line) for line in found):
            wrong.append("has no step")
        if several and not re.search(r"^\[1\] weft|weft train: (.*: )?rank 1: ", said, re.M):
            wrong.append("has no rank")
    if "is not finite" in said:
        wrong.append("is reported as a divergence")
    if lines("\n".join(line for line in said.splitlines() if "THE EXIT STRING: Killed" not in line),
             re.compile(r"not released|cuda emulator:|signal \d")):
        wrong.append("leaves or breaks something")
    shutil.rmtree(out, ignore_errors=True)
    pathlib.Path(f"{out}.counts").unlink(missing_ok=True)
    return f"{leg}: {call}, call {which} {', '.join(wrong)}:\n{said}" if wrong else None


def selected(leg, call, n):
    """Returns the tested calls of n: all; or the first and the last two and some in between; or the middle one."""
    if (leg in ("train", "eval", "generate") or leg == "nccl" and call.startswith("nccl")) and (FULL or n < 3):
        return range(1, n + 1)
    some = {1, 2, n // 8, n // 4, (n + 1) // 2, n * 3 // 4, n * 7 // 8, n - 1, n} if FULL else {(n + 1) // 2}
    return sorted(i for i in some if 1 <= i <= n)


@pytest.mark.parametrize("leg", LEGS)
def test_leg(leg):
    if leg == "mpi":
        needs("mpich")
    # Uses already compiled code, as after the first leg; NVRTC's calls are those of the first leg.
    wanted = run_leg(leg, f"whole.{leg}", "device.cache=none", COUNTS=os.path.abspath(f"counts.{leg}"))[1]
    assert wanted
    planted = os.environ.get("PLANTED") or (".*" if FULL else LEGS[leg][1])
    most = {}
    for call, n in re.findall(r"^call (\w+) (\d+)$", read(f"counts.{leg}"), re.M):
        if re.fullmatch(planted, call) and call != "cudaGetLastError":  # it queries errors
            most[call] = max(most.get(call, 0), int(n))
    calls = [(call, i) for call, n in most.items() for i in selected(leg, call, n)]
    assert len(calls) >= 3 or "PLANTED" in os.environ
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [wrong for wrong in pool.map(lambda call: wrong_end(leg, *call, wanted), calls) if wrong]
    assert not found, "\n".join(found)


def test_plan():
    """A plan depends on the GPU's available memory, for which there is no default."""
    weft("plan run.ini", env={"WEFT_EMULATOR_COUNTS": os.path.abspath("counts.plan")})
    n = sum(counts("counts.plan", "cudaMemGetInfo"))
    assert n >= 2
    for i in range(1, n + 1):
        refused("plan run.ini", says=["free memory", "cudaMemGetInfo"],
                env={"WEFT_EMULATOR_FAIL": f"cudaMemGetInfo:{i}=719"})
