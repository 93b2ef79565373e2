"""Memory checks: messages, effects of the suggested changes, no start of a run that cannot fit, and weights that plan
and train both reject."""
import os
import pathlib
import re
import shutil
import sys

import pytest
from harness import (SANITIZED, WEFT, change_json, make_model, make_text, needs, read, refused, run, says, weft,
                     write, write_ini)

MOVES = "1. e4 e5 2. f4 exf4 3. Nf3 g5 4. h4 g4 5. Ne5 Nf6 6. Bc4 d5 7. exd5 Bd6 8. d4 Nh5 1-0"
DDP = "strategy.plugin=ddp"


@pytest.fixture(scope="module", autouse=True)
def planned(scratch):
    """Planned bytes."""
    make_model("model", 32, 8, 56, 4, 512)
    make_text(80)
    write_ini("run.ini", run="out=out", model="plugin=llama path=model start=fresh",
              data="path=games.txt document=line context=64", train="steps=2 global_batch=16 micro_batch=8",
              device="threads=1")
    return total()


def plan(words="", ini="run.ini"):
    return weft(f"plan {ini} --json {words}").json


def total(words=""):
    """Planned bytes if memory is checked."""
    return plan(words)["fit"]["planned"]


def changes(words):
    """The plan's suggestions: bytes, and the arguments."""
    return [(change["planned"], [*change["set"], "--ranks", str(change["ranks"]), "--nodes", str(change["nodes"])])
            for change in plan(words)["fit"]["changes"]]


def holds(room, words=""):
    """Each suggested change, applied after these words, has the stated plan and fits. Returns them as text."""
    found = changes(f"{words} --fit {room}B")
    assert found
    for bytes, arguments in found:
        without_ranks = re.sub(" --(ranks|nodes) [0-9]*", "", f" {words} ")
        assert bytes <= room and total(f"--fit {room}B {without_ranks} {' '.join(arguments)}") == bytes, arguments
    return [(bytes, " ".join(arguments)) for bytes, arguments in found]


# ---- it fits: one line, the same for two plans, independent of the machine's load


def test_fits(planned):
    says(weft("plan run.ini"), re.compile("^fits  .*; largest: "))
    says(weft(f"plan run.ini --fit {planned}B"), re.compile("^fits  .* device"))
    says(weft(f"plan run.ini --fit {planned - 1}B"), re.compile("^does not fit .* device"))


@pytest.fixture(scope="module")
def data_bytes():
    return plan()["memory"]["data"]


def test_memory_of_the_data_plugin(planned, data_bytes):
    """It is in its own category and in the total. A token takes two bytes, plus overhead per document and window."""
    write("eight.txt", read("games.txt") * 8)
    eight = plan("data.path=eight.txt")
    assert data_bytes > os.path.getsize("games.txt") / 2 and 7 < eight["memory"]["data"] / data_bytes < 9
    assert eight["fit"]["planned"] - planned == eight["memory"]["data"] - data_bytes


# ---- preparation of large data is planned, and it takes no more than that and what a small file takes

LARGE = {  # about 40 MB each
    "large.txt": (f"{MOVES}\n", 480000), "long.txt": (f"{MOVES} ", 480000),
    "large.pgn": (f'[Event "?"]\n[Result "1-0"]\n\n{MOVES} {{a comment that is not part of the document}}\n\n', 250000),
    "large.jsonl": (f'{{"text": "{MOVES}", "more": "a field that is not part of the document, and that is long"}}\n',
                    250000),
    "large_chat.jsonl": (f'{{"instruction": "a question about this game", "output": "{MOVES}"}}\n', 250000)}


@pytest.fixture(scope="module")
def small(planned):
    """Bytes that planning a small file takes. The large files."""
    for file, (text, count) in LARGE.items():
        write(file, text * count)
    write("chat.ini", re.sub("(?m)^document.*\n", "", read("run.ini")))
    yield peak("run.ini")[0]
    for file in LARGE:
        os.unlink(file)


# In a small process, because the peak of a child includes the memory of its parent at its start.
PEAK = """
import os, sys
pid = os.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak(ini, *words):
    """Bytes that planning takes, and the plan."""
    result = run(sys.executable, "-I", "-S", "-c", PEAK, WEFT, "plan", "--json", ini, *words)
    return 1024 * int(result.err.splitlines()[-1]), result.json


@pytest.mark.parametrize("words", [
    "data.path=large.txt", "data.path=large.txt data.document=file", "data.path=large.txt data.validation=0.1",
    "data.path=long.txt data.document=file", "data.path=large.txt data.validation=./long.txt", "data.path=large.pgn",
    "data.path=large.jsonl",
    "data.plugin=instruct data.path=large_chat.jsonl data.template=alpaca data.validation=large_chat.jsonl"])
def test_preparation(small, words):
    """The tokenizer holds the ids of 4 MiB of text and the buffers of each thread."""
    used, planned = peak("chat.ini" if "chat" in words else "run.ini", *words.split())
    prepared = planned["memory"]["preparation"]
    if not SANITIZED:
        assert used - small < prepared + (24 << 20) + (os.cpu_count() << 20) and prepared < (used - small) * 5 / 4


def test_preparation_that_does_not_fit(small):
    """No setting reduces it."""
    words = "data.path=large.jsonl"
    says(weft(f"plan run.ini {words}"), "preparing data")
    prepared = plan(words)
    assert prepared["fit"]["planned"] == prepared["memory"]["preparation"]
    prepared = prepared["fit"]["planned"]
    says(weft(f"plan run.ini {words} --fit {prepared}B"), "largest: data")
    says(weft(f"plan run.ini {words} --fit {prepared - 1}B"), re.compile("^does not fit .* device"))
    assert changes(f"{words} --fit {prepared - 1}B") == []
    refused(f"train run.ini {words} --fit {prepared - 1}B", says="data")


def test_time_of_planning_is_linear():
    """In the number of micro-batches of a step; quadratic time would be minutes."""
    weft("plan run.ini train.global_batch=32768 train.micro_batch=1", timeout=60)


# ---- changes are found by planning: each has the stated result


@pytest.fixture(scope="module")
def micro(planned):
    """The micro-batch that fits in half."""
    found = holds(planned // 2)
    assert not any("fsdp" in words for _, words in found)  # sharding what a model keeps does not halve its activations
    size, = [re.fullmatch("train.micro_batch=([0-9]*) --ranks 1 --nodes 1", words) for _, words in found
             if "train.micro_batch" in words]
    return int(size.group(1))


def test_mildest_change(planned, micro):
    """A larger micro-batch that divides the batch would not fit."""
    assert total(f"train.micro_batch={2 * micro}") > planned // 2
    fit = plan(f"--fit {planned // 2}B")["fit"]
    assert (fit["fits"], fit["of"], fit["largest"]) == (False, "a device", "activations")
    assert [f"train.micro_batch={micro}"] in [change["set"] for change in fit["changes"]]


def test_activation_checkpointing():
    room = total("train.activation_checkpointing=yes")
    assert (room, "train.activation_checkpointing=yes --ranks 1 --nodes 1") in holds(room)


def test_combined_changes(planned):
    """No single change suffices: changes are combined, without unnecessary ones, within 80 columns."""
    room = planned // 6
    found = holds(room)
    assert any(words.count("train.") > 1 for _, words in found)
    for _, words in found:
        for word in words[:words.index(" --")].split():
            less = weft("plan run.ini --json --fit", f"{room}B", *words.replace(word, "").split(), status=[0, 1])
            assert less.status or not less.json["fit"]["fits"], word
    out = weft(f"plan run.ini --fit {room}B").out
    shown = re.search("(?ms)^does not fit.*?^schedule", out).group().splitlines()
    assert max(map(len, shown)) <= 80 and any(" train." in line for line in shown)


def test_nothing_would_fit():
    """Less than the parameters, more than the preparation of the data."""
    assert changes("--fit 150kB") == []
    says(weft("plan run.ini --fit 150kB"), re.compile("^does not fit"))


def test_ranks_of_one_machine_share_its_memory(data_bytes):
    """And data only once; ranks with their own devices are separate."""
    four, each, spread = (
        total(f"{DDP} --ranks 4 train.micro_batch=4 {words}") for words in ("", "--fit 1GB", "--nodes 2"))
    assert four == 4 * each - 3 * data_bytes and spread == 2 * each - data_bytes
    assert total(f"{DDP} --ranks 1") > 0
    found = holds(each - 1, f"{DDP} train.micro_batch=4 --ranks 4")
    assert any(words.endswith("strategy.plugin=fsdp --ranks 4 --nodes 1") for _, words in found)


# ---- a run that cannot fit is not started and leaves no files, unless forced


def test_run_that_cannot_fit(planned):
    refused(f"train run.ini --fit {planned // 2}B", says=" train.")
    assert not os.path.exists("out")
    refused("profile run.ini --fit 100kB --steps 1")
    refused("eval run.ini --fit 900kB", says="train.micro_batch=")
    says(weft("train run.ini --no-fit"), "step 2/2")
    says(weft(f"train run.ini --overwrite --fit {planned}B"), re.compile("^fits  .* device"))


def test_proof_that_cannot_fit(planned):
    """It starts no cell if one of them does not fit; the suggested change suffices, and is not one it varies."""
    prove = "prove run.ini --ranks 1 --steps 1"
    output = refused(f"{prove} --fit {planned // 2}B", says=["1 rank: ", "activations", "train.micro_batch="])
    says(output, re.compile("activation_checkpointing=|--ranks|fsdp|async=|cells"), count=0)
    change = re.search("train.micro_batch=[0-9]+", str(output)).group()
    for words in f"--fit {planned // 2}B {change}", "--no-fit":
        says(weft(f"{prove} {words}"), ", 0 different")


def test_several_ranks():
    needs("mpich")
    mpi = "--ranks 2 comm.plugin=mpi-mpich"
    refused(f"prove run.ini {mpi} --steps 1 --fit 300kB",
            says=["2 ranks: ", "5.9 MiB", "3.3 MiB", "rank 0", "293.0 KiB"])
    refused(f"train run.ini --overwrite {mpi} {DDP} --fit 300kB")
    says(weft(f"train run.ini --overwrite {mpi} {DDP}"), re.compile(" 2 ranks; largest: "))


@pytest.mark.parametrize("size", ["80", "GB", "x", "80XB", "0GB", "-1GB", "1e400GB"])
def test_invalid_size(size):
    refused(f"plan run.ini --fit={size}", says=["--fit", size])


@pytest.mark.parametrize("size", ["1gb", "1G", "1 GB", "1000MB", "1e9B", "1000000kB"])
def test_size(size):
    says(weft("plan run.ini --fit", size), "953.7 MiB")
    refused("train run.ini --no-fit --fit", size, says=["--fit", "--no-fit"])


# ---- weights: plan rejects the same as train, with the same message, with any other flags


def last_line(result):
    lines = [line for line in str(result).splitlines() if not line.startswith("weft: ")]
    return re.sub("^weft [a-z]*: (weights.ini: )?", "", lines[-1])


def test_weights_that_plan_and_train_reject():
    text = re.sub("(?m)^start=.*\n", "", read("run.ini"))
    write("weights.ini", text.replace("out=out", "out=weights_out").replace("path=model", "path=copy"))
    weft("train run.ini --overwrite run.out=made")
    shutil.copytree("made/model", "copy")
    weft("plan weights.ini")
    file, weights = pathlib.Path("copy/model.safetensors"), pathlib.Path("made/model/model.safetensors").read_bytes()
    for content, size in ((None, 56), (b"\2\0\0\0\0\0\0\0{}", 56), (weights, 60),
                          (weights.replace(b'"F32"', b'"F08"'), 56), (weights[:3000], 56)):
        change_json("copy/config.json", intermediate_size=size)
        file.write_bytes(content) if content else file.unlink()
        error = last_line(refused("train weights.ini"))
        for flags in "", "--json", "--print-program --mode evaluation", "--diff weights.ini", (
                "--ranks 2 strategy.plugin=fsdp"):
            assert last_line(refused(f"plan weights.ini {flags}")) == error, flags
