"""A slow plugin call is reported while it runs, with plugin, slot and rank, and the run continues: slots of the
optimizer, its body in the device, one rank of two, the tokenizer, also in a thread of the data plugin. No report with
[plugins] call_seconds = 0 or fast calls."""
import os

import pytest
from harness import ANY, changed_plugin, make_run, needs, says, weft, write


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_run("steps = 3\n[optimizer]\nlr = 0.01\n[plugins]\ncall_seconds = 0.4\n[device]\nthreads = 1\n")
    weft("plugins new tokenizer my-tokenizer")


@pytest.fixture(scope="module")
def slow(inputs):
    """sgd whose prepare takes 1.5 s in update 2, of ranks on rank 1."""
    return changed_plugin("optimizer", "sgd", "slow", "IN_PREPARE=rest")


def train(plugin, *arguments, milliseconds=700, **env):
    return weft("train run.ini --overwrite", f"optimizer.plugin={plugin}", *arguments,
                env={"SLEEP_MS": milliseconds, **env})


def prepare(file):
    return f"weft: warning: optimizer:slow ({file}) has been in its prepare for 0.4 s, in training, in step 2, at "


def test_one_rank(slow):
    said = train(slow, milliseconds=1500)
    says(said, prepare(slow), ", STEP, ", "[plugins] call_seconds", count=1)


@pytest.mark.parametrize("plugin, seconds", [("slow", 0), ("sgd", 20)])
def test_no_report(slow, plugin, seconds):
    said = train(slow if plugin == "slow" else "sgd", f"plugins.call_seconds={seconds}", milliseconds=1500)
    says(said, "has been in its", count=0)


def test_one_rank_of_two(slow):
    needs("mpich")
    said = train(slow, "strategy.plugin=fsdp", "--ranks", "2", "comm.plugin=mpi-mpich", milliseconds=1500, SLEEP_RANK=1)
    says(said, "has been in its prepare", count=1)
    says(said, f"[1] {prepare(slow)}")


@pytest.mark.parametrize("slot, owner", [("update", " of optimizer:{id} ({file})"), ("destroy", "")])
def test_slot_of_the_optimizer(slot, owner):
    """A body that is slow in each step is reported once, with both plugins that run it; so is a slot after the run."""
    file = changed_plugin("optimizer", "sgd", slot, f"IN_{slot.upper()}=rest")
    said = train(file, "policy.plugin=whole")
    says(said, f"optimizer:{slot} ({file}) ", f"has been in its {slot}{owner.format(id=slot, file=file)} for 0.4 s",
         count=1)


@pytest.mark.parametrize("command", ["data show run.ini -n 1", "generate run.ini --prompt a --tokens 1"])
@pytest.mark.parametrize("slot", ["info", "destroy"])
def test_slot_of_the_tokenizer(scratch, slot, command):
    file = changed_plugin("tokenizer", scratch / "my-tokenizer/my_tokenizer.c", "my-tokenizer",
                          f"SLEEP_IN_{slot.upper()}", to=slot)
    said = weft(command, f"tokenizer.plugin={file}", status=ANY, env={"SLEEP_MS": 700})
    says(said, f"({file}) has been in its {slot} for 0.4 s")


@pytest.mark.skipif(os.cpu_count() == 1, reason="a tokenizer in two threads, on one processor")
def test_thread_of_the_data_plugin(scratch):
    """The main thread waits for it, and its create is not reported, although the thread encodes more texts. Each of two
    threads encodes 3,277 lines."""
    file = changed_plugin("tokenizer", scratch / "my-tokenizer/my_tokenizer.c", "my-tokenizer", "SLOW_THREAD",
                          to="thread")
    write("long.txt", "One line of a text.\n" * 6554)
    said = weft("train run.ini --overwrite data.path=long.txt train.steps=1 plugins.call_seconds=1",
                f"tokenizer.plugin={file}")
    says(said, f"weft: warning: tokenizer:my-tokenizer ({file}) has been in its encode for 1 s", count=1)
    says(said, "has been in its create", count=0)
