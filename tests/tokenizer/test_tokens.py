"""`tokenizer.add` adds special tokens to a tokenizer, and rows to the model that are trained with an adapter; all are
saved. The result can be read, resumed and merged, with the same bits on three ranks. Conversations end with such a
token. adapter/test_peft_loads.py tests that transformers and PEFT read it."""
import os
import re
import shutil

import pytest
from harness import (BUILD, change_json, eval_loss, full_only, make_model, make_run, needs, read, read_json, refused,
                     same_tensors, says, weft, write, write_json)

ADAPTER = "adapter.plugin=lora adapter.r=4"
ROWS, LORA = 514 * 40, 3 * 4 * (2 * 80 + 2 * 60 + 3 * 128)
START, END = "<|im_start|>", "<|im_end|>"


def near(value, most=1e-9):
    return pytest.approx(value, abs=most)


def train(out, words="", *arguments, ini="run.ini"):
    return weft(f"train {ini} --overwrite run.out={out} {words}", *arguments)


def config(directory, file="config.json"):
    return read_json(f"{directory}/{file}")


def unchanged(a, b, file="generation_config.json"):
    assert read(f"{a}/{file}") == read(f"{b}/{file}")


@pytest.fixture(scope="module", autouse=True)
def result(scratch):
    """base is a model of 512 ids; out a run with two more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{BUILD}/plugins")
        make_run("steps = 4\nclip = 1.0\n[eval]\nevery = none\n[checkpoint]\nevery = 2\n"
                 f"[tokenizer]\nadd = {START}, {END}\n[optimizer]\nlr = 1e-2\n[device]\nthreads = 1\n")
        make_model("fresh", 40, 10, 88, 3, 512)
        write("run.ini", read("run.ini").replace("path   = model", "path   = base").replace("= fresh", "= weights"))
        train("first", "model.path=fresh model.start=fresh tokenizer.add= checkpoint.every=none train.steps=2")
        os.rename("first/model", "base")
        yield train("out")


def test_saved_files(result):
    says(result, re.compile("^.*2 .*512 .*513.*2 .*rows"))
    assert config("out/model")["vocab_size"] == 514 and "pad_token_id" not in config("out/model")
    unchanged("out/checkpoints/step-4", "out/model", "model.safetensors")
    added = config("out/model", "tokenizer.json")["added_tokens"][-2:]
    assert [(token["id"], token["content"]) for token in added] == [(512, START), (513, END)]
    assert "pad_token" not in config("out/model", "tokenizer_config.json")
    assert "513" in weft("tokenize out/model", stdin=f"e4{END}").out.split()
    assert eval_loss("run.ini tokenizer.add= model.path=out/model") == near(eval_loss("out"))


def test_pad_token_and_spare_row():
    train("pad", "tokenizer.pad=add checkpoint.every=none")
    assert (config("pad/model")["vocab_size"], config("pad/model")["pad_token_id"]) == (515, 514)
    shutil.copytree("fresh", "spare")
    change_json("spare/config.json", vocab_size=513)
    says(train("spared", "model.path=spare model.start=fresh checkpoint.every=none"), re.compile(r"\b1 more row\b"))
    assert config("spared/model")["vocab_size"] == 514


def test_tokenizer_directory_of_its_own():
    """The run reads the saved tokenizer, which has tokens, pad and end."""
    text = re.sub("(?m)^add = .*\n", "", read("run.ini"))
    write("elsewhere.ini", text.replace("[tokenizer]", "[tokenizer]\npath = base"))
    train("elsewhere", "tokenizer.pad=add checkpoint.every=none", f"tokenizer.add={START},{END}", ini="elsewhere.ini")
    assert eval_loss("elsewhere") == near(eval_loss("run.ini tokenizer.add= model.path=elsewhere/model"))
    words = f"--prompt '{START}e4' --tokens 4 --temperature 0 --json"
    assert weft(f"generate elsewhere {words}").out == weft(
        f"generate elsewhere tokenizer.path=elsewhere/model {words}").out


# ---- with an adapter: the embedding tables are trained too


@pytest.fixture(scope="module")
def tied():
    """The loss of a run with an adapter."""
    train("tied", ADAPTER)
    return eval_loss("tied")


def test_trained_parameters():
    for words, number in ("", LORA + ROWS), ("train.trainable=adapter", LORA):
        assert weft(f"plan run.ini --json {ADAPTER} {words}").json["trained"] == number
    says(train("untrained", f"{ADAPTER} train.steps=1 train.trainable=adapter checkpoint.every=none").err,
         "[train] trainable = adapter")


def test_adapter_and_its_tokens(scratch, tied):
    assert tied != eval_loss("run.ini")
    assert eval_loss(f"run.ini {ADAPTER} --adapter tied/model") == near(tied)
    facts = ["tied/model", f"[tokenizer] add = {START},{END}"]
    refused("eval run.ini tokenizer.add= --adapter tied/model", says=facts)
    for add in f"{END},{START}", START, f"{START},{END}x", "<a>,<b>":
        refused("eval run.ini --adapter tied/model", f"tokenizer.add={add}",
                says=[f"{scratch}/tied/model", f"add = {START},{END}"])
    shutil.copytree("tied/model", "untold", ignore=shutil.ignore_patterns("tokenizer.json"))
    refused("eval run.ini tokenizer.add= --adapter untold", says=["514", "512", "[tokenizer] add"])
    weft("merge base tied/model merged")
    assert config("merged")["vocab_size"] == 514 and END in read("merged/tokenizer.json")
    assert eval_loss("run.ini tokenizer.add= model.path=merged") == near(tied, 1e-5)


def test_resumed(tied):
    train("parts", f"{ADAPTER} train.steps=2")
    weft(f"train run.ini --resume run.out=parts {ADAPTER}")
    same_tensors("tied/model", "parts/model")
    refused(f"train run.ini --resume run.out=parts {ADAPTER} tokenizer.add= train.steps=6", says="model")
    # A packed base: linears are packed, embedding tables are not.
    train("packed", f"{ADAPTER} model.base=nf4 checkpoint.every=none train.steps=1")
    assert eval_loss(f"run.ini {ADAPTER} model.base=nf4 --adapter packed/model") == near(eval_loss("packed"))


# ---- conversations: a template with tokens that the tokenizer lacked

CHAT = ("data.plugin=instruct data.path=chat.jsonl data.template=chatml data.validation=none data.context=48 "
        "checkpoint.every=none ")


@pytest.fixture(scope="module")
def talks():
    """An adapter, talks, and a model, whole, trained on conversations from a base with files of generation."""
    write("chat.jsonl", "".join(f'{{"messages": [{{"role": "user", "content": "{turn}. e4"}}, '
                                '{"role": "assistant", "content": "e5"}]}\n' for turn in range(1, 9)))
    write("chat.ini", re.sub("(?m)^document.*\n", "", read("run.ini")))
    shutil.copytree("base", "generating")
    write_json("generating/generation_config.json", {"_from_model_config": True, "eos_token_id": 2})
    write_json("generating/special_tokens_map.json", {"eos_token": {"content": "</s>"}, "bos_token": "<s>"})
    result = train("talks", CHAT + ADAPTER, ini="chat.ini")
    train("whole", f"{CHAT} checkpoint.every=2 model.path=generating", ini="chat.ini")
    return result


def test_trained_end_is_saved(talks):
    """With an adapter, merged, and in a full model, where it is saved again without a message."""
    says(talks, END, "513", "8 of 8")
    says(talks, f"{END}: eos_token_id", "513, 2")
    weft("merge base talks/model ended")
    for model, files in {"talks/model": ["generation_config.json"], "ended": ["config.json"], **dict.fromkeys(
            ["whole/model", "whole/checkpoints/step-4"], ["config.json", "generation_config.json"])}.items():
        assert [config(model, file)["eos_token_id"] for file in files] == [[513, 2]] * len(files)
        assert config(model, "tokenizer_config.json")["eos_token"] == END
        assert "whole" not in model or config(model, "special_tokens_map.json")["eos_token"] == END
    result = train("again", f"model.path=whole/model tokenizer.add= {CHAT} train.steps=1", ini="chat.ini")
    says(result, "eos_token_id", count=0)
    for file in "config.json", "generation_config.json", "tokenizer_config.json":
        unchanged("whole/model", "again/model", file)


def test_end(talks):
    train("kept", f"model.path=generating {CHAT} tokenizer.end=keep train.steps=1", ini="chat.ini")
    unchanged("generating", "kept/model")
    assert config("kept/model")["eos_token_id"] == 2
    assert config("kept/model", "tokenizer_config.json").get("eos_token") != END
    train("named", f"model.path=generating 'tokenizer.end={START}' train.steps=1")
    assert config("named/model", "generation_config.json")["eos_token_id"] == [512, 2]
    refused(f"train chat.ini --overwrite run.out=bad {CHAT} 'tokenizer.end=<|nope|>'",
            says="[tokenizer] end = <|nope|>")
    # Text without a template keeps the end.
    train("text", "model.path=generating train.steps=1")
    unchanged("generating", "text/model")
    assert "</s>" in str(config("text/model", "special_tokens_map.json")["eos_token"])
    # A template with eos_token keeps the tokenizer's.
    shutil.copytree("generating", "writes")
    write("writes/chat_template.jinja",
          "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{{ eos_token }}")
    train("own", f"model.path=writes {CHAT} data.template=own train.steps=1", ini="chat.ini")
    assert config("own/model", "generation_config.json")["eos_token_id"] == [513, 2]
    assert config("own/model", "tokenizer_config.json").get("eos_token") != END


def test_template_of_a_run(talks):
    """generate --chat on a run with an adapter, or on its directory, uses the template there."""

    def chat(words):
        return weft(f"generate {words} --chat --tokens 4 --temperature 0", stdin="1. e4\n").out

    assert chat("talks") == chat("talks/model") == chat("talks --template chatml")
    train("bare", f"model.path=whole/model tokenizer.add= {CHAT} {ADAPTER}", ini="chat.ini")
    write("bare/model/chat_template.jinja", "{% for m in messages %}({{ m.content }}<|im_end|>{% endfor %}")
    shutil.copytree("whole/model", "other")
    shutil.copy("bare/model/chat_template.jinja", "other")
    assert chat("bare") == chat("bare tokenizer.path=other")


def test_generation_stops_at_the_end_tokens_of_the_files(talks):
    words = "generate talks --prompt '1. e4' --tokens 6 --temperature 0 --json"
    every = weft(f"{words} --ignore-eos")
    file = "talks/model/generation_config.json"
    write(file, read(file).replace("513", str(every.json["ids"][0])))
    assert weft(words).out != every.out
    result = train("plain", f"{CHAT} {ADAPTER} tokenizer.add= train.steps=1", ini="chat.ini")
    says(result, "513", count=0)  # nobody added the token


@pytest.mark.parametrize("words, facts", [
    (f"tokenizer.add={END},<unk>", [f"[tokenizer] add = {END},<unk>", "/base", "id 0"]),
    ("tokenizer.add=e", ['"e"', "id"]),
    ("tokenizer.add=<a>,<b>,<a>", ["<a>"]), ("tokenizer.add=<a>,,<b>", ["add = <a>,,<b>"]),
    ("tokenizer.add=<pad> tokenizer.pad=add", ["<pad>", "pad = add"]),
    ("model.path=out/model", [START, "/out/model", "512"]),
    ("train.additional_special_tokens=x", ["add in [tokenizer]"])])
def test_errors(words, facts):
    refused("plan run.ini", *words.split(), says=facts)


def test_three_ranks(tied):
    needs("mpich")
    train("many", f"{ADAPTER} comm.plugin=mpi-mpich strategy.plugin=fsdp policy.plugin=class policy.classes=Linear "
          "--ranks 3")
    same_tensors("tied/model", "many/model")


@full_only
@pytest.mark.parametrize("model", ["model.path=base", "model.path=untied model.start=fresh"])
def test_proof_on_three_ranks(model):
    needs("mpich")
    if "untied" in model:
        shutil.copytree("fresh", "untied")
        change_json("untied/config.json", tie_word_embeddings=False)
    says(weft(f"prove run.ini {model} {ADAPTER} comm.plugin=mpi-mpich --ranks 3 --steps 2"),
         " equal, 0 not covered, 0 different")
