"""Rounds of `weft ab`: all arms run the same steps in a round, arms may diverge in the middle, on one rank or several,
and a signal ends the rounds."""
import signal

import pytest
from harness import changed_plugin, count_lines, make_run, needs, read, says, start_weft, weft

RUN = ["run.ini", "train.global_batch=2", "device.threads=1"]
LATE = "./plugins/weft-optimizer-late.so"  # adamw that logs its instance and learning rate, diverges or hangs
ROUNDS = ["--rounds", "3", "--steps", "2", "--learn", "0"]


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_run("steps    = 50\nschedule = linear\n")
    changed_plugin("optimizer", "adamw", "late", "IN_PREPARE=diverge")


def ab(status, *arguments, **env):
    """Returns the object of --json."""
    said = weft("ab", *RUN, *arguments, "--json", status=status, env=env)
    assert said.err == ""
    return said.json


def test_all_arms_take_the_same_steps():
    """After three compared steps and one timed step, A runs three rounds of two blocks. Then each round has two blocks
    of A and one of B, all with the same steps, whose learning rates decrease."""
    ab(21, f"optimizer.plugin={LATE}", "policy.plugin=block,whole", *ROUNDS, LATE_LOG="steps")
    rates = {}
    for line in read("steps").splitlines():
        instance, rate = line.split()
        rates.setdefault(instance, []).append(rate)
    a, b = rates.values()
    assert (len(a), len(b)) == (40, 13) and a[:4] == b[:4]
    assert a[22:40] == [rate for i in range(4, 13, 3) for rate in b[i:i + 3] * 2]
    assert all(b[i] != b[i + 1] for i in range(4, 12))


def test_arm_that_diverges_in_a_round():
    """The others are measured to the end. B has made 7 updates before the second round, which starts with step 17."""
    found = ab(22, f"optimizer.plugin=adamw,{LATE},adamw", *ROUNDS, "--html", "page.html", LATE_AT=8)
    arms = found["arms"]
    assert (arms[1]["diverged"]["step"], arms[1]["outcome"], arms[2]["verdict"]) == (18, "worse", "undecided")
    assert "optimizer:late" in arms[1]["diverged"]["why"] and arms[1]["step_seconds"] is None
    assert len(arms[0]["rounds"]) == len(arms[2]["rounds"]) == 3
    found = ab(22, f"optimizer.plugin=adamw,{LATE}", *ROUNDS, "--html", "page.html", LATE_AT=8)
    assert found["arms"][1]["diverged"]["step"] == 18 and found["arms"][0]["rounds"].count(None) == 0
    assert sum(arm["rounds"].count(None) for arm in found["arms"]) == 1
    assert "<svg" in read("page.html")


def test_table_with_an_arm_that_diverges():
    said = weft("ab", *RUN, f"optimizer.plugin=adamw,{LATE},adamw", *ROUNDS, status=22, env={"LATE_AT": 8})
    for parts in (["verdict", "B", "step 18"], ["verdict", "B", "worse"], ["measured", "3 rounds of 2 steps"],
                  ["verdict", "C", "3 rounds"], ["optimizer:late"], ["beside", "B"]):
        says(said.out, *parts)
    assert said.err == ""


@pytest.mark.parametrize("update, step, rounds", [(6, 7, "no round"), (29, 18, "1 round of 2 steps")])
def test_first_arm_that_diverges(update, step, rounds):
    """In calibration and in a round: no other arm is timed."""
    said = weft("ab", *RUN, f"optimizer.plugin={LATE},adamw", *ROUNDS, "--html", "page.html", status=22,
                env={"LATE_AT": update})
    says(said.out, "verdict", "A", f"step {step}")
    says(said.out, "measured", rounds)
    if rounds == "no round":
        says(said.out, "verdict", "B", "not comparable")
        says(read("page.html"), "<h2>Measured", count=0)


def test_arm_that_diverges_during_learning():
    said = weft("ab", *RUN, f"optimizer.plugin=adamw,{LATE}", *ROUNDS[:4], "--learn", "40", status=21,
                env={"LATE_AT": 30})
    says(said.out, "learned", "B", "diverges")


def test_signal_uses_the_finished_rounds():
    process = start_weft("ab", *RUN, f"optimizer.plugin={LATE}", "--vary", "optimizer.weight_decay=0,0.1", "--within",
                         "0.001", "--json", env={"LATE_LOG": "stopped"})
    process.wait_for(lambda: count_lines("stopped") >= 8, "8 updates")
    process.signal(signal.SIGTERM)
    said = process.wait(status=[10, 11, 20, 21])
    assert said.json["stopped"] is True and "signal" in said.json["learning"]["why"]
    says(said.err, "weft: ", "stopping")


def test_time_limit_ends_a_call_that_hangs():
    said = weft("ab", *RUN, f"optimizer.plugin=adamw,{LATE}", "--steps", "1", "--learn", "0", "--minutes", "0.001",
                "plugins.call_seconds=0.5", status=1, env={"HANG_AT": 6})
    says(said.err, "weft ab: --minutes", "optimizer:late (")
    says(said.err, "in its prepare for 0.5 s", f"in arm optimizer.plugin={LATE}, in step ")
    assert said.out == ""


def test_signal_ends_a_call_that_hangs():
    process = start_weft("ab", *RUN, f"optimizer.plugin={LATE},adamw", "--minutes", "100", "plugins.call_seconds=0.5",
                         env={"HANG_AT": 2})
    process.wait_for(lambda: "in its prepare for 0.5 s" in process.err, "a warning")
    process.signal(signal.SIGTERM)
    says(process.wait(status=75).err, "weft ab: ", "signal", "optimizer:late (")


def test_arm_that_diverges_on_ranks():
    needs("mpich")
    arm = ab(22, f"optimizer.plugin=adamw,{LATE}", *ROUNDS, "--ranks", "2", "strategy.plugin=fsdp",
             "comm.plugin=mpi-mpich", LATE_AT=8)["arms"][1]
    assert (arm["diverged"]["step"], arm["outcome"]) == (18, "worse")
