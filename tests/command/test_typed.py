"""Common user input: a directory instead of an INI file, a prompt on standard input, names of other programs; and the
messages about likely mistakes."""
import os
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FAILS, SOURCE, change_json, lines, make_model, make_text, read, records, refused, says,
                     weft, write, write_ini)

TEXT = "data.path=games.txt data.document=line data.context=64"
GENERATE = "--tokens 6 --temperature 0 --json"
FAMILIES = "gemma gemma2 gemma3_text llama mistral olmo2 phi3 qwen2 qwen3 smollm3".split()


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_model("model", 32, 8, 56, 2, 512)
    make_text(60)
    write_ini("run.ini", run="out=one", model="plugin=llama path=model start=fresh", tokenizer="bos=yes",
              data="path=games.txt document=line context=64 validation=6", train="steps=2 global_batch=4 micro_batch=2",
              device="threads=1", checkpoint="every=2")
    write("short.ini", read("run.ini").replace("plugin=llama\n", ""))  # config.json selects the model plugin
    weft("train run.ini --quiet")
    os.mkdir("neither")
    write("unfinished/config.ini", read("one/config.ini"))
    shutil.copytree("model", "loop")
    os.unlink("loop/config.json")
    os.symlink("config.json", "loop/config.json")


def stranger(text=None, **changes):
    """Makes a model with changes of config.json, or with another text of it."""
    shutil.rmtree("stranger", ignore_errors=True)
    shutil.copytree("one/model", "stranger")
    if text is None:
        change_json("stranger/config.json", **changes)
    else:
        pathlib.Path("stranger/config.json").write_bytes(text)


def numbers(command):
    found = weft(command).json
    found.pop("seconds")
    return found


def test_eval_of_a_directory():
    """That of a run is of its model on its own documents."""
    assert numbers("eval one --json") == numbers("eval run.ini model.path=one/model model.start=weights --json")
    says(weft(f"eval one/model {TEXT}"), "60 documents")


def test_generate_of_a_directory():
    """bos is in the run's configuration, and given for the model."""
    keys = "model.path=one/model model.start=weights tokenizer.bos=yes"
    wanted, *others = [weft(f"generate {directory} {keys} --prompt '1. e4' {GENERATE}").out
                       for directory in ("run.ini", "one", "one/model")]
    assert others == [wanted, wanted]
    weft("generate one/checkpoints/step-2 --tokens 1")


def test_plan_of_a_directory():
    """A model is planned for one epoch."""
    assert weft("plan one").out == weft("plan run.ini model.start=weights model.path=one/model").out
    write_ini("epoch.ini", model="plugin=llama path=one/model", data=TEXT.replace("data.", ""), train="epochs=1")
    assert weft(f"plan one/model {TEXT}").out == weft("plan epoch.ini").out
    says(weft(f"plan one/model {TEXT} train.steps=7"), "schedule", "7 steps")


@pytest.mark.parametrize("command, facts", [
    ("eval one/model", ["[data] path"]), ("plan one/model --diff run.ini", ["--diff"]),
    ("generate neither", ["neither", "config.json"]),
    ("generate unfinished", ["unfinished ", "unfinished/checkpoints/step-N"]),
    ("generate unfinshed", ["unfinshed", "did you mean unfinished"]),
    ("eval no/where", ["no/where", "No such file"]), ("train one", ["one", "one/config.ini", "--resume"]),
    ("train one/model", ["one/model", "weft init one/model DATA"]), ("profile neither", ["neither", "INI file"]),
    ("plan short.ini model.path=nowhere", ["[model] path = nowhere ({here}/nowhere)"]),
    ("plan short.ini model.path=neither", ["[model] path = neither", "config.json"]),
    ("init loop games.txt -o -", ["loop/config.json", "symbolic links"]),  # an inaccessible path is not a missing one
    ("plan short.ini model.path=loop", ["[model] path = loop", "config.json"])])
def test_error_of_a_directory(scratch, command, facts):
    said = refused(command, says=[fact.format(here=scratch) for fact in facts])
    says(said, "usage:", count=0)


@pytest.mark.parametrize("text", [b'{"model_type": "llama",}', b'{"a": NaN, "model_type": "llama"}',
                                  b'\xef\xbb\xbf{"model_type": "llama"}',
                                  b'{"model_type": "llama", "a": 1\0}', b'{"model_type": '])
def test_broken_config_json(text):
    """It is no missing key."""
    stranger(text)
    says(refused("generate stranger", says="stranger/config.json:1:"), "no model_type", count=0)


def test_model_plugin_of_config_json(scratch):
    """Its model_type is not a path."""
    assert weft("plan short.ini").out == weft("plan run.ini").out
    says(weft("config explain short.ini").out, re.compile(r"^model.plugin +llama +default"))
    for model_type in None, "stranger/llama.so":
        stranger(model_type=model_type)
        shutil.copy(BUILD / "plugins/weft-model-llama.so", "stranger/llama.so")
        for command in "generate stranger", "plan short.ini model.path=stranger":
            refused(command, says=["stranger/config.json", "model_type"])
    stranger(model_type="mistrel")
    for command in "generate stranger", "plan short.ini model.path=stranger":
        refused(command, says=["[model] plugin = mistrel (its default)"])
    refused("init stranger games.txt -o -", says=["stranger/config.json: model_type = mistrel", '"mistrel"'])


@pytest.mark.parametrize("command", ["plan short.ini model.path=stranger", "plan run.ini model.path=stranger",
                                     "generate stranger", "init stranger games.txt -o -"])
@pytest.mark.parametrize("model_type", ["mixtral", "deepseek_v3", "gpt2"])
def test_model_type_without_a_plugin(model_type, command):
    """The error names it and lists the supported families."""
    stranger(model_type=model_type)
    said = str(refused(command, says=model_type))
    assert set(FAMILIES) <= set(re.findall(r"\w+", said))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_prompt_on_standard_input(end):
    generate = f"generate one {GENERATE}"
    assert weft(generate, stdin="1. e4" + end).out == weft(f"{generate} --prompt '1. e4'").out


def test_prompt_with_two_line_ends():
    """One is the shell's, and no more."""
    generate = f"generate one {GENERATE}"
    assert weft(generate, stdin="1. e4\n\n").out == weft(f"{generate} --prompt", "1. e4\n").out
    prompt = f"{generate} --prompt '1. e4'"
    assert weft(prompt, stdin="not this").out == weft(prompt).out


def test_prompt_of_17_megabytes():
    refused("generate one", says="16 MiB", stdin=bytes(17000000))


@pytest.mark.parametrize("command, facts", [("generate one '1. e4'", ["'1. e4'", "--prompt"]),
                                            ("eval one/model games.txt", ["'games.txt'", "data.path=games.txt"])])
def test_argument_too_many(command, facts):
    refused(command, says=facts)


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version(word):
    says(weft(word), "(SDK ")


def test_text_that_exceeds_the_memory():
    """The length that would fit is reported."""
    generate = "generate one/model --prompt '1. e4'"
    weft(f"{generate} --tokens 64 --temperature 0 --fit 1GB")
    said = refused(f"{generate} --tokens 120 --fit 260KB", says=["nothing was started", "--tokens "])
    weft(f"{generate} {re.search('--tokens [0-9]+', str(said)).group()} --fit 260KB")
    refused(f"{generate} --fit 1KB", says="No change")
    weft(f"{generate} --tokens 120 --no-fit")


def of_size(size):
    make_model(f"of-{size}", 32, 8, 56, 2, size)
    return f"model.path=of-{size}"


def test_vocabulary():
    """It may be padded, but not smaller than the tokenizer's."""
    says(weft("train run.ini run.out=padded", of_size(520)).err, "512 ids", "520", count=1)
    ids = weft("generate padded --tokens 40 --temperature 1000 --ignore-eos --json").json["ids"]  # all are as probable
    assert len(ids) == 40
    says(weft("plan run.ini", of_size(600)), "warning", "512 ids", "600")
    says(weft("plan run.ini").err, "ids and the model", count=0)
    refused("plan run.ini", of_size(510), says=["512 ids", "of-510 ", "vocabulary of 510"])
    refused("config check run.ini", of_size(100), says=["512 ids", "of-100"])


def test_json_array():
    plan = "plan run.ini data.validation=none"
    write("array.json", ' [\n  {"text": "1. e4 e5"},\n  {"text": "1. d4 d5"}\n]\n')
    refused(f"{plan} data.path=array.json", says=["array.json", "JSONL"])
    weft(f"{plan} data.path=array.json data.format=text")
    write("bracket.txt", '[1. e4 e5] {"a": 1} is a text that begins with a bracket\n')
    weft(f"{plan} data.path=bracket.txt")


def test_scaled_learning_rate(scratch):
    said = weft("plan run.ini train.global_batch=28 train.lr_scaling=sqrt train.lr_batch=10 optimizer.lr=1e-5").out
    says(said, re.compile("^lr "), "1e-05 for 10 sequences", "1.67332 for 28", "1.67332e-05")
    says(said, re.compile("^  step  *1  lr 1.67332e-05$"))
    said = weft("train run.ini run.out=scaled train.global_batch=40 train.lr_scaling=linear train.lr_batch=10",
                "optimizer.lr=1e-5")
    says(said, re.compile("^lr "), "1e-05 for 10 sequences", "4 for 40", "4e-05")
    assert records("scaled/metrics.jsonl")[0]["lr"] == pytest.approx(4e-5)


@pytest.mark.parametrize("command, facts", [
    *((f"train run.ini {argument}", facts) for argument, facts in [  # names of other programs
        ("train.num_train_epochs=3", ["command line: [train]", "num_train_epochs", "epochs in [train]",
                                      "Its keys are: steps"]),
        ("optimizer.learning_rate=1", ["[optimizer]", "learning_rate", "lr in [optimizer]"]),
        ("train.gradient_accumulation_steps=3", ["gradient_accumulation_steps", "global_batch in [train]"]),
        ("data.max_seq_length=3", ["[data]", "max_seq_length", "context in [data]"]),
        # A hint has the same meaning: a key of that name elsewhere, or that there is no such setting.
        ("eval.steps=10", ["[eval]", "steps", "every in [eval]"]),
        ("train.patience=3", ["[train]", "patience", "no such setting"]),
        ("train.lr=1e-4", ["[train]", "lr", "[optimizer]"]),
        ("data.template=chatml", ["[data] template = chatml", "plugin = instruct"]),
        ("train.warmup=5%", ["[train] warmup = 5%", "0.05"])]),
    ("plan run.ini strategy.plugin=zero2", ["[strategy] plugin = zero2", "fsdp (shard = gradients)"]),
    ("plan run.ini device.plugin=GPU", ["[device] plugin = GPU", "cuda"]),
    ("plan run.ini train.trainable=q_proj", ["*q_proj*", "2 of them"]),
    ("plan run.ini train.lr_scaling=sqrt", ["[train] lr_scaling = sqrt", "lr_batch"]),
    ("plan run.ini train.lr_batch=10", ["[train] lr_batch = 10"]),
    ("plan run.ini tokenizer.padded=yes", ["[tokenizer] padded"]),
    # `config check` rejects everything that `train` rejects before it opens a device.
    ("config check run.ini data.context=4096", ["[data] context = 4096", "128"]),
    ("config check run.ini model.start=weights", ["model.safetensors"]),
    ("config check run.ini data.path=bad.jsonl data.validation=none", ["bad.jsonl:1: ", '"text"'])])
def test_error(command, facts):
    write("bad.jsonl", '{"txt": "1"}\n')
    refused(command, says=facts)


def test_key_of_another_plugin():
    """It is reported on the command line; in a file it is kept for later."""
    weft("config check run.ini")
    says(weft("plan run.ini data.instruct.template=chatml"),
         "warning: command line: [data.instruct] template = chatml", "text")
    write("waits.ini", read("run.ini") + "[data.instruct]\ntemplate = chatml\n")
    says(weft("plan waits.ini").err, "warning", count=0)


def test_default_learning_rate():
    """It is marked as a default."""
    says(weft("train run.ini run.out=rate"), "0.001", "default", "[optimizer] lr")
    says(weft("train run.ini run.out=rate --overwrite optimizer.adamw.lr=1e-3"), "is the default of", count=0)
    says(weft("config explain run.ini --optimizer.lr=3e-4").out, re.compile(r"lr.*(0\.0003|3e-0?4).*command line"))


def rows(file, name):
    found = lines(read(SOURCE / f"host/config/{file}"), re.compile(f"^{name}\\("))
    return [re.findall(r'"([^"]*)"', line) for line in found]


def test_foreign_ids():
    found = {(kind, id) for kind, _, id, *_ in rows("foreign_ids.def", "FOREIGN_ID")}
    assert len(found) > 6
    for kind, id in found:
        assert (SOURCE / "plugins" / kind / id).is_dir() or weft("plugins describe", f"{kind}:{id}")


def test_foreign_names():
    """The settings that the table names exist."""
    section, keys = "", set()
    described = weft("config describe").out
    for plugin in "optimizer:adamw", "data:text", "tokenizer:bpe", "model:llama", "adapter:lora":
        rows_of_keys = lines(weft("plugins describe", plugin).out, re.compile("^  [a-z]"))
        described += "\n".join([f"[{plugin.split(':')[0]}]", *rows_of_keys, ""])
    for line in described.splitlines():
        section = line.split()[0] if line.startswith("[") else section
        keys.add((section, (line.split() or [""])[0]))
    flags = weft("train --help").out + weft("generate --help").out
    table = [row[:3] for row in rows("foreign_names.def", "FOREIGN") if row[2]]
    assert len(table) > 50
    for theirs, of, key in table:
        if key.startswith("--"):
            says(flags, re.compile(rf"^  {key}[\[ ]"))
        elif key != "plugin":
            assert (f"[{of}]", key) in keys, theirs


def test_finished_run():
    says(weft("train run.ini --resume"), "finished", "2 steps", "train.steps=4 --resume")
    said = weft("train run.ini train.steps=3 train.global_batch=8 --resume", status=FAILS)
    says(said.err, "differs")
    assert said.out == ""  # no header
    says(weft("train run.ini train.steps=3 --resume").out, "finished", count=0)


def loss_of(said):
    return re.search(r"(?m)^loss +(.*)$", said.out).group(1)


def test_loss_of_a_run():
    """A finished run has the loss of its end, from which a resume goes on."""
    train = "train run.ini run.out=losses eval.every=1"
    last = re.fullmatch("([0-9.]+) -> ([0-9.]+) on validation", loss_of(weft(train))).group(2)
    assert loss_of(weft(f"{train} --resume")) == f"{last} on validation"
    assert re.fullmatch(f"{re.escape(last)} after step 2 -> [0-9.]+ on validation",
                        loss_of(weft(f"{train} --resume train.steps=4")))


@pytest.mark.parametrize("command, strategy", [
    ("plan run.ini", "fsdp"), ("train run.ini --overwrite", "fsdp"), ("plan run.ini", "ddp"), ("plan run.ini", "mp"),
    ("plan run.ini", "single"), ("train run.ini --overwrite", "single")])
def test_strategy_on_one_rank(command, strategy):
    said = weft(command, f"strategy.plugin={strategy}")
    says(said, f"strategy {strategy} ", "has one rank in this run", count=int(strategy != "single"))


def learned():
    return [[record[key] for key in ("step", "loss", "lr", "grad_norm", "tokens")]
            for record in records("one/metrics.jsonl")]


@pytest.fixture
def crowd(monkeypatch):
    """The device crowd, on which CROWD selects what is faster."""
    monkeypatch.setenv("WEFT_PLUGIN_PATH", f"{BUILD}/tests/faults:{BUILD}/plugins")


@pytest.mark.parametrize("faster, arguments, reports", [
    (None, "device.threads=2", True), (None, "device.threads=1", False), ("one", "device.threads=2", False),
    (None, "device.threads=2 --quiet", False),
    (None, "device.threads=2 model.path=wide train.steps=1 train.global_batch=2 checkpoint.every=none", False)])
def test_one_thread_is_faster(crowd, faster, arguments, reports):
    """That is reported once, if the results are the same and the work is small."""
    make_model("wide", 128, 32, 56, 2, 131072)
    said = weft("train run.ini --overwrite device.plugin=crowd", *arguments.split(), env={"CROWD": faster})
    says(said.err, "one thread is faster than 2", "device.threads=1", count=int(reports))
    if reports:
        says(said, "crowd: 2 threads")
        by_two = learned()
        weft("train run.ini --overwrite device.plugin=crowd device.threads=1")
        assert learned() == by_two


@pytest.mark.parametrize("command, faster, precision, reports", [
    ("train run.ini --overwrite", "bf16", "bf16", True), ("plan run.ini", "bf16", "bf16", True),
    ("train run.ini --overwrite", "bf16", "fp32", False), ("plan run.ini", "bf16", "fp32", False),
    ("train run.ini --overwrite --quiet", "bf16", "bf16", False), ("train run.ini --overwrite", "fp32", "bf16", False)])
def test_bf16_is_slower(crowd, command, faster, precision, reports):
    """That is reported once, if 16 bits are requested."""
    said = weft(command, "device.plugin=crowd", "device.threads=1", f"train.precision={precision}",
                env={"CROWD": faster})
    says(said.err, "bf16 is slower than fp32", "train.precision=fp32", count=int(reports))


def test_unused_section_of_a_device(crowd):
    weft("config check", SOURCE / "configs/prove.ini", "device.plugin=crowd")
