"""A rank that is killed, stopped, blocked forever, or only slow: the watchdog's message, no remaining process, and a
resume. With --ranks and under a launcher, with each MPI of this build."""
import os
import pathlib
import re
import shutil
import signal
import time

import pytest
from harness import (SOURCE, WEFT, changed_plugin, communicator, count_lines, hashes, launcher, lines, make_ranks_run,
                     needs, says, start, wait_until, weft)

LONG = ["train.steps=100000", "train.global_batch=6"]
PLACE = "in step [0-9]+, at instruction [0-9]+, [A-Z]+[^:]*|after step [0-9]+"
MPIS = ["mpich", "openmpi"]
places = []  # of killed ranks, as the watchdog knows them


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch, plugin_path):
    make_ranks_run()


@pytest.fixture(scope="module", autouse=True)
def slow_run(inputs):
    """A run whose rank 1 computes for 32 s in update 2, longer than the timeout of 30 s; the tests run meanwhile."""
    if not communicator("mpich").exists():
        return None
    changed_plugin("optimizer", "sgd", "slow", "IN_PREPARE=rest")
    return time.monotonic(), start(WEFT, "train", "run.ini", "--ranks", "2", "comm.plugin=mpi-mpich", "run.out=slow",
                                   "optimizer.plugin=slow", env={"SLEEP_MS": 32000, "SLEEP_RANK": 1})


def begin(how, id, *arguments, command="train", **options):
    """Starts 3 ranks that train or prove for long, with --ranks or bare under a launcher."""
    shutil.rmtree("one", ignore_errors=True)
    words = [WEFT, command, "run.ini", f"comm.plugin=mpi-{id}", *LONG, *arguments]
    return start(*([*words, "--ranks", "3"] if how == "ranks" else [*launcher(id, 3), *words]), **options)


def steps(process, n):
    process.wait_for(lambda: count_lines("one/metrics.jsonl") >= n, f"{n} steps")


def ends(process, how, *facts):
    """The run ends by itself with a failure, no process remains, and the watchdog, which may end last, has logged."""
    process.wait(1 if how == "ranks" else range(1, 256), timeout=300)
    process.wait_gone()
    wait_until(lambda: lines(process.err, *facts), f"line with {facts}", 100, process)
    return says(process.err, *facts)


def died(rank, place=PLACE):
    return re.compile(f"^weft[a-z ]*: rank {rank} .*(signal 9|died).* ({place}): ")


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("how", ["ranks", "bare"])
@pytest.mark.parametrize("id", MPIS)
def test_killed_rank(id, how, rank):
    needs(id)
    process = begin(how, id)
    steps(process, 3)
    os.kill(process.rank(rank), signal.SIGKILL)
    places.append(ends(process, how, died(rank)))
    says(places[-1], "--resume", count=0)  # there is no checkpoint


@pytest.mark.parametrize("how", ["ranks", "bare"])
@pytest.mark.parametrize("id, seconds", zip(MPIS, [5, 4]))
def test_stopped_rank(id, seconds, how):
    """It has 5 seconds, or the ranks' timeout if that is shorter."""
    needs(id)
    process = begin(how, id, *([] if seconds == 5 else ["run.patience=4"]))
    steps(process, 3)
    os.kill(process.rank(1), signal.SIGSTOP)
    stopped = re.compile(f"^weft[a-z ]*: rank 1 .*stopped by a signal for {seconds} s, ({PLACE}): ")
    places.append(ends(process, how, stopped))


def test_place_of_a_signal():
    """A signal may reach a rank between two steps, but not every time."""
    if not places:
        pytest.skip("no MPI was built")
    says("\n".join(places), re.compile("in step [0-9]+, at instruction [0-9]+, [A-Z]+ [a-z]"))


def test_killed_rank_of_a_proof():
    needs("mpich")
    process = begin("bare", "mpich", "--steps", "10000", command="prove")
    # The watchdog of ranks under a launcher is active once it has descriptor 3.
    process.wait_for(lambda: any(pathlib.Path(f"/proc/{pid}/fd/3").exists() for pid in process.processes("weft-watch")))
    os.kill(process.rank(2), signal.SIGKILL)
    says(ends(process, "bare", died(2, f"{PLACE}|before step 1")), "--resume", count=0)  # a proof has no such flag


def test_resume(scratch):
    """Other ranks with another strategy reach the bits of an undisturbed run."""
    needs("mpich")
    changed_plugin("optimizer", "adamw", "adamw", "IN_PREPARE=hold")
    long = ["train.steps=120", "train.global_batch=6", "checkpoint.every=10"]
    weft("train", "run.ini", *long, "strategy.plugin=single", "run.out=whole")
    process = begin("ranks", "mpich", *long, "strategy.plugin=fsdp", env={"HOLD_AT": 25, "HOLD_UNTIL": scratch / "go"})
    process.wait_for(pathlib.Path("one/checkpoints/step-20").exists, "step-20")
    os.kill(process.rank(1), signal.SIGKILL)
    says(ends(process, "ranks", died(1)), "--resume")
    assert not pathlib.Path("one/model").exists()
    said = weft("train", "run.ini", "--ranks", "2", "comm.plugin=mpi-mpich", *long, "--resume")
    says(said, "resumed", "step-20")
    for directory in "model", "checkpoints/step-120/state":
        wanted = hashes(f"whole/{directory}", "*.safetensors")
        assert wanted and hashes(f"one/{directory}", "*.safetensors") == wanted


def test_wait_without_end():
    """Rank 1 waits forever in the 40th gradient communication."""
    needs("mpich")
    if not shutil.which("mpicc.mpich"):
        pytest.skip("there is no mpicc.mpich to build a communicator that waits for ever")
    comm = SOURCE / "plugins/comm"
    changed_plugin("comm", "mpi/plugin.c", "mpi-late", 'RANKS_ID="mpi-late"', 'RANKS_NAME="MPICH"',
                   'RANKS_LAUNCHER="mpiexec"', f'RANKS_LAUNCH="{" ".join(launcher("mpich", "{ranks}"))}"',
                   'RANKS_LAUNCHED="PMI_RANK PMI_SIZE"', compiler=["mpicc.mpich"], sources=[
                       comm / "common/asked.c", *(file for file in comm.glob("mpi/*.c") if file.name != "plugin.c")])
    process = begin("ranks", "late", "run.patience=4")
    wait = "waits in step [0-9]+, at instruction [0-9]+, WAIT for instruction [0-9]+, REDUCE [a-z]"
    waits = re.compile(f"^weft train: .* [4-9] s.*; rank 0 waits [^;]*; rank 1 {wait}[^;]*; rank 2 waits ")
    ends(process, "ranks", waits)


def test_slow_rank(slow_run):
    """It is no hang."""
    needs("mpich")
    began, process = slow_run
    process.wait()
    assert time.monotonic() - began >= 32
