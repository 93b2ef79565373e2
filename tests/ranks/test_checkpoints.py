"""Complete runs on several ranks: files with the same bytes for any number of ranks; a run that is killed, stopped and
resumed on fewer ranks; and errors of one rank, reported once."""
import fcntl
import os
import pathlib
import shutil
import signal

import pytest
from harness import (BUILD, FAILS, FULL, WEFT, changed_plugin, checkpoints, launcher, make_model, make_run, needs,
                     read, records, run, same_tensors, says, start, weft, write)

STATE = BUILD / "tests/rank_state"
SHORT = "train.steps=3 eval.every=none checkpoint.every=3"
MIXED = ("model.path=mixed model.start=weights checkpoint.dtype=fp32 train.trainable=model.layers.*.mlp.*,"
         "model.layers.1.self_attn.q_proj.weight,model.norm.weight")
ROOT = "strategy.plugin=fsdp strategy.root=replicated"
STRATEGIES = {  # settings: ranks and strategies, whose bytes are those of one rank; the quick suite takes the first
    "": ["4 strategy.plugin=fsdp", "3 strategy.plugin=ddp",
         "4 strategy.plugin=fsdp strategy.shard=hybrid strategy.shard_group=2",
         f"4 {ROOT} strategy.prefetch=2", f"4 {ROOT} strategy.shard=hybrid strategy.shard_group=2",
         "3 strategy.plugin=mp strategy.schedule=1f1b"],
    # Masters of all parameters, where frozen ones would lose bits in the saved dtype.
    "checkpoint.dtype=bf16 train.trainable=last:1": [
        "4 strategy.plugin=fsdp strategy.shard=optimizer", "3 strategy.plugin=fsdp", f"3 {ROOT}",
        "2 strategy.plugin=mp"],
    "train.precision=bf16": [f"3 {ROOT}"],
    # A unit with parameters of two dtypes, frozen and trained ones.
    MIXED: ["3 strategy.plugin=ddp", "4 strategy.plugin=fsdp", "3 strategy.plugin=fsdp strategy.shard=optimizer",
            f"4 {ROOT}", "2 strategy.plugin=mp"]}


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch, plugin_path):
    needs("mpich")
    changed_plugin("optimizer", "adamw", "adamw", "IN_PREPARE=hold")
    make_run("steps = 100\nclip  = 1.0\n[eval]\nevery = 10\n[optimizer]\nplugin = adamw\nlr     = 1e-3\n"
             "[checkpoint]\nevery = 10\nkeep  = 99\n[device]\nthreads = 1\n")
    train(1, "single")
    shutil.copytree("single/model", "mixed", ignore=shutil.ignore_patterns("*.safetensors"))
    run(BUILD / "tests/rank_mix", "single/model/model.safetensors", "mixed/model.safetensors")


def train(ranks, out, words="", **options):
    """Trains on that many ranks."""
    where = [] if ranks == 1 else ["--ranks", ranks, "comm.plugin=mpi-mpich"]
    return weft("train run.ini", f"run.out={out}", *where, *words.split(), **options)


def refused(facts, ranks, out, words):
    """The run fails, and exactly one line has the facts."""
    says(train(ranks, out, words, status=FAILS), *facts, count=1)


@pytest.mark.parametrize("settings", STRATEGIES)
def test_same_bytes(settings):
    shutil.rmtree("one", ignore_errors=True)
    train(1, "one", f"{SHORT} {settings}")
    for row in STRATEGIES[settings][:None if FULL else 1]:
        shutil.rmtree("many", ignore_errors=True)
        ranks, _, strategy = row.partition(" ")
        train(int(ranks), "many", f"{SHORT} {strategy} {settings}")
        same_tensors("one", "many")


def start_ranks(scratch, ranks, step, words):
    """Starts ranks with the launcher, which block in that step; rank R's process is in the file process.R."""
    return start(*launcher("mpich", ranks), "sh", "-c", 'echo $$ >process.$PMI_RANK; exec "$@"', "sh", WEFT, "train",
                 "run.ini", "run.out=run", "comm.plugin=mpi-mpich", "train.steps=400", *words.split(),
                 env={"HOLD_AT": step, "HOLD_UNTIL": scratch / "go"})


@pytest.fixture(scope="module")
def resumed(scratch, inputs):
    """A run on 4 ranks, which are killed, on 2, which are stopped, and on one. Returns the outputs of the last two."""
    process = start_ranks(scratch, 4, 12, "strategy.plugin=fsdp")
    process.wait_for(pathlib.Path("run/checkpoints/step-10").exists, "step-10")
    for rank in range(4):
        try:
            os.kill(int(pathlib.Path(f"process.{rank}").read_text()), signal.SIGKILL)
        except ProcessLookupError:  # when one is killed, the launcher may kill the others first
            pass
    process.wait(range(1, 256))
    assert checkpoints("run") == ["step-10"]
    process = start_ranks(scratch, 2, 25, "strategy.plugin=ddp --resume")
    process.wait_for(pathlib.Path("run/checkpoints/step-20").exists, "step-20")
    os.kill(int(pathlib.Path("process.1").read_text()), signal.SIGTERM)
    write("go", "")
    two = process.wait(75)
    assert int(checkpoints("run")[-1].removeprefix("step-")) < 100
    return two, train(1, "run", "--resume")


def test_resume_on_fewer_ranks(resumed):
    says(resumed[0], "stopped by a signal", count=1)
    says(resumed[0], "resumed from", count=1)
    for name in "model", "checkpoints/step-10", "checkpoints/step-20", "checkpoints/step-100":
        same_tensors(f"single/{name}", f"run/{name}")
    single, run_ = ([(record["step"], record["loss"]) for record in records(f"{out}/evaluations.jsonl")]
                    for out in ("single", "run"))
    assert single and single == run_


def test_strategy_that_is_not_deterministic(resumed):
    """It is reported, and recorded in the checkpoint."""
    said = train(2, "fast", "strategy.plugin=ddp strategy.reduce=fast train.steps=2 checkpoint.every=2")
    says(said, "not deterministic", count=1)
    for saved, covered in ("fast/checkpoints/step-2", "not covered"), ("run/checkpoints/step-100", "covered"):
        says(read(f"{saved}/state/run.json"), f'"the contract of equal bits": "{covered}')


@pytest.mark.parametrize("facts, ranks, words", [
    (["[run] out = ", "/run ", "config.ini"], 3, "strategy.plugin=fsdp"),
    (["[train] global_batch", " 6", " 12"], 3, "strategy.plugin=fsdp train.global_batch=6 --resume")])
def test_directory_of_a_run(resumed, facts, ranks, words):
    refused(facts, ranks, "run", words)


def test_directory_in_use():
    with open(write("locked/.lock", ""), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(["locked", "in use"], 2, "locked", "strategy.plugin=ddp")


def test_checkpoint_that_cannot_be_saved():
    write("blocked/checkpoints", "")
    write("blocked/.lock", "weft run\n")
    refused(["checkpoints/step-10", "could not be saved"], 2, "blocked", "strategy.plugin=ddp --resume")


def test_model_without_weights():
    shutil.copytree("single/model", "part")
    os.unlink("part/model.safetensors")
    refused(["part: ", "model.safetensors"], 2, "new", "strategy.plugin=fsdp model.path=part model.start=weights")


@pytest.mark.parametrize("ranks, strategy", [(3, "fsdp"), (2, "mp")])
def test_number_that_is_not_finite(ranks, strategy):
    """Detected by any ranks, reported by one."""
    refused(["the loss is not finite"], ranks, f"not-finite-{strategy}",
            f"strategy.plugin={strategy} optimizer.lr=1e30")


def test_damaged_checkpoint(resumed):
    """The previous checkpoint is used, whichever rank detects it."""
    shutil.copytree("run", "damaged", symlinks=True)
    shutil.rmtree("damaged/model")
    file = pathlib.Path("damaged/checkpoints/step-100/state/exp_avg.safetensors")
    content = bytearray(file.read_bytes())
    content[20000] = ord("x")
    file.write_bytes(content)
    said = train(3, "damaged", "strategy.plugin=fsdp --resume")
    says(said, "step-100 is skipped: ", count=1)
    says(said, "exp_avg", count=1)
    same_tensors("single/model", "damaged/model")
    shutil.rmtree("damaged/model")
    for name in checkpoints("damaged"):
        os.unlink(f"damaged/checkpoints/{name}/state/exp_avg.safetensors")
    refused(["no complete checkpoint"], 2, "damaged", "strategy.plugin=ddp --resume")


def state(ranks, directory, steps, words):
    """Returns the words that each rank writes: the hash of the run's state, and KiB by which it grows in a save."""
    os.mkdir(directory)
    run(*(launcher("mpich", ranks) if ranks > 1 else []), STATE, directory, steps, "run.ini", *words.split(),
        *(["comm.plugin=mpi-mpich"] if ranks > 1 else []))
    return [path.read_text().split() for path in sorted(pathlib.Path(directory).glob("rank.*"))]


def test_hash_of_the_state():
    ((lone, *_),) = state(1, "lone", 2, "")
    for ranks, strategy in (4, "fsdp"), (3, "ddp"):
        assert [words[0] for words in state(ranks, strategy, 2, f"strategy.plugin={strategy}")] == [lone] * ranks
    same_tensors("lone/step-2", "fsdp/step-2")


def test_memory_of_a_save():
    """Three files of 60 MiB each: a rank that gathered one of them would exceed the permitted growth."""
    make_model("big", 384, 96, 88, 3, 38000)
    found = state(4, "wide", 0, "model.path=big strategy.plugin=fsdp")
    for file in "model.safetensors", "state/exp_avg.safetensors":
        assert os.path.getsize(f"wide/step-0/{file}") > 60000000
    assert len(found) == 4 and all(int(words[1]) <= 24576 for words in found)
