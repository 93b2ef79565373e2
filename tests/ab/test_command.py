"""`weft ab`: arms from a list and from files, required common settings, the first difference of numbers, learning,
verdicts with a certain result on any machine, and the exit status."""
import re

import pytest
from harness import FULL, changed_plugin, full_only, make_model, make_run, needs, read, records, says, weft, write

ONE = ["--rounds", "1", "--steps", "1"]


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_run("steps = 50\n[optimizer]\nplugin = sgd\nlr     = 0.01\n")
    make_model("large", 200, 50, 800, 4, 521)
    write("large.ini", read("run.ini").replace("= model\n", "= large\n"))
    write("blind.ini", re.sub("(?m)^validation.*\n", "", read("run.ini")))


def ab(status, *arguments, threads=1):
    """One thread: several on two shared processors have unpredictable times."""
    return weft("ab", "train.global_batch=2", f"device.threads={threads}", *arguments, status=status)


def arms(status, *arguments):
    """Returns the object of --json, and the second arm in it."""
    said = ab(status, *arguments, "--json")
    assert said.err == ""
    return said.json, said.json["arms"][1]


def test_one_round_decides_no_verdict(scratch):
    found, arm = arms(21, "run.ini", "large.ini", *ONE, "--learn", "1")
    assert (arm["verdict"], found["winner"]) == ("undecided", None)
    assert not (scratch / "out").exists()


@pytest.mark.parametrize("reason, arguments", [
    ("--learn", ["run.ini", "large.ini", "--learn", "0"]),
    ("[data] validation", ["blind.ini", "--vary", "optimizer.lr=0.01,0.02"])])
def test_arms_with_unknown_learning_are_not_comparable(reason, arguments):
    assert arms(20, *arguments, *ONE)[1]["outcome"] == "not comparable"
    says(ab(20, *arguments, *ONE).out, reason)


@full_only
@pytest.mark.parametrize("pair, status, verdict", [("no,yes", 10, "slower"), ("yes,no", 11, "faster")])
def test_large_difference(pair, status, verdict):
    arm = arms(status, "large.ini", "--vary", f"train.activation_checkpointing={pair}", "--minutes", "10", "--steps",
               "3")[1]
    assert arm["verdict"] == verdict and arm["numbers"]["same_bits"] and arm["numbers"]["steps"] == 3


def test_list_of_plugins():
    found, arm = arms(21, "run.ini", "policy.plugin=block,whole", *ONE)
    assert [arm["arm"] for arm in found["arms"]] == ["policy.plugin=block", "policy.plugin=whole"]
    assert arm["numbers"]["same_bits"] and arm["numbers"]["steps"] == 3 and arm["verdict"] == "undecided"
    assert arm["differs"]["keys"] == [{"name": "policy.plugin", "a": "block", "b": "whole"}]
    assert {"name": "instructions REDUCE", "a": 8, "b": 2} in arm["differs"]["numbers"]
    assert "REDUCE model.layers.2 rank micro-batch 0" in arm["programs"]
    assert "BACKWARD layers.1.mlp micro-batch 0" in arm["programs"]


def test_table():
    said = ab(21, "run.ini", "policy.plugin=block,whole", *ONE)
    for parts in (["A ", "policy.plugin=block"], ["B ", "policy.plugin=whole"], ["memory +"],
                  ["verdict", "B", "--rounds"],
                  [re.compile("^policy.plugin  *block  *whole$")], [re.compile("^instructions REDUCE  *8  *2 ")],
                  ["programs", "REDUCE model.layers.2 rank micro-batch 0", "BACKWARD layers.1.mlp micro-batch 0"]):
        says(said.out, *parts)
    says(said.out, "no effect", count=0)  # a policy is expected to have none on the numbers
    says(ab(21, "run.ini", "policy.plugin=block,whole", "--minutes", "0.00001", "--steps", "1").out, "verdict",
         "--minutes")


@pytest.mark.parametrize("status, arguments, numbers", [
    (21, ["--vary", "train.activation_checkpointing=no,yes"], {"same_bits": True, "steps": 3}),
    (21, ["optimizer.plugin=sgd,adamw"], {"comparable": False}),
    (20, ["--vary", "run.seed=1,2", "--learn", "0"], {"same_bits": False, "step": 0}),
    (21, ["--vary", "train.precision=fp32,bf16", "--learn", "1"],
     {"same_bits": False, "step": 1, "micro-batch": 0, "first": "its loss", "promised": False}),
    (21, ["--vary", "optimizer.momentum=0.9,0.5", "--learn", "1"],
     {"comparable": True, "same_bits": False, "step": 2})])
def test_numbers(status, arguments, numbers):
    found = arms(status, "run.ini", *arguments, *ONE)[1]["numbers"]
    assert numbers.items() <= found.items()


def test_update_of_equal_gradients():
    numbers = arms(21, "run.ini", "--vary", "strategy.reduce=ordered,tree", *ONE, "--learn", "0",
                   "train.global_batch=6")[1]["numbers"]
    assert (numbers["step"], numbers["micro-batch"]) == (1, None) and numbers["unit"]
    assert "equal gradients" in numbers["first"] and not numbers["same_bits"] and numbers["promised"] is False


def test_key_without_effect():
    said = ab(21, "run.ini", "--vary", "optimizer.weight_decay=0,1e-12", *ONE)
    says(said.out, "numbers", "optimizer.weight_decay", "no effect")


def test_undetectable_difference(scratch):
    arm = arms(21, "run.ini", "--vary", "optimizer.weight_decay=0,1e-9", "--rounds", "8", "--steps", "1", "--within",
               "0.0001", "--learn", "2", "--html", "within.html")[1]
    assert (arm["outcome"], arm["verdict"]) == ("undecided", "undecided")
    says(read("within.html"), "time of B relative to A", "undecided")


def test_difference_within_the_margin():
    said = ab(0, "run.ini", "run.ini", "--rounds", "8", "--steps", "1", "--within", "100000")
    says(said.out, "verdict", "no difference")
    assert said.err == ""


def test_arm_that_diverges():
    found, arm = arms(22, "run.ini", "--vary", "optimizer.lr=0.01,1e30,0.02", "--rounds", "3", "--steps", "2",
                      "--learn", "2", "--html", "page.html")
    assert (arm["diverged"]["step"], arm["outcome"]) == (2, "worse")
    assert found["arms"][2]["verdict"] == "undecided" and len(found["arms"][2]["rounds"]) == 3
    found, arm = arms(22, "run.ini", "--vary", "optimizer.lr=1e30,0.01", "--rounds", "3", "--steps", "2", "--learn",
                      "0")
    assert (found["winner"], found["arms"][0]["diverged"]["step"]) == (None, 2)


def test_arm_that_learns_more():
    arguments = ["run.ini", "--vary", "optimizer.lr=0.0001,0.1", "--rounds", "8", "--steps", "1", "--within", "100000"]
    said = ab(11, *arguments, "--learn", "20", "--html", "page.html")
    says(said.out, "learned", "B", "more")
    says(said.out, "verdict", "B", "better")
    page = read("page.html")
    for part in "<svg", "<h3>What was known", "<h3>Loss beside A", "optimizer.lr=0.1":
        says(page, part)


def test_arm_that_learns_less():
    found, arm = arms(10, "run.ini", "--vary", "optimizer.lr=0.1,0.0001", "--rounds", "8", "--steps", "1", "--learn",
                      "20", "--seeds", "3", "--within", "100000")
    assert (arm["learned"]["verdict"], arm["outcome"], found["learning"]["seeds"]) == ("learns less", "worse", 3)
    assert arm["numbers"]["unit"] == "root" and arm["numbers"]["promised"] is False


def test_learned_loss_is_that_of_train():
    found = arms(21, "run.ini", "--vary", "optimizer.lr=0.1,0.0001", *ONE, "--learn", "20")[0]
    weft("train", "run.ini", "optimizer.lr=0.1", "train.global_batch=2", "train.steps=20", "eval.every=20",
         "device.threads=1", "run.out=trained", "--quiet")
    trained = records("trained/evaluations.jsonl")[-1]["loss"]
    assert found["arms"][0]["learned"]["loss"] == pytest.approx(trained, rel=1e-10)


@pytest.mark.parametrize("status, arguments, facts", [
    (2, ["run.ini", "optimizer.lr=0.01,0.02"], ["--vary optimizer.lr=0.01,0.02"]),
    (2, ["run.ini"], ["arms"]),
    (2, ["run.ini", "policy.plugin=block,whole", "strategy.plugin=single,ddp"], ["policy.plugin", "strategy.plugin"]),
    (2, ["run.ini", "run.ini", "policy.plugin=block,whole"], ["policy.plugin", "run.ini"]),
    (2, ["run.ini", "--vary", "train.micro_batch=1"], ["train.micro_batch=1", "Allowed:"]),
    (2, ["run.ini", "--vary", "run.seed=1,2,3,4,5,6,7,8,9"], ["8 arms"]),
    (2, ["run.ini", "policy.plugin=block,"], ["policy.plugin=block,", "empty"]),
    (2, ["run.ini", "policy.plugin=,block"], ["policy.plugin=,block", "empty"]),
    (2, ["run.ini", "policy.plugin=block,,whole"], ["policy.plugin=block,,whole", "empty"]),
    (1, ["run.ini", "policy.plugin=block,whole", "--html", "nowhere/page.html"], ["nowhere/page.html"]),
    (1, ["run.ini", "policy.plugin=block,whole", "--html", "."], ["--html", " . ", "directory"]),
    (1, ["run.ini", "policy.plugin=block,blok", *ONE], ["blok"])])
def test_error(status, arguments, facts):
    said = ab(status, *arguments)
    says(said.err, *facts)
    assert said.out == ""  # an error is found before the rounds


def test_common_settings():
    said = ab(1, "run.ini", "--vary", "device.threads=1,2", *ONE, threads=2)
    says(said.err, "[device] threads = 1", "[device] threads = 2")


@pytest.mark.parametrize("id, slot", [("crash", "prepare"), ("leave", "create")])
def test_plugin_that_ends_the_process(plugin_path, id, slot):
    file = changed_plugin("optimizer", "sgd", id, f"IN_{slot.upper()}={id}")
    said = weft("ab", "run.ini", "--vary", f"optimizer.plugin=sgd,{id}", *ONE, "--learn", "0", status=range(1, 256))
    says(said.err, f"arm optimizer.plugin={id}")
    if id == "leave":
        says(said.err, f"optimizer:leave ({file})", "create", f"arm optimizer.plugin={id}")


def test_ranks():
    needs("mpich")
    ranks = ["--ranks", "2", "comm.plugin=mpi-mpich"]
    if FULL:
        assert arms(10, "large.ini", "--vary", "train.activation_checkpointing=no,yes", *ranks, "--minutes", "10",
                    "--steps", "3", "strategy.plugin=fsdp")[1]["verdict"] == "slower"
    said = ab(21, "run.ini", "strategy.plugin=ddp,fsdp", *ranks, *ONE, "--json")
    numbers = said.json["arms"][1]["numbers"]
    assert numbers["same_bits"] and numbers["steps"] == 3 and said.err == ""
    # Results of several ranks differ at the same point as those of one rank.
    arm = arms(21, "run.ini", "--vary", "train.precision=fp32,bf16", *ranks, *ONE, "strategy.plugin=fsdp", "--learn",
               "1")[1]
    assert {"step": 1, "micro-batch": 0, "first": "its loss"}.items() <= arm["numbers"].items()
    assert arm["learned"]["loss"] > 0
