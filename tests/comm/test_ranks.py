"""Communicators under the launcher of each MPI library of this build: every call on 1 to 9 ranks (ranks.h), a world of
another size than requested, the launcher of the other MPI, and a rank that dies. Before that, self."""
import os
import pathlib

import pytest
from harness import BUILD, FULL, communicator, launcher, needs, read, run, says, wait_until

RANKS = BUILD / "tests/ranks"
SELF = BUILD / "plugins/weft-comm-self.so"
# Many ranks on few processors are slow, and each start of openmpi takes half a second; it has the same source.
NUMBERS = {"mpich": [1, 2, 3, 4, 5, 6, 7, 8, 9] if FULL else [1, 3, 4], "openmpi": [1, 2, 3, 4, 5, 9] if FULL else [2]}


@pytest.fixture(params=["mpich", "openmpi"])
def mpi(request):
    needs(request.param)
    return request.param


def start(n, mpi, *words, **options):
    """N ranks by the command of the plugin's note."""
    return run(*launcher(mpi, n), RANKS, *words, **options)


def quiet(result):
    """Neither a rank nor MPI printed anything."""
    assert str(result) == ""


def test_self():
    quiet(run(RANKS, "exchanges,several,pairs,wrong", SELF))
    says(run(RANKS, "world", "3", SELF), "status 7: ", "self", "3")


@pytest.mark.parametrize("id, n", [(id, n) for id in NUMBERS for n in NUMBERS[id]])
def test_exchanges(id, n):
    needs(id)
    cases = "exchanges,several,pairs,wrong,rounding" + ",large" * (n == 2) + ",crossing" * (n <= 4)
    quiet(start(n, id, cases, communicator(id)))


@pytest.mark.parametrize("n", [2, 3] if FULL else [3])
def test_memory_and_exchanges_in_chunks(mpi, n):
    start(n, mpi, "memory", communicator(mpi))
    start(n, mpi, "exchanges,several,pairs,crossing", BUILD / f"tests/weft-comm-mpi-{mpi}-pieces.so")


def test_world_of_another_size(mpi):
    """Ranks that request a world of 3 print the error."""
    for n, facts in (3, "status 0: "), (2, "status 7: |3 ranks|world of 2|[comm]"), (1, "of 1: |[comm]"):
        says(start(n, mpi, "world", 3, communicator(mpi)), *facts.split("|"), count=n)
    says(run(RANKS, "world", 3, communicator(mpi)), f"plugin = mpi-{mpi}", ": start its ranks with /")


def test_launcher_of_the_other_mpi(mpi):
    other = {"mpich": "openmpi", "openmpi": "mpich"}[mpi]
    needs(other)
    says(start(3, other, "world", 3, communicator(mpi)), "status 7: ", "3 ranks", "world of 1", count=3)


def runs(pid):
    """The process still runs; the launcher does not wait for the end of a killed one."""
    try:
        return "State:\tZ" not in read(f"/proc/{pid}/status")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_rank_that_dies(mpi):
    """The others would wait forever."""
    os.mkdir(mpi)
    start(3, mpi, "die", mpi, communicator(mpi), status=range(1, 256))
    pids = [file.name for file in pathlib.Path(mpi).iterdir()]
    assert len(pids) == 3
    wait_until(lambda: not any(map(runs, pids)), "end of all ranks", 300)
