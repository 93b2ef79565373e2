"""`weft plan --time` measures the available ranks and predicts their step; `--rates` predicts for others. A run reports
the overlapped share of its communication. The benchmarks measure the accuracy of predictions, not this test."""
import copy
import re

import pytest
from harness import make_run, needs, plan, read_json, refused, says, train, weft, write_json


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        make_run("steps = 3\n[optimizer]\nplugin = adamw\nlr = 1e-3\n[device]\nthreads = 1\n")
        yield


def is_sound(predicted, ranks):
    """Every rank computes, within a step of positive duration, and overlaps are fractions."""
    times = predicted["time"]
    step = times["step_seconds"]
    assert len(times["ranks"]) == ranks
    for rank in times["ranks"]:
        assert 0 < rank["compute"] <= step * 1.000001
        assert 0 <= rank["exposed"] <= step and 0 <= rank["idle"] <= step
        for kind in "reduce_hidden", "gather_hidden":
            assert rank[kind] is None or -1e-9 <= rank[kind] <= 100


def measure(words, ranks=1):
    predicted = plan(f"{words} --time", ranks)
    is_sound(predicted, ranks)
    return predicted


def priced(measured, element, exchange):
    """Writes rates that can be summed by hand: a forward takes 1 s and a backward 2 s; ELEMENT seconds to copy an
    element, twice that to add one, 4 times to square and 8 times to update one; EXCHANGE seconds per communication."""
    rates = copy.deepcopy(measured["rates"])
    for segment in rates["segments"]:
        segment["forward"], segment["backward"] = [1.0, 1.0], [2.0, 2.0]
    prices = {"copy": element, "add": 2 * element, "squares": 4 * element, "update": 8 * element, "convert": 0.0}
    rates["seconds_per_element"] = {name: [float(price)] * 2 for name, price in prices.items()}
    rates["exchanges"] = {name: [[size, float(exchange)] for size, _ in pairs]
                          for name, pairs in rates["exchanges"].items()}
    write_json("priced.json", {"rates": rates})


def predict(words, ranks=1):
    """Returns the prediction by priced.json, and rank 0's number of instructions by kind."""
    kinds = [re.match(r"\w+", row["instruction"])[0] for row in plan(f"{words} --print-program", ranks)["program"]]
    return plan(f"{words} --rates priced.json", ranks), {kind: kinds.count(kind) for kind in
                                                          ("FORWARD", "BACKWARD", "REDUCE", "GATHER")}


def near(wanted, found):
    assert wanted > 0 and found == pytest.approx(wanted, rel=1e-6)


@pytest.fixture(scope="module")
def one(inputs):
    """Rates of one rank, in one.json."""
    measured = measure("strategy.plugin=single")
    write_json("one.json", measured)
    return measured


@pytest.fixture(scope="module")
def two(inputs):
    """Rates of two ranks, in two.json."""
    needs("mpich")
    measured = measure("strategy.plugin=ddp", 2)
    write_json("two.json", measured)
    return measured


def test_one_rank(one):
    """It needs no communicator. The same rates give the same time; recomputation takes time."""
    assert one["rates"]["exchanges"] == {}
    again = plan("--rates one.json")
    is_sound(again, 1)
    assert again["time"]["step_seconds"] == one["time"]["step_seconds"]
    recomputing = plan("--rates one.json train.activation_checkpointing=yes")
    assert recomputing["time"]["step_seconds"] > one["time"]["step_seconds"]
    priced(one, 0.001, 1000)
    predicted, n = predict("")
    assert n["BACKWARD"] == 96  # 12 micro-batches of 8 segments
    padded = predicted["trained"] + predicted["layout"]["padding_bytes"] / 4
    near(n["FORWARD"] + 2 * n["BACKWARD"] + padded * (0.001 + 11 * 0.002 + 0.004) + predicted["trained"] * 0.008,
         predicted["time"]["step_seconds"])
    near(predicted["time"]["step_seconds"], predicted["time"]["ranks"][0]["compute"])


@pytest.mark.parametrize("words, facts", [
    ("--time --rates one.json", ["--time", "--rates"]),
    ("strategy.plugin=ddp --ranks 4 --nodes 2 --time", ["--nodes"]),
    ("--rates one.json --diff run.ini", ["--rates"]),
    ("--rates one.json train.micro_batch=2", ["one.json", "2 x 32", "fp32"]),
    ("--rates one.json optimizer.plugin=sgd", ["one.json", "1 x 32", "fp32", "sgd", "trainable = all"]),
    ("--rates one.json train.trainable=last:1", ["one.json", "trainable = last:1"]),
    ("--rates one.json device.threads=2", ["one.json", "threads = 2"]),
    ("--rates one.json train.precision=bf16", ["one.json", "bf16"]),
    ("strategy.plugin=ddp --ranks 2 --rates one.json", ["one.json", "one rank"]),
    ("--rates there.json", ["there.json"]),
    ("--rates half.json", ["half.json", "`rates`"]),
    ("--rates other.json", ["other.json", "segments"])])
def test_errors(one, words, facts):
    write_json("half.json", {"rates": {"ranks": 1}})
    other = copy.deepcopy(one)
    next(row for row in other["rates"]["segments"] if row["name"] == "layers.2.mlp")["name"] = "layers.9.mlp"
    write_json("other.json", other)
    refused("plan run.ini", *words.split(), says=facts)


def test_data_parallel(two):
    """Each of two ranks has half of the micro-batches, sums half of the numbers and updates all. It waits only for its
    communication: that of its instructions, and the losses, which are sent with the norm."""
    priced(two, 0.001, 1000)
    predicted, n = predict("strategy.plugin=ddp", 2)
    assert n["BACKWARD"] == 48  # 6 micro-batches of 8 segments
    trained = predicted["trained"]
    shared = trained + predicted["ranks"][0]["padding_bytes"] / 4  # with padding for two shards
    padded = trained + predicted["layout"]["padding_bytes"] / 4
    for rank in predicted["time"]["ranks"]:
        near(n["FORWARD"] + 2 * n["BACKWARD"] + shared / 2 * (0.001 + 11 * 0.002) + padded * 0.004 + trained * 0.008,
             rank["compute"])
        near(1000 * (n["REDUCE"] + n["GATHER"] + 1), rank["exposed"])
    near(rank["compute"] + rank["exposed"], predicted["time"]["step_seconds"])


def test_model_parallel(two):
    """Under naive one of two ranks works at a time, while the other is idle."""
    priced(two, 0, 0)
    first, second = predict("strategy.plugin=mp strategy.schedule=naive", 2)[0]["time"]["ranks"]
    near(first["compute"] + second["compute"], first["idle"] + second["idle"])


@pytest.mark.parametrize("words", ["strategy.plugin=fsdp", "strategy.plugin=mp strategy.schedule=gpipe",
                                   "strategy.plugin=fsdp train.precision=bf16 strategy.reduce_dtype=bf16"])
def test_measurement(words):
    needs("mpich")
    measure(words, 2)


def test_other_ranks(two):
    """Predictions for more ranks and machines say what they assume."""
    six = weft("plan run.ini strategy.plugin=fsdp --ranks 6 --nodes 3 --rates two.json --json").json
    is_sound(six, 6)
    assert any("between machines" in text for text in six["time"]["assumed"])
    says(weft("plan run.ini strategy.plugin=ddp train.global_batch=120 --ranks 60 --rates two.json").out, "evenly")


@pytest.mark.parametrize("strategy, kind, least, most", [
    ("ddp", "reduce", 0.001, 100), ("ddp", "gather", 0, 0), ("fsdp", "gather", 0.001, 100),
    ("fsdp strategy.prefetch=0", "gather", 0, 0), ("mp", "reduce", 0, 0)])
def test_overlap(strategy, kind, least, most):
    """A run's report has the share of its communication that computation hides, on every rank."""
    needs("mpich")
    says(train("out", f"strategy.plugin={strategy}", 2), "reduce hidden", "gather hidden")
    for rank in read_json("out/ranks.json")["ranks"]:
        assert least <= rank["seconds"][kind]["hidden"] <= most
