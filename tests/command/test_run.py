"""The program from outside, as a user runs it: train, stop, resume, evaluate, generate, and user errors."""
import hashlib
import os
import pathlib
import re
import shutil
import signal

import pytest
from harness import (BUILD, SOURCE, WEFT, checkpoints, count_lines, hashes, lines, make_model, make_text, read, records,
                     run, says, start_weft, weft, write, write_ini)

SAVED = "model.path=one/model model.start=weights"
BUILT_IN = """comm/self data/text device/cpu model/llama optimizer/adamw optimizer/anyprecision optimizer/sgd
    policy/block policy/class policy/size policy/whole strategy/single tokenizer/bpe"""


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_model("model", 32, 8, 56, 2, 512)
    make_text(60)
    write_ini("run.ini", run="out=one seed=3", model="plugin=llama path=model start=fresh",
              tokenizer="plugin=bpe bos=yes", data="plugin=text path=games.txt document=line context=64 validation=6",
              train="steps=6 global_batch=4 micro_batch=2 clip=1.0 schedule=cosine warmup=2",
              optimizer="plugin=adamw lr=3e-3", device="plugin=cpu threads=2", eval="every=3",
              checkpoint="every=2 keep=2")
    weft("train run.ini")


def edited(name, *changes):
    """Writes the configuration with changes: pairs of a regular expression for a line, and its text."""
    text = read("run.ini")
    for pattern, replacement in changes:
        text, found = re.subn(f"(?m){pattern}", replacement, text, count=1)
        assert found
    write(name, text)
    return name


def refused(command, *arguments, says):
    """The command fails with status 1, and a line on standard error has the facts."""
    err = weft(command, *arguments, status=1).err
    assert lines(err, *([says] if isinstance(says, str) else says)), err


def documented(page, text):
    """The page contains every line of a command's output, indented."""
    wanted = {"    " + line for line in text.splitlines() if line}
    assert wanted <= set(read(SOURCE / "docs" / page).splitlines())
    return wanted


def learned(out):
    """Each record up to the first machine-dependent field."""
    return [re.sub(', "tokens_per_second".*', "", line) for line in read(f"{out}/metrics.jsonl").splitlines()]


def test_program_links_no_plugin_and_no_device():
    said = run("ldd", WEFT).out
    says(said, "libc.so")
    says(said, re.compile(r"dnnl|gomp|omp\.so|mpi|cuda|weft|plugin", re.I), count=0)


def test_list_of_plugins():
    """Each built-in plugin has its own file next to the program."""
    said = weft("plugins list").out
    for plugin in BUILT_IN.split():
        kind, id = plugin.split("/")
        says(said, re.compile(rf"^{kind} +{id} +[0-9.]+ +ok +/.*/weft-{kind}-{id}\.so$"))


def test_description_of_a_plugin():
    said = weft("plugins describe optimizer:adamw").out
    says(said, re.compile(r"^optimizer:adamw .*\(optimizer/1\)$"))
    says(said, re.compile("^sha256 +[0-9a-f]{64}$"))
    for key in "lr", "beta1", "beta2", "eps", "weight_decay", "decay":
        says(said, re.compile(rf"^  {key} +[^ ]+ .*\.$"))
    refused("plugins describe optimizer:adam", says=["adamw", "anyprecision", "sgd"])


def test_documentation_of_keys():
    assert len(documented("configuration.md", weft("config describe").out)) > 30


@pytest.mark.parametrize("command", [
    "train", "report", "eval", "generate", "plan", "profile", "tokenize", "config check", "config explain",
    "config describe",
    "plugins list", "plugins describe"])
def test_documentation_of_commands(command):
    said = weft(f"{command} --help").out
    says(said, f"usage: weft {command}")
    documented("commands.md", said)


def test_run():
    """Its records and its result."""
    found = records("one/metrics.jsonl")
    assert len(found) == 6 and all({"step", "loss", "lr", "grad_norm", "tokens"} <= set(record) for record in found)
    assert count_lines("one/evaluations.jsonl") >= 3
    says(read("one/config.ini"), re.compile("^global_batch *= *4"))
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(os.listdir("one/model"))
    assert checkpoints("one") == ["step-4", "step-6"]
    assert all(pathlib.Path(f"one/checkpoints/{name}/manifest.json").exists() for name in checkpoints("one"))
    weft("eval run.ini model.path=one/checkpoints/step-6 model.start=weights --json")
    weft("train one/config.ini run.out=again --quiet")
    assert hashes("one/model", "*.safetensors") == hashes("again/model", "*.safetensors")


def test_directory_that_contains_a_run(scratch):
    refused("train run.ini", says=[f"[run] out = {scratch}/one ", "config.ini"])
    assert count_lines("one/metrics.jsonl") == 6
    refused("train run.ini run.out=empty --resume", says=[f"[run] out = {scratch}/empty ", "no run"])
    weft("train run.ini --resume --overwrite", status=2)
    shutil.copytree("one", "over", symlinks=True)
    said = weft("train run.ini train.steps=2 run.out=over --overwrite").out
    assert count_lines("over/metrics.jsonl") == 2
    says(said, re.compile(r"^step 1/2 .* tok/s  .* left$"))  # the remaining time, except after the last step
    says(said, re.compile(r"^step 2/2 .* tok/s$"))


def test_inputs_of_a_run_are_never_removed(scratch):
    refused(f"train run.ini run.out=one {SAVED} --overwrite", says=[f"{scratch}/one/model ", "[run] out"])
    assert pathlib.Path("one/model/model.safetensors").exists()
    file = edited("own/config.ini", ("^out=.*", "out=./"), ("=model$", "=../model"), ("=games.txt", "=../games.txt"))
    write("own/.lock", "weft run\n")
    before = read(file)
    refused(f"train {file} --overwrite", says=["own/config.ini ", "[run] out"])
    assert read(file) == before


@pytest.mark.parametrize("every, validation, warns", [("50", "none", 1), ("none", "none", 0), ("50", "6", 0)])
def test_run_without_evaluations(every, validation, warns):
    said = weft("train run.ini run.out=unmeasured train.steps=1 train.warmup=0 --quiet --overwrite",
                f"eval.every={every}", f"data.validation={validation}")
    says(said.err, f"[eval] every = {every}", "[data]", count=warns)
    assert warns or said.err == ""


def test_stop_and_resume():
    """The bits of a run that did not stop; the initial loss is that of the start, or of the continued checkpoint."""
    half = "train run.ini run.out=half train.schedule=constant"
    whole = "train run.ini run.out=whole train.schedule=constant train.steps=8"
    weft(f"{half} train.steps=4")
    says(weft(whole), re.compile("^loss +[0-9.]+ -> [0-9.]+ on validation$"))
    says(weft(f"{half} train.steps=8 eval.every=100 checkpoint.every=100 --resume"),
         re.compile("^loss +[0-9.]+ after step 4 -> [0-9.]+ on validation$"))
    weights = hashes("whole/model", "*.safetensors")
    assert weights and hashes("half/model", "*.safetensors") == weights
    assert len(learned("whole")) == 8 and learned("half") == learned("whole")
    with open("half/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 9, "loss": 1}\n{"st')
    weft(f"{half} train.steps=8 --resume")  # cuts the records back to the step of the checkpoint
    assert learned("half") == learned("whole")
    refused("train run.ini run.out=half train.global_batch=2 train.steps=9 --resume", says="global_batch")
    file = pathlib.Path("half/checkpoints/step-8/model.safetensors")
    content = file.read_bytes()
    file.write_bytes(content[:3000] + b"x" + content[3001:])
    weft(f"{half} train.steps=8 --resume")  # passes over the damaged checkpoint
    assert hashes("half/model", "*.safetensors") == weights


def test_quiet():
    write("begun/metrics.jsonl", "")
    write("begun/.lock", "weft run\n")
    for words in "run.out=silent train.steps=4", "run.out=silent train.steps=5 --resume", "run.out=begun --resume":
        assert str(weft(f"train run.ini {words} --quiet")) == ""
    warm = "train run.ini run.out=warm train.steps=2 train.warmup=9 --overwrite"
    for said in weft(warm), weft(f"{warm} --quiet"):
        says(said.err, "weft: warning: ", "9 steps")
        says(said.out, "warning", count=0)
    assert said.out == "" and said.err.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_and_stops(number):
    out = f"stopped{number.value}"
    process = start_weft("train run.ini train.schedule=constant train.steps=100000 eval.every=none",
                         "checkpoint.every=none", f"run.out={out}")
    process.wait_for(lambda: count_lines(f"{out}/metrics.jsonl"), "a record")
    process.signal(number)
    process.wait(75)
    assert checkpoints(out) == [f"step-{count_lines(f'{out}/metrics.jsonl')}"]


def test_resume_before_anything_was_saved():
    write("unsaved/metrics.jsonl", "")
    write("unsaved/.lock", "weft run\n")
    weft("train run.ini run.out=unsaved train.steps=2 --resume")
    assert count_lines("unsaved/metrics.jsonl") == 2


def test_resume_after_the_end_without_checkpoints():
    plain = "train run.ini run.out=plain checkpoint.every=none"
    weft(f"{plain} train.steps=2 --quiet")
    ended = hashes("plain/model"), read("plain/metrics.jsonl")
    refused(f"{plain} train.steps=4 --resume", says="plain/model")
    assert (hashes("plain/model"), read("plain/metrics.jsonl")) == ended


def test_results():
    weft(f"eval run.ini {SAVED}")
    words = f"generate run.ini {SAVED} --prompt '1. e4' --temperature 0 --json"
    weft(f"{words} --tokens 5")
    cached = weft(f"{words} --tokens 12 --ignore-eos").out
    assert re.fullmatch(r'\{"ids": \[[0-9]+(, [0-9]+){11}\], "text": ".+"\}\n', cached)
    assert weft(f"{words} --tokens 12 --ignore-eos --no-cache").out == cached
    ids = weft("tokenize model", stdin=read("games.txt")).out
    assert weft("tokenize model --decode", stdin=ids).out == read("games.txt")


@pytest.mark.parametrize("command", [f"generate run.ini {SAVED} --tokens 5", "plan run.ini",
                                     "train run.ini run.out=unseen train.steps=2"])
def test_output_that_cannot_be_written(command):
    with open("/dev/full", "wb") as full:
        says(weft(command, status=1, stdout=full).err, "cannot be written")


def test_plan():
    """The JSON object agrees with the tables."""
    weft("plan run.ini --print-program")
    said = weft("plan run.ini --json --print-program")
    text = said.out
    for field in ('"grid": [0-9]+', '"padding_bytes": [0-9]+', '"sequences": 4', '"micro_batch_sequences": 2',
                  '"micro_batches": 2', '"positions": 64', '"use": "tape"'):
        says(text, re.compile(field))
    assert text.count('"queue": ') == said.json["instructions"]
    edited("planned.ini", ("^out=.*\n", ""))
    weft("plan planned.ini")  # without a place for results


@pytest.mark.parametrize("n, units, arguments", [
    (2, "block, in 3 units", ""), (4, "class, in 5 units", "policy.plugin=class policy.classes=LlamaAttention,mlp"),
    (4, "size, in 3 units", "policy.plugin=size policy.size=9k"), (0, "whole, in 1 unit", "policy.plugin=whole")])
def test_wrapping(n, units, arguments):
    """The totals, n modules tagged as units, and the same number in the JSON object."""
    text = weft(f"plan run.ini --print-wrapping {arguments}").out
    object = weft(f"plan run.ini --json --print-wrapping {arguments}").out
    modules = object.count('"path":')
    says(text, re.compile(rf"^wrapping +{n} of {modules} modules wrapped \([0-9.]+ %\) by policy {units}; [0-9,]+ of "
                          r"[0-9,]+ parameters \([0-9.]+ %\), the root unit has [0-9,]+$"))
    assert len(lines(text, re.compile("^--fsdp_wrap_module: "))) == object.count('"wrapped": true') == n
    assert len(lines(text, re.compile("^(top_module|module group|--fsdp_wrap_module|--unwrap-module): "))) == modules
    says(text, re.compile(rf"^Total modules: {modules}, FSDP wrapped modules: {100 * n / modules:.2f}%$"))


@pytest.mark.parametrize("points, steps", [(1, 1), (3, 3), (5, 9)])
def test_points_of_a_schedule(points, steps):
    says(weft(f"plan run.ini train.warmup=0 train.steps={steps}").out, re.compile("^  step "), count=points)


def test_rules_for_training_apply_only_to_training():
    edited("micro.ini", ("^global_batch.*\n", ""), ("^micro_batch.*", "micro_batch = 4"))
    refused("train micro.ini run.out=micro", says="micro_batch = 4")
    assert weft(f"eval micro.ini {SAVED} --json").json["loss"] > 0
    weft(f"generate micro.ini {SAVED} --prompt '1. e4' --tokens 2")


def test_profile(scratch):
    """It writes no files."""
    shutil.copytree("model", "still/model")
    shutil.copy("games.txt", "still")
    edited("still/quiet.ini", ("^out=.*\n", ""))
    before = hashes("still")
    said = weft("profile quiet.ini --steps 2 --warmup 1", cwd="still").out
    for row in "linear forward,linear weight gradient,attention backward,lm_head backward,optimizer,rest".split(","):
        says(said, re.compile(f"^{row} "))
    said = weft("profile quiet.ini --json --steps 3 --warmup 0 --roofline", cwd="still").out
    for field in ("step_seconds median_seconds positions targets flops resident_peak planned operators roofline "
                  "peak_flops_per_second").split():
        says(said, f'"{field}": ')
    says(said, re.compile('"weight_pages_absent": 0,*$'))
    says(said, re.compile('"weight_pages": [1-9]'))
    weft("profile quiet.ini train.steps=1 --steps 3", cwd="still")  # more steps than the run has
    assert hashes("still") == before
    weft("profile run.ini --steps 0", status=2)


def test_pins():
    pin = hashlib.sha256((BUILD / "plugins/weft-optimizer-adamw.so").read_bytes()).hexdigest()
    weft(f"config check run.ini plugins.pin=optimizer:adamw={pin}")
    refused(f"config check run.ini plugins.pin=device:cpu={pin}",
            says=["[device] plugin = cpu", f"{pin} for device:cpu"])
    write("pin.ini", read("run.ini") + f"[plugins]\npin = optimizer:adamw={pin}, optimizer:adamv={pin}\n")
    refused("config check pin.ini", says=["pin.ini:36: [plugins] pin = optimizer:adamw=", "optimizer:adamv"])
    edited("short.ini", (r"^\[optimizer\]\n(.*\n){2}", ""))  # a command may leave out a part
    weft(f"generate short.ini {SAVED} plugins.pin=optimizer:adamw={pin} --prompt '1. e4' --tokens 1")


def test_limit_on_the_size_of_files():
    """A write that fails does not end the process."""
    said = run("sh", "-c", 'ulimit -f 20; exec "$@"', "sh", WEFT, "train", "run.ini", "run.out=limited", status=1)
    says(said.err, "File too large")


def test_unknown_command():
    weft("trian run.ini", status=2)


@pytest.mark.parametrize("pattern, replacement, facts", [  # names the misspelt key, not a consequence
    ("^global_batch", "global_bacth", ["19: [train]", "global_bacth", "global_batch?", "Its keys are: steps"]),
    ("^schedule=.*", "schedule = step\nstep_evry = 3", ["23: [train]", "step_evry", "step_every?"]),
    ("^path=model", "pth = model", ["6: [model]", "pth", "path?"]),
    ("^path=games.txt", "pth = games.txt", ["13: [data]", "pth", "path?"]),
    ("^plugin=llama", "pluign = llama", ["5: [model]", "pluign", "plugin?", "path, start, base, plugin, ignore"]),
    ("^plugin=adamw", "momentum = 0.9\npluign = sgd", ["26: [optimizer]", "pluign", "plugin?"]),
    (r"^\[train\]", "[plugins]\npth = here\n[train]", ["18: [plugins]", "pth", "path?"])])
def test_misspelt_key(pattern, replacement, facts):
    edited("edited.ini", (pattern, replacement))
    refused("config check edited.ini", says=["config check: edited.ini:" + facts[0], *facts[1:]])


@pytest.mark.parametrize("command, facts", [
    ("train run.ini optimizer.betal=0.9", ["beta1"]), ("train run.ini train.micro_batch=3", ["micro_batch"]),
    ("train run.ini data.context=256", ["train: command line: [data] context = 256", "128"]),
    ("train run.ini data.validation=60", ["train: command line: [data] validation = 60"]),
    ("train default.ini", ["train: default.ini: ", "[data] context = 256"]),
    ("train run.ini train.trainable=zzz", ["train: command line: [train] trainable = zzz", "'zzz'"]),
    ("train none.ini", ["train: none.ini:13: [data] path = {here}/none.txt"]),
    ("train run.ini model.path=nothere", ["train: command line: [model] path = nothere ({here}/nothere)"]),
    ("generate file.ini", ["generate: file.ini:6: [model] path = games.txt"]),
    ("train run.ini tokenizer.path=nothere", ["train: command line: [tokenizer] path = nothere ({here}/nothere)"]),
    ("train run.ini model.path=", ['train: command line: [model] path = ""']),
    ("train run.ini model.path=small", ["512 ids", "{here}/small", "500"]),
    ("train run.ini model.path=odd", ["hidden_act"]),
    ("plan run.ini policy.plugin=class policy.classes=LlamaDecodeLayer",
     ["command line: [policy] classes", "'LlamaDecodeLayer'"])])
def test_invalid_input(scratch, command, facts):
    edited("default.ini", ("^context=.*\n", ""))
    edited("none.ini", ("=games.txt", "= none.txt"))
    edited("file.ini", ("=model$", "=games.txt"))
    make_model("small", 32, 8, 56, 2, 500)
    make_model("odd", 32, 8, 56, 2, 512, hidden_act="relu")
    bad = [] if command.startswith("generate") else ["run.out=bad"]
    refused(command, *bad, says=[fact.format(here=scratch) for fact in facts])
    assert not pathlib.Path("bad/metrics.jsonl").exists()
