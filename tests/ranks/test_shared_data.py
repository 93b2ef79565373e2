"""One rank of each node creates the data, and its other ranks map them: each document is encoded once, the ranks train
the same bits as with separate data, and a failure of the creating rank is reported once and stops all."""
import collections
import os
import pathlib
import re
import shutil
import signal

import pytest
from harness import (CC, FULL, SOURCE, WEFT, changed_plugin, hashes, launcher, make_ranks_run, needs, read, run,
                     same_tensors, says, start, write)

GAMES = 40
CHAT = ["chat.ini", "data.plugin=instruct", "data.path=chat.jsonl", "data.template=alpaca",
        "data.validation=chat.jsonl", "data.weight=1.5"]
MPIS = ["mpich", "openmpi"] if FULL else ["mpich"]
FAILURE = range(1, 124)


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch, plugin_path):
    make_ranks_run()
    write("chat.ini", re.sub("(?m)^document.*\n", "", read("run.ini")))
    write("bad.jsonl", "".join(read("games.txt").splitlines(True)[:4]) + "\n")
    turns = [("one", "two"), ("three", "four"), ("five", "six and more"), ("seven", "eight"), ("nine", "ten")]
    record = '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n'
    write("chat.jsonl", "".join(record % turn for turn in turns))
    jansson = run("pkg-config", "--cflags", "--libs", "jansson").out.split()
    data = SOURCE / "plugins/data"
    for id in "text", "instruct":
        others = [file for file in [*data.glob("common/*.c"), *data.glob(f"{id}/*.c")] if file.name != f"{id}.c"]
        changed_plugin("data", id, id, sources=others, flags=jansson)
    os.environ["ENCODED"] = str(scratch / "encoded")
    trains("alone", WEFT, "train", "run.ini", "data.validation=0.2")
    assert encoded() == {"0": GAMES}
    trains("chat-alone", WEFT, "train", *CHAT)
    encoded()


def encoded():
    """Returns how many documents each rank encoded since the last call."""
    counts = collections.Counter(read("encoded").split())
    pathlib.Path("encoded").unlink()
    return counts


def trains(out, *command, **options):
    shutil.rmtree(out, ignore_errors=True)
    return run(*command, f"run.out={out}", **options)


def stops(text, *command):
    """The command fails, one line has the text, and nothing is trained."""
    said = run(*command, "run.out=stopped", status=FAILURE)
    says(said.err, text, count=1)
    assert not pathlib.Path("stopped/model").exists()
    pathlib.Path("encoded").unlink(missing_ok=True)


@pytest.mark.parametrize("how", ["ranks", "bare"])
@pytest.mark.parametrize("id", MPIS)
def test_one_rank_encodes(id, how):
    needs(id)
    command = [WEFT, "train", "run.ini", f"comm.plugin=mpi-{id}"]
    command = [*command, "--ranks", "4"] if how == "ranks" else [*launcher(id, 4), *command]
    trains("shared", *command, "data.validation=0.2")
    assert encoded() == {"0": GAMES}
    same_tensors("alone/model", "shared/model")
    stops("bad.jsonl:5: ", *command, "data.path=bad.jsonl")


@pytest.mark.parametrize("id", MPIS)
def test_one_rank_encodes_conversations(id):
    needs(id)
    trains("chat", WEFT, "train", *CHAT, f"comm.plugin=mpi-{id}", "--ranks", "2")
    assert encoded() == {"0": 10}
    same_tensors("chat-alone/model", "chat/model")
    assert hashes("chat-alone/model") == hashes("chat/model")


def test_one_rank_of_each_node_encodes():
    """The nodes are hosts with two names."""
    needs("mpich")
    if start("unshare", "--uts", "hostname", "other").process.wait() != 0:
        pytest.skip("hosts of two names need unshare --uts, which root has")
    write("node", """case $PMI_RANK in
1 | 3) exec unshare --uts sh -c 'hostname other; exec "$@"' sh "$@" ;;
*) exec "$@" ;;
esac
""")
    trains("nodes", *launcher("mpich", 4), "sh", "./node", WEFT, "train", "run.ini", "comm.plugin=mpi-mpich",
           "data.validation=0.2")
    assert encoded() == {"0": GAMES, "1": GAMES}
    same_tensors("alone/model", "nodes/model")


@pytest.mark.parametrize("rank", [0, 1])
def test_create_that_fails(rank, monkeypatch):
    """Before the data are created: on the creating rank and on another one."""
    needs("mpich")
    monkeypatch.setenv("FAIL_RANK", str(rank))
    stops("a failure of one rank", WEFT, "train", "run.ini", "comm.plugin=mpi-mpich", "--ranks", "2")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_signal_to_the_creating_rank(scratch, number):
    """While the others wait for its lock."""
    needs("mpich")
    write("hold", "")
    process = start(WEFT, "train", "run.ini", "comm.plugin=mpi-mpich", "--ranks", "2", "run.out=signalled",
                    env={"HOLD": scratch / "hold"})
    maker = process.rank(0)
    process.wait_for(lambda: re.search(f"FLOCK .* {maker} ", read("/proc/locks")), "lock")
    os.kill(maker, number)
    if number == signal.SIGTERM:
        pathlib.Path("hold").unlink()
    process.wait(FAILURE)
    assert process.processes() == []


def test_rank_that_cannot_map_the_data():
    """It makes a copy, and rank 0 logs that."""
    needs("mpich")
    if re.search("lib[at]san", run("ldd", WEFT).out) or b"san_init" in WEFT.read_bytes():
        pytest.skip("the sanitizers replace open, too")
    run(*CC, "-shared", "-fPIC", "-o", "no_reopen.so", SOURCE / "tests/changed/no_reopen.c")
    said = trains("copy", *launcher("mpich", 2), WEFT, "train", "run.ini", "comm.plugin=mpi-mpich",
                  "data.validation=0.2", env={"LD_PRELOAD": pathlib.Path("no_reopen.so").resolve()})
    assert encoded() == {"0": GAMES, "1": GAMES}
    says(said, "rank 1", "map the data", count=1)
    same_tensors("alone/model", "copy/model")
