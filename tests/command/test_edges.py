"""Edge cases for users: ends of a run, output locations, files that a run may remove, invalid inputs."""
import gzip
import os
import pathlib
import re
import shutil
import signal

import pytest
from harness import (FAILS, SANITIZED, WEFT, change_json, changed_plugin, checkpoints, count_lines, has, hashes,
                     make_model, make_text, read, records, refused, run, says, start_weft, weft, write,
                     write_ini)


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_model("model", 16, 4, 24, 1, 512)
    make_text(40)
    write_ini("run.ini", model="plugin=llama path=model start=fresh", data="path=games.txt document=line context=32",
              train="steps=2 global_batch=4 micro_batch=2", optimizer="plugin=adamw", device="threads=1")
    changed_plugin("optimizer", "adamw", "adamw", "IN_PREPARE=hold", to="held")


@pytest.fixture(scope="module", autouse=True)
def sleepers(inputs):
    """Runs with a call of 12 s, by the plugin that makes it; the tests run meanwhile."""
    create = changed_plugin("optimizer", "adamw", "sleeper", "IN_CREATE=rest", to="slow")
    units = changed_plugin("policy", "whole", "napper", to="slow")
    env = {"SLEEP_MS": 12000}
    runs = {"create": (create, ["optimizer.plugin=sleeper"]), "units": (units, ["policy.plugin=napper"])}
    if has("mpich"):  # also in the trial run before the ranks start
        before = changed_plugin("optimizer", "adamw", "dozer", "IN_CREATE=rest_before_ranks", to="slow")
        runs["create of ranks"] = before, ["optimizer.plugin=dozer", "strategy.plugin=ddp", "--ranks", "2"]
    return {slot: (file, start_weft("train", "run.ini", f"run.out=slow-{slot}", *arguments, "--quiet",
                                    env={**env, "WEFT_PLUGIN_PATH": file.parent}))
            for slot, (file, arguments) in runs.items()}


def train(out, *arguments, **options):
    return weft("train", "run.ini", f"run.out={out}", "--quiet", *arguments, **options)


def train_refused(facts, *arguments, out="none", **options):
    return refused("train", "run.ini", f"run.out={out}", *arguments, says=facts, **options)


def saved_at_its_end(out):
    return checkpoints(out) == [f"step-{count_lines(f'{out}/metrics.jsonl')}"]


def test_hang_up_stops_like_sigterm():
    process = start_weft("train", "run.ini", "run.out=hung", "train.steps=1000000", "checkpoint.every=none", "--quiet")
    process.wait_for(lambda: count_lines("hung/metrics.jsonl"), "a record")
    process.signal(signal.SIGHUP)
    says(process.wait(75), "hung up")
    assert saved_at_its_end("hung")
    train("hung", "--resume", f"train.steps={count_lines('hung/metrics.jsonl') + 1}")


def test_output_without_a_reader_stops_the_run():
    """There is a line per 1,000 steps, and the reader leaves after the first."""
    reader, writer = os.pipe()
    process = start_weft("train", "run.ini", "run.out=piped", "train.steps=20000", "checkpoint.every=none",
                         stdout=writer)
    os.close(writer)
    with os.fdopen(reader) as output:
        output.readline()
        process.wait_for(lambda: count_lines("piped/metrics.jsonl"), "a record")
    says(process.wait(75), "no reader")
    assert saved_at_its_end("piped")


def test_output_locations():
    train_refused("[run] out = / ", out="/")
    train_refused("directory of the model", out="model")
    shutil.copytree("model", "words")
    train_refused("directory of the tokenizer", "tokenizer.path=words", out="words")
    assert hashes("model") == hashes("words")
    train_refused(["here/mistyped", "no run"], "--resume", out="here/mistyped")
    assert not pathlib.Path("here").exists()


def test_overwrite_removes_only_files_of_runs(scratch):
    train("one", "checkpoint.every=1")
    for mine in ("model/notes.txt", "checkpoints/notes.txt", "checkpoints/step-1/notes.txt",
                 "checkpoints/step-1/state/notes.txt", "tensorboard/notes.txt"):
        file = write(f"one/{mine}", "mine")
        before = hashes("one")
        train_refused(f"{scratch}/one/{mine}", "--overwrite", out="one")
        assert hashes("one") == before
        file.unlink()
    os.mkdir("one/checkpoints/.step-7.tmp")
    train("one", "--overwrite")


def test_directory_without_a_run(scratch):
    """Nothing is removed or replaced, on a second try neither; .lock may be another program's."""
    for file in "config.ini", "metrics.jsonl", "starts.jsonl", "model/config.json":
        write(f"mine/{file}", "mine")
    write("mine/.lock", "")
    before = hashes("mine")
    for flag in "--overwrite", "--overwrite", "--resume", "--quiet":
        train_refused([f"[run] out = {scratch}/mine: ", "config.ini"], flag, out="mine")
        assert hashes("mine") == before
    shutil.rmtree("mine")
    others = [write(f"mine/{file}", "mine") for file in ("notes.txt", "config.ini.7.tmp", "model.7.tmp")]
    train("mine", "--overwrite")
    assert [read(file) for file in others] == ["mine"] * 3


@pytest.mark.parametrize("left", [".lock", "starts.jsonl"])
def test_run_is_known_by_its_lock_or_record_of_starts(left):
    train("left", "--overwrite")
    for path in pathlib.Path("left").iterdir():
        if path.name not in (left, "config.ini"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    train("left", "--overwrite")


def test_foreign_files_remain(scratch):
    every = ["checkpoint.every=1", "checkpoint.keep=1"]
    train("kept", *every)
    mine = [write(f"kept/{file}", "mine") for file in ("model/onnx/model.onnx", "model/README.md",
                                                       "checkpoints/step-2/notes.txt")]
    for steps in 3, 4:
        said = train("kept", "--resume", *every, f"train.steps={steps}")
        assert all(file.exists() for file in mine) and checkpoints("kept") == ["step-2", f"step-{steps}"]
        says(said, f"{scratch}/kept/checkpoints/step-2/notes.txt")


def test_lock_is_no_link(scratch):
    os.mkdir("linked")
    os.symlink(scratch / "elsewhere", "linked/.lock")
    train_refused([f"{scratch}/linked/.lock", "symbolic link"], out="linked")
    assert not pathlib.Path("elsewhere").exists()


def test_foreign_lock(scratch):
    os.mkdir("locked")
    write("locked/.lock", "mine\n")
    train_refused([f"{scratch}/locked/.lock"], out="locked")
    assert os.listdir("locked") == [".lock"] and read("locked/.lock") == "mine\n"


def test_temporary_files_of_killed_processes():
    train("killed", "checkpoint.every=1")
    for name in "config.ini.4711.tmp", "metrics.jsonl.12.tmp", "config.ini.mine.tmp":
        write(f"killed/{name}", "")
    train("killed", "--resume", "train.steps=3")
    assert [path.name for path in pathlib.Path("killed").glob("*tmp*")] == ["config.ini.mine.tmp"]


def hold(scratch, out, *arguments, **options):
    pathlib.Path("go").unlink(missing_ok=True)
    return start_weft("train", "run.ini", f"run.out={out}", *arguments, "--quiet", **options, env={
        "HOLD_AT": 3, "HOLD_UNTIL": scratch / "go", "WEFT_PLUGIN_PATH": scratch / "held"})


def go(process, status):
    write("go", "")
    return process.wait(status)


def train_held(out, *arguments):
    return train(out, *arguments, env={"WEFT_PLUGIN_PATH": pathlib.Path("held").resolve()})


@pytest.mark.parametrize("change", ["renamed", "removed", "replaced"])
def test_changed_directory(scratch, change):
    out = pathlib.Path(f"was-{change}")
    process = hold(scratch, out, "train.steps=6", "checkpoint.every=1")
    process.wait_for(lambda: count_lines(out / "checkpoints.jsonl") >= 2, "2 checkpoints")
    if change == "removed":
        shutil.rmtree(out)
    else:
        out.rename(f"is-{change}")
    if change == "replaced":
        train(out, "checkpoint.every=1")
    before = hashes(out)
    says(go(process, 1), f"[run] out = {scratch}/{out}: ", "renamed, removed or replaced")
    assert hashes(out) == before and out.exists() == (change == "replaced")
    if change == "renamed":
        pathlib.Path("is-renamed").rename(out)
        train_held(out, "--resume", "train.steps=6", "checkpoint.every=1")


@pytest.mark.parametrize("change, state", [("round_upward", "floating-point mode"), ("clear_umask", "umask")])
def test_plugin_that_changes_the_process(change, state):
    file = changed_plugin("optimizer", "adamw", "adamw", f"IN_PREPARE={change}", to=change)
    train_refused([f"optimizer:adamw ({file})", state, "prepare"], out=change, env={"WEFT_PLUGIN_PATH": file.parent})


def test_tokenizer_is_saved_as_it_was_read(scratch):
    shutil.copytree("model", "soon")
    process = hold(scratch, "soon.out", "model.path=soon", "train.steps=4")
    process.wait_for(lambda: count_lines("soon.out/metrics.jsonl") >= 2, "2 steps")
    write("soon/tokenizer.json", "")
    os.unlink("soon/tokenizer_config.json")
    go(process, 0)
    for file in "tokenizer.json", "tokenizer_config.json":
        assert read(f"model/{file}") == read(f"soon.out/model/{file}")


def test_evaluation_repeated_after_a_kill(scratch):
    """It is recorded once; the next start corrects the link to the best checkpoint."""
    split = ["data.validation=4", "train.steps=4", "checkpoint.every=2"]
    train_held("twice", *split, "eval.every=none", "train.steps=2")
    process = hold(scratch, "twice", *split, "eval.every=2", "--resume")
    process.wait_for(lambda: count_lines("twice/evaluations.jsonl"), "an evaluation")
    process.signal(signal.SIGKILL)
    process.wait(137)
    train_held("twice", *split, "eval.every=2", "--resume")
    assert [record["step"] for record in records("twice/evaluations.jsonl")] == [2, 4]
    best = pathlib.Path("twice/checkpoints/best")
    wanted = os.readlink(best)
    best.unlink()
    best.symlink_to("step-1")
    os.mkdir("twice/checkpoints/.step-4.tmp")
    train_held("twice", *split, "eval.every=2", "--resume")
    assert os.readlink(best) == wanted and not pathlib.Path("twice/checkpoints/.step-4.tmp").exists()


def test_damaged_record_is_reported_and_a_truncated_one_is_not(scratch):
    file = pathlib.Path("half/metrics.jsonl")
    train("half", "train.steps=3", "checkpoint.every=1")
    kept = file.read_text().splitlines(True)
    file.write_text("".join([kept[0], kept[1].replace("loss", 'x"', 1), *kept[2:], '{"step": 4, "lo']))
    said = train("half", "--resume", "train.steps=4", "checkpoint.every=1")
    says(said, "warning", f"{scratch}/half/metrics.jsonl:2 ")
    assert str(said).count("\n") == 1


def test_gap_in_the_records_is_no_longer_interval(scratch):
    file = pathlib.Path("gap/metrics.jsonl")
    train("gap", "train.steps=5", "checkpoint.every=1", "run.metrics_every=2")
    assert str(train("gap", "--resume", "train.steps=9", "checkpoint.every=1")) == ""
    kept = file.read_text().splitlines(True)
    file.write_text("".join(kept[:5] + kept[7:]))
    said = train("gap", "--resume", "train.steps=10", "checkpoint.every=1", "run.metrics_every=2")
    says(said, f"{scratch}/{file}: ", "steps 7 to 8")
    file.unlink()
    says(train("gap", "--resume", "train.steps=11", "checkpoint.every=1"), f"{scratch}/{file}: ", "steps 1 to 10")


@pytest.mark.parametrize("file, start", [("config.json", "fresh"), ("tokenizer.json", "fresh"),
                                         ("model.safetensors", "weights")])
def test_pipe_in_a_model_does_not_block(scratch, file, start):
    path = scratch / f"piped.{file}"
    shutil.copytree("model", path)
    (path / file).unlink(missing_ok=True)
    os.mkfifo(path / file)
    train_refused(f"{path}/{file}: ", f"model.path={path}", f"model.start={start}")


def test_pipe():
    os.mkfifo("pipe")
    train_refused(["pipe", "regular file"], "data.path=pipe")
    refused("train", "pipe", "run.out=none", says=["pipe", "is not a file"])


@pytest.mark.parametrize("name, content, facts", [
    ("wide.txt", b"\xfe\xff\0a\0b", ["wide.txt", "UTF-16", "Allowed: UTF-8"]),
    ("zeros.txt", b"1\0.\0 \0e\0" * 20, ["zeros.txt", "no text"]),
    ("packed.txt", gzip.compress(bytes(range(256)) * 20).replace(b"\0", b"\1"), ["packed.txt", "no text"])])
def test_input_that_is_no_text(scratch, name, content, facts):
    (scratch / name).write_bytes(content)
    train_refused(facts, f"data.path={name}")


def test_text_of_another_encoding(scratch):
    (scratch / "latin.txt").write_bytes((scratch / "games.txt").read_bytes() + b"caf\xe9 cr\xe8me \xc3\xa9t\xc3\xa9\n")
    train("latin", "data.path=latin.txt")


@pytest.mark.parametrize("key, value", [
    *((key, "./nowhere") for key in ("model.path", "data.path", "data.validation", "tokenizer.path")),
    *(("optimizer.lr", value) for value in ("1e308", "1e200", "fast"))])
def test_invalid_value(key, value):
    weft("config", "check", "run.ini", "run.out=none")
    refused("config", "check", "run.ini", "run.out=none", f"{key}={value}",
            says=["/nowhere", "No such file"] if value == "./nowhere" else f"lr = {value}")


def test_control_characters_in_files_do_not_reach_the_terminal():
    shutil.copytree("model", "loud")
    change_json("loud/config.json", hidden_act="si\x1b[31m\x9b1m\x07lu")
    said = train_refused("hidden_act", "model.path=loud")
    assert not set(str(said)) & set("\x1b\x07\x9b\udc9b")


def test_unreadable_tokenizer_is_not_missing():
    shutil.copytree("model", "looped")
    os.unlink("looped/tokenizer.json")
    os.symlink("tokenizer.json", "looped/tokenizer.json")
    train_refused(["looped/tokenizer.json", "symbolic links"], "tokenizer.path=looped")


def test_tokenizer_that_multiplies_a_text():
    shutil.copytree("model", "growing")
    step = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 200}
    change_json("growing/tokenizer.json", normalizer={"type": "Sequence", "normalizers": [step] * 4})
    train_refused(["tokenizer.json", "bytes"], "tokenizer.path=growing")


@pytest.mark.parametrize("call, change", [("_exit", "leave"), ("execlp", "run_program"),
                                          ("execve", "run_program_with_environment")])
def test_plugin_that_would_end_the_process(call, change):
    file = changed_plugin("strategy", "single", "leaver", f"IN_COMPILE={change}")
    train_refused([str(file), f"calls {call},"], "strategy.plugin=leaver", env={"WEFT_PLUGIN_PATH": file.parent})


def test_missing_weights_are_reported_before_planning(scratch):
    file = changed_plugin("strategy", "single", "early", "IN_COMPILE=fail")
    env = {"WEFT_PLUGIN_PATH": file.parent}
    train_refused("compile was called", "strategy.plugin=early", env=env)
    said = train_refused(f"{scratch}/model: ", "strategy.plugin=early", "model.start=weights", env=env)
    says(said, "compile was called", count=0)


def test_missing_weights_of_many_layers():
    """Planning 65,535 layers would take minutes, declaring them takes two seconds of the processor."""
    train("short")
    shutil.copytree("short/model", "tall")
    change_json("tall/config.json", num_hidden_layers=65535)
    limit = "" if SANITIZED else "ulimit -t 20;"
    said = run("sh", "-c", f'{limit} exec "$@"', "sh", WEFT, "train", "run.ini", "run.out=none", "model.path=tall",
               "model.start=weights", status=FAILS)
    says(said, "missing", "model.layers.1.self_attn.q_proj.weight")


@pytest.mark.parametrize("ranks", ["3", "1e3"])
def test_invalid_number_of_ranks_starts_none(ranks):
    said = train_refused(["weft train: ", "strategy single", f"{float(ranks):.0f}"], "--ranks", ranks)
    says(said, re.compile(r"^\[0\]"), count=0)
    assert not pathlib.Path("none").exists()


@pytest.mark.parametrize("slot, plugin, line_count", [
    ("create", "optimizer:sleeper", 1), ("units", "policy:napper", None), ("create of ranks", "optimizer:dozer", None)])
def test_call_of_12_seconds(sleepers, slot, plugin, line_count):
    if slot not in sleepers:
        pytest.skip("a call before ranks start: no mpi-mpich")
    file, process = sleepers[slot]
    said = str(process.wait())
    says(said, re.compile(rf"^weft: warning: {plugin} \({re.escape(str(file))}\) .* its {slot.split()[0]} for 10 s"))
    assert line_count is None or said.count("\n") == line_count
