"""Output of several ranks: before the run, after its first step, at its end, and which ranks print it."""
import re

import pytest
from harness import (lines, make_model, make_run, needs, read_json, refused, resume, says, train, weft)

PLUGINS = ["model llama", "policy block", "optimizer adamw lr 0.001", "data text", "tokenizer bpe", "device cpu"]
GIB = 2 ** 30
BYTES = r"[\d.]+ [KMG]iB"


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    make_run("steps = 3\nclip = 1.0\nschedule = linear\n[eval]\nevery = 2\n[optimizer]\nplugin = adamw\nlr = 1e-3\n")


def verbose(words="", ranks=1):
    return str(train("out", f"--verbose {words}", ranks))


def has_line(text, pattern, count=1):
    """So many lines are matched completely."""
    __tracebackhide__ = True
    return says(text, re.compile(f"^{pattern}$"), count=count)


def check_run(said, prefix="", precision="fp32"):
    """The configuration before and after the run, and the wrapping."""
    rows = [row for row in lines(said, re.compile(f"^{prefix}run +precision {precision}, "), *PLUGINS)]
    assert len(rows) == 2 and re.search(r"3 steps, loss \d\.\d{4} -> \d\.\d{4} .*lr 0.000333", rows[1])
    has_line(said, prefix + r"wrapping +3 of 42 modules .* in 4 units; .*")


def first_step(prefix):
    return prefix + r"Step 1: Current memory usage: \d+\.\d\d GiB, Peak memory usage: \d+\.\d\d GiB, Total memory: .*"


def first_sequence(prefix, n=32):
    return prefix + rf"1st data in mini-batch: \[\d+(, \d+){{{n - 1}}}\]"


def test_one_rank():
    """It has no rank prefix."""
    said = verbose()
    check_run(said)
    has_line(said, f"memory +{BYTES} planned .*")
    has_line(said, "memory .*after step.*", 0)
    has_line(said, first_step(""))
    said = verbose("train.precision=bf16 --print-batches")
    check_run(said, precision="bf16")
    has_line(said, r"Step 1: rank 0: Mini-batch size: 12 of the 12 .*: 0, 1, 2, 3, 4, 5, 6, 7, \.\.\.")
    has_line(said, first_sequence("Step 1: rank 0: "))
    refused("train run.ini --overwrite --quiet --print-sharding", status=2, says=["--quiet", "--print-"])


def test_rank_0():
    """By default only rank 0 prints. ranks.json has each rank."""
    needs("mpich")
    said = verbose("strategy.plugin=fsdp", 3)
    check_run(said, r"\[0\] ")
    has_line(said, rf"\[0\] memory +{BYTES} planned on .*")
    has_line(said, first_step(r"\[0\] "))
    has_line(said, rf"\[0\] memory +{BYTES} \(rank [0-2]\) to {BYTES} \(rank [0-2]\) resident after step 1, {BYTES} .*")
    has_line(said, rf"\[0\] memory +rank 0: {BYTES} planned, {BYTES} taken; .*")
    has_line(said, r"\[0\] (Step 1: rank|parameters on|\[|top_module).*", 0)
    assert all(line.startswith("[0]") for line in said.splitlines())
    says(weft("plan run.ini strategy.plugin=fsdp --ranks 3").out, re.compile("^wrapping "))
    report = read_json("out/ranks.json")
    assert report["run"]["world"] == 3 and report["run"]["steps"] == 3
    assert report["run"]["plugins"]["strategy"] == "fsdp" and report["run"]["plugins"]["comm"] == "mpi-mpich"
    assert report["run"]["strategy"]["shard"] == "full"
    assert [(rank["local_rank"], rank["steps"]) for rank in report["ranks"]] == [(0, 3), (1, 3), (2, 3)]
    for rank in report["ranks"]:
        first = rank["after_first_step"]
        assert first["step"] == 1 and first["taken"] == rank["planned"]
        assert 0 < first["resident"] <= first["resident_peak"] <= rank["resident_peak"]


def test_largest_rank():
    """The header has the memory of the largest rank, as the map of stages does, which uses the same plan."""
    needs("mpich")
    said = verbose("strategy.plugin=mp", 3)
    largest = re.search(r" imbalance: rank (\d+) takes ", said)[1]
    assert largest != "0"
    has_line(said, rf"\[0\] memory +{BYTES} planned on rank {largest}, .*")


@pytest.fixture(scope="module")
def tables(inputs):
    """The output of all ranks with all tables, and ranks.json."""
    needs("mpich")
    said = verbose("strategy.plugin=fsdp run.log_ranks=all --print-sharding --print-wrapping --print-batches", 3)
    return said, read_json("out/ranks.json")


def test_all_ranks(tables):
    said, report = tables
    for rank in range(3):
        prefix = rf"\[{rank}\] "
        memory = report["ranks"][rank]["after_first_step"]
        for pattern, count in [
                ("wrapping +3 of 42 modules .*", 1), ("step 3/3 .*", 1), (f"parameters on rank {rank}", 1),
                (r"--fsdp_wrap_module: model.layers.[0-2] \(LlamaDecoderLayer\) +unit model.layers.[0-2]", 3),
                ("Total modules: 42, FSDP wrapped modules: 7.14%", 1), (r"\[FSDP Mode\] Unit: .*", 4),
                (r"\[FSDP Mode\] Model Layer: .*", 29),
                (r"\[FSDP Mode\] Model: LlamaForCausalLM, Total Parameter Count: 67200, .* \(33\.\d\d%\)", 1),
                # The printed memory is that of ranks.json.
                (f"Step 1: Current memory usage: {memory['resident'] / GIB:.2f} GiB, "
                 f"Peak memory usage: {memory['resident_peak'] / GIB:.2f} GiB, .*", 1),
                (rf"Step 1: rank {rank}: Mini-batch size: 4 of the 12 .*: (\d+, ){{3}}\d+", 1)]:
            has_line(said, prefix + pattern, count)
        has_line(said, first_sequence(rf"\[0\] Step 1: rank {rank}: "))
    has_line(said, first_sequence(r"\[[12]\] Step 1: rank [12]: "), 2)
    has_line(said, r"\[1\] Step 1: rank [02].*", 0)
    has_line(said, r"\[[0-2]\] rank +planned, bytes .*")
    assert all(re.match(r"\[[012]\]", line) for line in said.splitlines())
    # The mini-batches are the sequences of the step, and the ranks have different ones.
    assert len(set(re.findall(r"^\[0\] .*1st data in mini-batch(.*)", said, re.M))) == 3
    sequences = ", ".join(re.findall(r"Mini-batch size: 4 of the 12 [^:]*: (.*)", said)).split(", ")
    assert {int(sequence) for sequence in sequences} == set(range(12))


def test_shares(tables):
    """Each line's share matches its numbers; the shards of a parameter add up to it; units, parameters and model have
    the same sums."""
    found = re.findall(r"^\[([0-2])\] \[FSDP Mode\] (Unit|Model Layer|Model): (.*), Total Parameter Count: (\d+), "
                       r"Sharded Parameter Count on device: (\d+) \((.*)%\)$", tables[0], re.M)
    rows = [(int(rank), kind, name, int(total), int(shard)) for rank, kind, name, total, shard, _ in found]
    assert [f"{100 * row[4] / row[3]:.2f}" for row in rows] == [row[5] for row in found]
    names = {row[2]: row[3] for row in rows}
    assert len(names) == 34 and len(rows) == 3 * 34
    for name, total in names.items():
        assert sum(row[4] for row in rows if row[2] == name) == total
    for rank in range(3):
        sums = [[sum(row[i] for row in rows if row[:2] == (rank, kind)) for i in (3, 4)]
                for kind in ("Unit", "Model Layer", "Model")]
        assert sums[0] == sums[1] == sums[2]


def test_log_ranks():
    needs("mpich")
    said = verbose("strategy.plugin=ddp run.log_ranks=0,2", 3)
    has_line(said, r"\[[02]\] step 3/3 .*", 2)
    has_line(said, r"\[1\].*", 0)
    assert str(train("out", "strategy.plugin=ddp run.log_ranks=all --quiet", 3)) == ""


def test_deep_model():
    """Of a deeper model the first and the last parameters are printed, and the command that prints all."""
    needs("mpich")
    make_model("deep", 40, 10, 88, 4, 521)
    words = "strategy.plugin=fsdp model.path=deep data.context=100 --print-sharding"
    said = verbose(f"{words} --print-batches", 3)
    has_line(said, r"\[0\] \.\.\. and 8 more parameters: weft plan --ranks 3 --print-sharding --rank 0 shows all")
    has_line(said, r"\[0\] \.\.\. and .* more units.*", 0)
    has_line(said, r"\[0\] Step 1: rank 0: 1st data in mini-batch: \[\d+(, \d+){63}, \.\.\.\] of \d+ ids")
    everything = lines(weft(f"plan run.ini {words} --ranks 3 --rank 0").out, " Model Layer: ")
    assert len(everything) == 38
    assert [line[4:] for line in lines(said, "[0] ", " Model Layer: ")] == everything[:15] + everything[-15:]


def test_resume():
    """A resumed run prints the report of its own first step."""
    needs("mpich")
    train("out", "strategy.plugin=mp checkpoint.every=2", 3)
    said = str(resume("out", "--verbose --print-batches strategy.plugin=mp train.steps=5", 3))
    has_line(said, r"\[0\] Step 4: all ranks: Mini-batch size: 12 of the 12 .*")
    has_line(said, first_sequence(r"\[0\] Step 4: all ranks: "))
    has_line(said, r"\[0\] Step 4: Current memory usage: .*")
    has_line(said, r"\[0\] memory .* resident after step 4, .*")
    has_line(said, r"\[0\] run .*; 2 steps, loss \d\.\d{4} -> \d\.\d{4} .*")
