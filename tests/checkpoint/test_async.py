"""Asynchronous checkpoints, on a disk that blocks a save until the test releases it: same bytes as synchronous ones,
steps during a save, a kill and a signal in the middle, a full disk, and the same with four ranks."""
import os
import pathlib
import re
import shutil
import signal
import time

import pytest
from harness import (BUILD, CC, FULL, SOURCE, WEFT, count_lines, eval_loss, hashes, make_model, make_text, needs, read,
                     read_json, records, refused, run, says, start_weft, weft, write, write_ini)

KEPT = {"config.ini", "run.json", "manifest.json"}  # files that differ between runs
STATE = ["step", "updates", "tokens", "eval_loss", "best_loss", "best_step", "masters"]
MIXED = "optimizer.plugin=anyprecision optimizer.momentum_dtype=fp32 optimizer.variance_dtype=bf16"  # of two sizes
FOUR = "--ranks 4 comm.plugin=mpi-mpich strategy.plugin="


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    """place saves synchronously, beside asynchronously."""
    make_model("model", 16, 4, 24, 1, 512)
    make_text(40)
    write_ini("run.ini", model="plugin=llama path=model start=fresh",
              data="path=games.txt document=line context=32 validation=4",
              train="steps=10 global_batch=4 micro_batch=1", eval="every=2", optimizer="plugin=adamw",
              device="threads=1", checkpoint="every=4 keep=9")
    with pytest.MonkeyPatch.context() as patch:  # a process cannot be traced two times
        options = os.environ.get("ASAN_OPTIONS")
        patch.setenv("ASAN_OPTIONS", (options + ":" if options else "") + "verify_asan_link_order=0:detect_leaks=0")
        train("place", "checkpoint.async=no")
        train("beside", "checkpoint.async=yes")
        yield


def train(out, words=""):
    weft(f"train run.ini run.out={out} --quiet {words}")


def plan(words):
    return weft(f"plan run.ini run.out=said {words}")


def losses(out):
    """Values of its steps and evaluations."""
    return [[(record["step"], record["loss"], record.get("grad_norm"), record["tokens"])
             for record in records(f"{out}/{file}.jsonl")] for file in ("metrics", "evaluations")]


def results(out):
    """What does not depend on the run: hashes of its checkpoint and model files, of the tensors in manifests; entries
    of states except keys and times; losses."""
    files = {name: hash for name, hash in hashes(out).items() if re.match("(checkpoints/step-|model/)", name)
             and pathlib.Path(name).name not in KEPT}
    for step in 4, 8, 10:
        at = f"{out}/checkpoints/step-{step}"
        files[at[len(out):]] = [*re.findall('"(?!sha256")[^"]*": *"[0-9a-f]{64}"', read(f"{at}/manifest.json")), *(
            read_json(f"{at}/state/run.json").get(key) for key in STATE)]
    assert len(files) > 15
    return files, losses(out)


def same(a, b):
    (files, steps), (others, other_steps) = results(a), results(b)
    assert {name for name in files.keys() | others.keys() if files.get(name) != others.get(name)} == set()
    assert steps == other_steps


# ---- weights in several files: same run, resume and model


def test_weights_in_several_files():
    shards = "checkpoint.max_shard=0.00001"
    train("many", f"{shards} train.steps=8")
    train("many", f"{shards} --resume")
    model = pathlib.Path("many/model")
    assert not os.path.exists("place/model/model.safetensors.index.json")
    files = sorted(model.glob("model-*"))
    n = len(files)
    assert n > 1 and [file.name for file in files] == [
        f"model-{i:05}-of-{n:05}.safetensors" for i in range(1, n + 1)] and not (model / "model.safetensors").exists()
    index = read(model / "model.safetensors.index.json")
    assert all(file.name in index and file.stat().st_size < 40000 for file in files)  # a shard and a table
    assert eval_loss("many") == pytest.approx(eval_loss("place"), abs=1e-12)
    assert losses("many") == losses("place")
    refused("train run.ini run.out=never checkpoint.max_shard=0", says="[checkpoint] max_shard")


# ---- same bytes, and messages


@pytest.mark.parametrize("words", ["", "checkpoint.dtype=bf16 train.trainable=last:1", MIXED])
def test_bytes(words):
    a, b = ("place", "beside")
    if words:
        a, b = (f"{out}.{len(words)}" for out in (a, b))
        train(a, f"checkpoint.async=no {words}")
        train(b, f"checkpoint.async=yes {words}")
    same(a, b)
    assert os.path.exists(f"{b}/checkpoints/step-4/state/master.safetensors") == ("bf16 train" in words)


def test_records_of_saves():
    """Nothing runs beside the last two: the last step's, and the model."""
    saves = records("beside/checkpoints.jsonl")
    assert [save["beside"] > 0 for save in saves] == [True, True, False, False]
    assert all(save["took"] > 0 for save in saves)


def test_plan():
    """It names the way of saving. Planned memory is exact: three numbers per trained parameter."""
    for words, wanted in ("", "syn"), ("checkpoint.async=no", "syn"), ("checkpoint.async=yes", "asyn"):
        says(plan(words), re.compile(f"^saving +{wanted}chronous"))
    says(plan("checkpoint.async=yes checkpoint.every=10"), re.compile("^saving"), count=0)
    without, planned = (plan(f"--json checkpoint.async={word}").json for word in ("no", "yes"))
    copy, trained = planned["saving"]["bytes"], planned["trained"]
    assert planned["memory"]["total"] - without["memory"]["total"] == copy
    assert 12 * trained <= copy < 13 * trained + 2048
    assert records("beside/phases.jsonl")[0]["ranks"][0]["taken"]["snapshot"] == copy
    says(plan(f"checkpoint.async=yes --fit {without['memory']['total']}B"), re.compile(" checkpoint.async=no$"))


# ---- a blocked disk


@pytest.fixture(scope="module")
def slow_disk(scratch):
    run(*CC, "-O1", "-fPIC", "-shared", "-D_GNU_SOURCE", "-o", "slow_disk.so", SOURCE / "tests/checkpoint/slow_disk.c",
        "-ldl")
    return scratch / "slow_disk.so"


@pytest.fixture
def blocked(slow_disk, scratch):
    """Starts a run in the background, of which fsync of paths with WHERE waits for the file go."""
    go = scratch / "go"

    def start(out, where, words="", until=8):
        go.unlink(missing_ok=True)
        process = start_weft(f"train run.ini run.out={out} checkpoint.async=yes --verbose {words}", env={
            "SLOW_DISK": where, "SLOW_UNTIL": go, "LD_PRELOAD": slow_disk})
        process.wait_for(lambda: count_lines(f"{out}/metrics.jsonl") >= until, f"step {until}")
        return process

    return start


def go():
    write("go", "")


def goes_on(out):
    """Step 8, at which the next save is due, has come, and step 4 is not complete yet."""
    assert os.path.isdir(f"{out}/checkpoints/.step-4.tmp") and not os.path.exists(f"{out}/checkpoints/step-4")
    assert count_lines(f"{out}/metrics.jsonl") == 8


def test_steps_during_a_save(blocked):
    process = blocked("waits", ".step-4.tmp/")
    goes_on("waits")
    go()
    says(process.wait(), re.compile("^step 4 .* asynchronously"))
    same("place", "waits")


def test_kill_in_the_middle(blocked):
    """Complete checkpoints remain complete, and no other counts."""
    process = blocked("killed", ".step-8.tmp/", "train.steps=20", until=11)
    process.signal(signal.SIGKILL)
    process.wait(137)
    assert sorted(os.listdir("killed/checkpoints")) == [".step-8.tmp", "best", "step-4"]
    train("killed", "--resume checkpoint.async=yes")
    same("place", "killed")
    assert not os.path.exists("killed/checkpoints/.step-8.tmp")


def test_signal(blocked):
    """The save in flight is completed, and so is the step."""
    process = blocked("stopped", ".step-4.tmp/", until=6)
    process.signal(signal.SIGTERM)
    time.sleep(0.2)
    assert process.alive()
    go()
    result = process.wait(75)
    last = count_lines("stopped/metrics.jsonl")
    says(result, "signal", f"step {last}")
    assert all(os.path.exists(f"stopped/checkpoints/step-{step}/manifest.json") for step in (4, last))
    if last == 8:  # that checkpoint may lack the loss of the evaluation that the signal interrupted
        shutil.rmtree(f"stopped/checkpoints/step-{last}")
    train("stopped", "--resume")
    if last != 8:
        shutil.rmtree(f"stopped/checkpoints/step-{last}")
    same("place", "stopped")


# ---- a full disk


def failing(number, out, words, **options):
    return run(BUILD / "tests/fail_calls", "ENOSPC", "change", f"{out}/", ".step-4", number, WEFT, "train", "run.ini",
               f"run.out={out}", "checkpoint.async=yes", "--quiet", words, **options)


def test_full_disk():
    """At the first call of each kind for each file."""
    result = failing(0, "counted", "train.steps=7", status=[0, 77])
    if result.status == 77:
        pytest.skip(result.out.strip())
    calls = {}
    for line in read("calls.txt").splitlines():
        number, kind, path = line.split(maxsplit=2)
        if "/.step-4.tmp" in path and "config.ini" not in path:
            calls.setdefault((kind, path), number)
    chosen = list(calls.values())
    for number in chosen if FULL else [chosen[0], chosen[3], chosen[6], chosen[-1]]:
        shutil.rmtree("full", ignore_errors=True)
        result = failing(number, "full", "checkpoint.every=2", status=1)
        says(result, "full/", "No space left on device")
        assert os.path.exists("full/checkpoints/step-2/manifest.json")
        assert not os.path.exists("full/checkpoints/.step-4.tmp")
        train("full", "--resume")
        assert hashes("place/model", "*.safetensors") == hashes("full/model", "*.safetensors")


# ---- four ranks


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "mp"] if FULL else ["fsdp"])
def test_bytes_of_four_ranks(strategy):
    needs("mpich")
    train(f"place.{strategy}", f"checkpoint.async=no {FOUR}{strategy}")
    train(f"many.{strategy}", f"checkpoint.async=yes {FOUR}{strategy}")
    same(f"place.{strategy}", f"many.{strategy}")
    same("place", f"many.{strategy}")


def test_steps_of_four_ranks_during_a_save(blocked):
    needs("mpich")
    process = blocked("four", ".step-4.tmp/", f"{FOUR}fsdp")
    goes_on("four")
    go()
    process.wait()
    same("place", "four")


def test_failure_on_one_of_four_ranks(blocked):
    """Rank 0 reports it once."""
    needs("mpich")
    process = blocked("lost", ".step-4.tmp/", f"{FOUR}fsdp", until=6)
    shutil.rmtree("lost/checkpoints/.step-4.tmp")
    go()
    says(process.wait(1), "lost/checkpoints/step-4 ", "saved", count=1)
