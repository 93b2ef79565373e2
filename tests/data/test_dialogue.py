"""The SDK's example of a data plugin: built with the headers only, it reads its own format, renders it by the model's
chat template, and has the loss of the plugin `instruct` for the same conversations."""
import json
import re
import shutil

import pytest
from harness import SOURCE, build_plugin, read, refused, says, weft, write, write_ini

EXAMPLE = SOURCE / "sdk/template/data-dialogue/dialogue.c"
LONG = 300 * "k"


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    shutil.copytree(SOURCE / "configs/chess/base", "model")
    shutil.copy(SOURCE / "tests/golden/instruct/chat_template.jinja", "model")
    build_plugin("data", "dialogue", EXAMPLE, flags=["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
    write_ini("run.ini", run="out=out", model="plugin=llama path=model", tokenizer="plugin=bpe",
              data="plugin=plugins/weft-data-dialogue.so path=talk.txt context=64",
              train="steps=2 global_batch=2 micro_batch=2", optimizer="plugin=adamw", device="plugin=cpu")
    write("talk.txt", "e4 | e5 | f4 | exf4\nwhat </s> is it | d5\n")
    turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 2, "e4 e5 f4 exf4".split())]
    instruct("talk.jsonl", {"messages": turns}, {"prompt": "what </s> is it", "completion": "d5"})


def instruct(file, *records):
    """Writes records; returns the words that read them with the plugin instruct."""
    write(file, "".join(json.dumps(record) + "\n" for record in records))
    return ["data.plugin=instruct", f"data.path={file}"]


def test_size_of_the_example():
    assert sum(not re.match(r" *(/\*.*|\*.*)?$", line) for line in read(EXAMPLE).splitlines()) < 150


def test_dialogue():
    shown = weft("data show run.ini -n 2").out
    says(shown, "<user> f4")
    says(shown, "[[exf4</s>]]")
    mine, theirs = (weft("eval run.ini --json", *words).json for words in (
        [], ["data.plugin=instruct", "data.path=talk.jsonl", "data.packing=no"]))
    assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
    weft("train run.ini")
    refused("data show run.ini data.context=8", says=["talk.txt:1: ", "8"])


def test_names_of_any_length_in_instruct():
    """In columns, in ignore, and in paths of ignore."""
    words = instruct("pair.jsonl", {f"{LONG}q": "e4", f"{LONG}a": "e5"})
    says(weft("data show run.ini", *words, f"data.columns={LONG}q, {LONG}a"), "[[e5</s>]]")
    words = instruct("long.jsonl", {"messages": [
        {"role": "user", "content": "e4", f"{LONG}x": {f"{LONG}y": 1}}, {"role": "assistant", "content": "e5"}],
        f"{LONG}z": 1})
    refused("data show run.ini", *words, says=f"ignore = {LONG}z")
    refused("data show run.ini", *words, f"data.ignore={LONG}z", says=f"ignore = {LONG}x")
    for ignored in f"{LONG}x", f"{LONG}x.{LONG}y":
        says(weft("data show run.ini", *words, f"data.ignore={LONG}z, {ignored}"), "[[e5</s>]]")
