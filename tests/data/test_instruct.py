"""Data plugin `instruct`: it trains on the same tokens as transformers; every form of data is the same conversation; an
unusable value is an error with file, line and value. In the output of `data show`, [[ ]] encloses what is trained."""
import itertools
import json
import os
import re
import shutil

import pytest
from harness import (ASSETS, FULL, SOURCE, WEFT, hashes, read, refused, run, says, weft, write, write_ini)

GOLDEN = SOURCE / "tests/golden/instruct"
EXPECTED = {line.split()[0]: [float(word) for word in line.split()[1:]]
            for line in read(GOLDEN / "expected.txt").splitlines()}
ONE = ["train.steps=1", "train.global_batch=1", "train.micro_batch=1"]
MESSAGES = "{% for m in messages %}<{{ m.role }}>"  # parts of templates
CALLS = "{% for c in m.tool_calls %}({{ c.id }}){% endfor %}"
END = "</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    shutil.copytree(SOURCE / "configs/chess/base", "model")
    shutil.copy(GOLDEN / "chat_template.jinja", "model")
    write_ini("run.ini", run="out=out", model="plugin=llama path=model", tokenizer="plugin=bpe",
              data=f"plugin=instruct path={GOLDEN}/conversations.jsonl context=256",
              train="steps=2 global_batch=4 micro_batch=4", optimizer="plugin=adamw", device="plugin=cpu")


def model_with(template):
    """Makes a model with that chat template and returns the argument that selects it."""
    shutil.copytree("model", "templated", dirs_exist_ok=True)
    write("templated/chat_template.jinja", template)
    return "model.path=templated"


def user(content, **keys):
    return {"role": "user", "content": content, **keys}


def answer(content, **keys):
    return {"role": "assistant", "content": content, **keys}


def talk(*messages, **keys):
    return {"messages": list(messages), **keys}


def pair(prompt, completion, **keys):
    return {"prompt": prompt, "completion": completion, **keys}


def data(content, file="x.jsonl"):
    """Writes records, text or bytes, and returns the argument that selects the file."""
    if isinstance(content, bytes):
        write(file, "").write_bytes(content)
    else:
        write(file, content if isinstance(content, str) else "".join(json.dumps(record) + "\n" for record in content))
    return f"data.path={file}"


def show(content, *arguments, file="x.jsonl", shows=(), lacks=()):
    """Shows the data's rows, whose text has each of `shows`, with its number if that is a pair, and none of `lacks`."""
    said = weft("data", "show", "run.ini", "--n=99", data(content, file), *arguments)
    for text in shows:
        text, count = text if isinstance(text, tuple) else (text, None)
        assert said.out.count(text) == count if count else text in said.out
    for text in lacks:
        assert text not in said.out
    return said


@pytest.mark.parametrize("packing", ["yes", "no"])
@pytest.mark.parametrize("on", ["answers", "last"])
def test_loss_equals_that_of_transformers(on, packing):
    """On all answers and on the last ones, with the same ids and masks."""
    said = weft("eval", "run.ini", "data.special_tokens=yes", f"data.loss_on={on}", f"data.packing={packing}", "--json")
    assert [said.json["loss"], said.json["tokens"]] == pytest.approx(EXPECTED[on], rel=1e-5)
    assert said.json["tokens"] == EXPECTED[on][1]
    says(said.err, "</s> (id 2)", "84 of 84 answers")


def test_end_token_that_is_not_trained():
    said = weft("data", "show", "run.ini", "-n", "99", "data.train_end=no")
    assert "</s>]]" not in said.out
    says(said.err, "train_end = no")
    says(show([pair("a", "b")], "data.template=chatml", "data.train_end=no").err, "end that is text")


QUOTED = '1. "4", e5'.replace('"4"', '"e4"')
FORMS = {  # the same conversation
    "messages.json": json.dumps([talk(user(QUOTED), answer("d4"))]) + "\n",
    "turns.jsonl": [{"conversations": [{"from": "human", "value": QUOTED}, {"from": "gpt", "value": "d4"}]}],
    "alpaca.jsonl": [{"instruction": QUOTED, "input": "", "output": "d4"}],
    "pair.jsonl": [pair(QUOTED, "d4", id=123456789012345678901234567890)],
    "table.csv": 'question,answer\r\n"1. ""e4"", e5",d4\r\n', "table.tsv": 'prompt\tresponse\n1. "e4", e5\td4\n',
    "table.CSV": 'prompt;response\n"1. ""e4"", e5";d4\n',
    "named.jsonl": "\ufeff" + json.dumps({"q": QUOTED, "a": "d4"}),
    "roles.jsonl": [talk({"role": "human", "content": QUOTED}, {"role": "gpt", "content": "d4"})],
    "nulls.jsonl": [{"messages": None, "instruction": None, "question": QUOTED, "answer": "d4"}],
    "response.jsonl": [{"instruction": QUOTED, "context": "", "response": "d4"}],
    "said.csv": 'sep=|\n\nprompt|response\n"1. ""e4"", e5"|d4\n'}


@pytest.mark.parametrize("file", FORMS)
def test_forms(file):
    arguments = {"table.CSV": ["data.separator=semicolon"], "named.jsonl": ["data.columns=q, a"]}.get(file, [])
    show(FORMS[file], *arguments, file=file, shows=[f"<user> {QUOTED}\n<s>[[d4</s>]]"])


def test_all_fields_of_alpaca():
    whole = [{"instruction": "Add.", "input": "1 2", "output": "3", "system": "S", "history": [["a", "b"]]}]
    show(whole, shows=["<system> S\n<user> a\n<s>[[b</s>]]<user> Add.\n\n1 2\n<s>[[3</s>]]"])
    show(whole, "data.template=alpaca", "data.loss_on=last", shows=["### Response:", "### Input:"], lacks=["[[b"])
    show([pair("a", "b")], "data.system=Be-brief.", shows=["<system> Be-brief."])


def test_empty_answers(scratch):
    """They are counted; an answer that calls a tool is not empty."""
    empty = [pair("a", "b"), pair("a", ""), pair("a", ""), talk(user("a"), answer("", tool_calls=[{"id": "1"}])),
             talk(user("a"), answer(" \n", tool_calls=[]))]
    calls = model_with(MESSAGES + "{{ m.content }}" + CALLS + END)
    says(show(empty, calls).err, "3 of 5 conversations", f"{scratch}/x.jsonl:2")
    says(weft("data", "stats", "run.ini", data(empty), calls).out, re.compile("empty answer +3$"))
    says(show(empty, calls, "data.loss_on=text").err, "empty answer", count=0)
    says(show([talk(user("a"), answer(""), user("a"), answer("b"))], "data.template=chatml", "data.loss_on=last").err,
         "empty answer", count=0)
    refused("data", "show", "run.ini", data([pair("a", ""), pair("b", " ")]), says=["2 conversations", "empty"])


@pytest.mark.parametrize("arguments, count", [([], 1), (["data.special_tokens=yes"], 2)])
def test_special_tokens_in_text(arguments, count):
    """They are plain text, unless a key is set."""
    show([pair("a </s> b", "c")], "--tokens", *arguments, shows=[('"</s>"', count)])


def test_control_characters():
    controls = [pair("a \x1b[31m \x9b32m \x7f é", "c")]
    show(controls, shows=["a ?[31m ?32m ? é"])
    show(controls, "--tokens", shows=['"\\x1B', '"\\xC2'], lacks=["\udcc2", "\x9b"])


@pytest.mark.parametrize("colours", [True, False])
def test_terminal(colours):
    """What is trained is green."""
    if not shutil.which("script"):
        pytest.skip("data show on a terminal, for lack of script")
    screen = run("script", "-qec", f"{WEFT} data show run.ini {data(FORMS['alpaca.jsonl'])}", "/dev/null",
                 env={"NO_COLOR": None if colours else "1"}).out
    assert ("\x1b[32md4</s>\x1b[0m" in screen, "[[d4</s>]]" in screen) == (colours, not colours)


def test_too_long():
    """The front of the prompt is removed; an answer longer than the context loses its end; or the record is dropped."""
    long = [pair(f"front {'x' * 60} back", "kept"), pair("q", "x" * 120), pair("s", "t")]
    said = show(long, "data.context=40", shows=["[[kept</s>]]"], lacks=["front"])
    says(said.err, "1 answers", "context = 40")
    says(said.err, "of 3 conversations", "context = 40")
    drop = ["data.context=40", "data.too_long=drop"]
    says(show(long, *drop, lacks=["kept"]).err, "2 of 3 conversations", "context = 40", "dropped")
    says(weft("data", "stats", "run.ini", data(long), *drop).out, re.compile("left out +2$"))


def test_files_with_weights(scratch):
    for name, text in ("b.jsonl", "from b"), ("deep/c.jsonl", "from b"), ("a.jsonl", "from a"):
        data([pair(text, "1")], name)
    show([pair("from a", "1")], "data.files=b.jsonl:3", "data.packing=no", shows=[("sequence ", 4), ("from b", 3)])
    ini = re.sub("(?m)^path=/.*$", "path=../a.jsonl\nfiles=../b.jsonl:2, c.jsonl", read("run.ini"))
    write("deep/run.ini", ini.replace("path=model", "path=../model"))
    weft("config", "check", "deep/run.ini")
    assert weft("data", "show", "deep/run.ini", "-n", "99", "data.packing=no").out.count("from b") == 3
    says(weft("config", "explain", "deep/run.ini").out, f"{scratch}/b.jsonl:2,{scratch}/deep/c.jsonl")
    os.unlink("deep/c.jsonl")
    refused("config", "check", "deep/run.ini", says=["deep/run.ini:11: [data] files = ", f"({scratch}/deep/c.jsonl)"])
    refused("data", "show", "run.ini", "data.files=b.jsonl:x", says=["files: ", f"{scratch}/b.jsonl:x", "0 and 1000"])


@pytest.mark.parametrize("rows, arguments", [(5, ["--validation"]), (35, ["data.group_by_length=7"])])
def test_validation(rows, arguments):
    said = weft("data", "show", "run.ini", "-n", "99", "data.validation=5", "data.packing=no", *arguments)
    says(said.out, re.compile("^sequence"), count=rows)


def test_rows_of_similar_length():
    """They are consecutive; an epoch has each once; the order of groups and in groups is random."""
    order = [13, 2, 19, 7, 16, 4, 11, 1, 9, 20, 5, 14, 8, 17, 3, 12, 18, 6, 15, 10]
    records = [pair("=" * n, "a") for n in order]
    used, alone = ([int(n) for n in re.findall(r"(?m)^sequence \d+: 1 document, (\d+) of ", show(
        records, "data.packing=no", *arguments).out)] for arguments in (["data.group_by_length=4"], []))
    groups = [used[i:i + 4] for i in range(0, 20, 4)]
    assert len(set(used)) == len(used) == 20 and all(max(group) - min(group) <= 3 for group in groups)
    assert sum(b != a + 1 for a, b in zip(used, used[1:])) >= 4 and sorted(used) == sorted(alone)


def test_records_without_a_target(scratch):
    """They are counted and located; if all are, that is an error."""
    said = show([pair("a", "b"), pair("c", ""), talk(user("a"))])
    says(said.err, "1 of 3 conversations", f"{scratch}/x.jsonl:3")
    refused("data", "show", "run.ini", data([talk(user("a"))]), says=["1 conversations", "answer"])
    show([pair("a", "b"), pair("c", "")], "data.template=chatml")


def test_system_turns():
    """In each form, and as parts of text."""
    parts = {"role": "assistant", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "b", "x": None}]}
    records = [talk(user("a"), answer("b"), system="S"),
               {"system_prompt": "S", "conversations": [{"from": "human", "value": "a"},
                                                        {"from": "gpt", "value": "b"}]},
               {"system": "S", "instruction": "a", "output": "b"}, pair("a", "b", system="S"),
               talk(user([{"type": "text", "text": "a"}]), parts, system="S")]
    show(records, "data.system=other", shows=[("<system> S\n", 5), ("<s>[[b</s>]]", 5)])
    table = "system,question,answer\nS,a,b\n"
    show(table, "data.system=other", file="x.csv", shows=[("<system> S\n", 1), ("<s>[[b</s>]]", 1)])
    show(table, "data.columns=question, answer", file="x.csv", shows=["<system> S"])  # the other keys remain
    # A template that reads content as parts gets parts, also for a string. Its system turn is a string.
    template = (MESSAGES + '{% if m.role == "system" %}{{ m.content }}{% else %}{% for c in m.content %}'
                '{% if c.type == "text" %}{{ c.text }}{% endif %}{% endfor %}{% endif %}' + END)
    show([records[0], records[4]], model_with(template), shows=[("<system>S</s><user>a</s><assistant>[[b</s>]]", 2)])


def test_json_in_strings():
    """With numbers beyond 64 bits."""
    calls = model_with("{% if tools %}{{ tools | tojson }}{% endif %}" + MESSAGES + "{{ m.content }}"
                       "{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}" + END)
    show([talk(user("a"), answer(None, tool_calls='[{"x":18446744073709551615,"y":9223372036854775807,"z":1e2}]'),
               tools='[{"n":3,"big":-9223372036854775809}]')], calls,
         shows=['[{"n": 3, "big": -9223372036854775809}]<user>a</s>',
                '{"x": 18446744073709551615, "y": 9223372036854775807, "z": 100.0}</s>]]'])
    function = {"name": "f", "arguments": '{"x": 18446744073709551616}'}
    show([talk(user("a"), answer("", tool_calls=[{"function": function}]))], calls,
         shows=['"arguments": {"x": 18446744073709551616}'])


def test_flags_of_messages():
    """They include or exclude a message; the position of a template's blocks is irrelevant."""
    flags = [talk(user("a"), answer("b", **{key: value}), user("c", weight=0), answer("d", train=True)) for key,
             value in (
        ("weight", 0), ("train", False), ("loss", False), ("training", False), ("weight", 0.0))]
    show(flags, shows=[("<s>b</s><user> c", 5), ("<s>[[d</s>]]", 5)])
    show(flags, model_with(MESSAGES + "{{ m.content }}" + END),
         shows=[("<assistant>b</s><user>c</s><assistant>[[d</s>]]", 5)])
    turns = [{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "weight": 1},
                                {"from": "gpt", "value": "d", "weight": 0}]}]
    show(turns, shows=["<s>[[b</s>]]<s>d"])
    show(turns, "data.loss_on=text", lacks=["<s>d</s>]]"])
    refused("data", "show", "run.ini", data([talk(user("Q"), answer("A", weight=0))]),
            says=["1 conversations", "answer"])
    three = [user("a"), answer("A!", weight=1), user("b"), answer("", weight=0), user("c"), answer("C", weight=1)]
    for count, messages in (2, three), (1, three[:4]):
        said = show([talk(*messages)], shows=["<s>[[A!</s>]]"])
        says(said.err, f"{count} of {count} answers")
        says(said.err, "empty answer", count=0)


def test_fields_of_a_table():
    """They equal those of Python's csv."""
    show('question,answer\n5" of ""x"",a"b"\n"1"x,"2""3"4"5\n"q\nr, s" ,"t"\n', file="x.csv", shows=[
        '<user> 5" of ""x""\n<s>[[a"b"</s>]]', '<user> 1x\n<s>[[2"34"5</s>]]', "q\nr, s "])
    said = show("question,answer\r\n\r\na,b\r\n\r\n\r\nc,d\r\n\r\n", file="x.csv",
                shows=["<s>[[b</s>]]", "<s>[[d</s>]]"])
    says(said.err, "x.csv: 3 empty lines", "line 2")


TOOL = talk(user("a"), {"role": "tool", "content": "b"})
ERRORS = [  # records, facts, arguments
    ([pair("a", "b"), pair(1, "b")], ["x.jsonl:2: ", '"prompt"', "number", "string"]),
    ('{"prompt":"a","completion":"b"}\n\n', ["x.jsonl:2: "]),
    ('{"prompt":"a","completion":"b","n":123\0}\n', ["x.jsonl:1: ", "NUL"]),
    ('{"prompt":"a"\n', ["x.jsonl:1: ", "JSON"]),
    ("[1]\n", ["x.jsonl:1: ", "object"]), ([{"text": "a"}],
                                           ["x.jsonl:1: ", "messages", "prompt and completion", ": text"]),
    ([{"text": "a"}], ["x.jsonl:1: ", '"q"'], "data.columns=q, a"),
    ([{"conversations": [{"from": "dog", "value": "a"}]}],
     ["x.jsonl:1: ", "turn 1", '"dog"', "Allowed: human, user, gpt,"]),
    ([pair("a", "b", meta=1, n=None)], ["x.jsonl:1: ", ": meta. Fix: [data] ignore = meta"]),
    ([{"conversations": [{"from": "human", "value": "a", "lang": "de"}]}], ["turn 1", ": lang. Fix:"]),
    ([talk(user("a", lang="de"))], ["x.jsonl:1: message 1: ", '"lang"']),
    ([talk({"role": "usr", "content": "a"})], ["x.jsonl:1: message 1: role = \"usr\"", "Allowed: system,"]),
    *(([TOOL], ["role tool", "allowed: user, assistant,"], f"data.template={name}")
      for name in ("alpaca", "llama2", "mistral")),
    ([talk(user("a"), tools=[{"a": 1}])], ["x.jsonl:1: ", '"tools"']),
    ([talk({"role": "system", "content": "a"}, system="S")], ["x.jsonl:1: ", '"system"', "role"]),
    ([talk(user([{"type": "image"}]))], ["part 1", "message 1", '"image"', "Allowed: {"]),
    ([talk(user([{"type": "text", "text": "a", "m": 1}]))], ["part", ": m."]),
    ([talk(user(7))], ["message 1", "number"]),
    ([talk(user(None))], ["message 1", "no content"]),
    ([talk(answer("a", weight=0.5))], ['"weight"', "Allowed: 0, 1, false, true"]),
    ([talk(answer("a", weight=0, train=True))], ['"weight"', "contradicts"]),
    ([talk(user("a", loss=True))], ['"loss"', '"user"']),
    ([{"instruction": "a", "output": "b", "history": [["a", "b", "c"]]}], ["turn 1", '"history"']),
    ([talk(user("a", name="bob"))], ["x.jsonl:1: message 1: ", '"name"']),
    ([talk({"content": "a"})], ["x.jsonl:1: message 1", '"role"']),
    ([{"instruction": "a", "output": "b", "system": 7}], ["x.jsonl:1: ", '"system"', "number", "string"]),
    ([pair("a", "b", chat_template_kwargs="x")], ["x.jsonl:1: ", '"chat_template_kwargs"', "string", "JSON"]),
    ([pair("a", "b", chat_template_kwargs=[])], ["x.jsonl:1: ", '"chat_template_kwargs"', "array", "object"]),
    ([pair("a", "b", tools="{}")], ["x.jsonl:1: ", '"tools"', "object", "array"]),
    ([pair("a", "b", tools=["t"])], ["x.jsonl:1: element 1 ", '"tools"', "string", "object"]),
    ([pair("a", "b")], ["nonsuch", "Allowed: alpaca"], "data.template=nonsuch")]
FILES = [
    ("x.csv", "question,answer,topic,\na,b,c,4\n", ["x.csv:2: ", ": topic. Fix: [data] ignore = x, topic"],
     "data.ignore=x"),
    ("x.json", '[\n{"prompt":"a","completion":"b"},\n{"prompt":\n', ["x.json:3: "]),
    ("x.json", '{"prompt":"a"}', ["x.json:1: ", "array"]),
    ("x.json", '[{"prompt":"a","completion":"b"}] 1', ["x.json:1: ", "array"]),
    ("x.csv", "question,answer\n1,2\n1,2,3\n", ["x.csv:3: ", "3 fields", " 2"]),
    ("x.csv", 'question,answer\n"1,2\n', ["x.csv:2: ", "quotes"]),
    ("x.csv", "question,answer\n1,2\n3\n", ["x.csv:3: ", "1 field ", " 2"]),
    ("x.csv", "question;answer\n1;2\n", ["x.csv:1: ", '"question;answer"', "[data] separator = semicolon"]),
    ("x.csv", "question,answer,answer\n1,2,3\n", ["x.csv:1: ", '"answer"', "2 and 3"]),
    ("x.csv", b"\xff\xfeq\0,\0", ["x.csv", "UTF-16", "Allowed: UTF-8. Fix: "]),
    ("x.csv", "a,b\n1,2\n", ["[data] separator = comma"], "data.separator=bar"),
    ("x.txt", "a", ["Allowed: .json, .jsonl, .csv, .tsv"])]


@pytest.mark.parametrize("file, content, facts, arguments", [
    *(("x.jsonl", content, facts, more) for content, facts, *more in ERRORS), *((*row[:3], row[3:]) for row in FILES)])
def test_error(file, content, facts, arguments):
    refused("data", "show", "run.ini", data(content, file), *arguments, says=facts)


def test_ignored_keys():
    calls = [talk(user("a"), answer("", tool_calls='[{"id":"1","function":{"note":"n"}}]'))]
    template = model_with("{% for m in messages %}{{ m.content }}" + CALLS + "</s>{% endfor %}")
    refused("data", "show", "run.ini", data(calls), template, says=["x.jsonl:1: message 2: ", '"tool_calls.function"'])
    show(calls, template, "data.ignore=tool_calls.function", shows=["[[(1)</s>]]"])
    show([pair("a", "b", id=1, source="s")], "data.ignore=source", shows=["<user> a"])
    both = [pair("a", "b", meta=1, messages=[user("e", lang="de"), answer("f")])]
    show(both, "data.ignore=meta, messages", shows=["<user> a"])
    show(both, "data.ignore=meta, prompt, completion, lang", shows=["<user> e"])


def test_header_of_200000_columns():
    """Comparing its names takes linear time: a comparison of pairs would take minutes."""
    wide = ",".join(f"c{i}" for i in range(200000)) + ",question,answer,c7\n1\n"
    refused("data", "stats", "run.ini", data(wide, "wide.csv"), says=['"c7"', "8 and 200003"], timeout=60)


@pytest.mark.parametrize("argument", ["group_by_length=4", "columns=a", "date=soon"])
def test_invalid_key(argument):
    refused("data", "show", "run.ini", f"data.{argument}", says=argument.replace("=", " = "))


def test_model_without_a_usable_template():
    refused("data", "show", "run.ini", model_with('{{ raise_exception("never") }}'), says=["conversations.jsonl:1: "])
    says(refused("data", "show", "run.ini", "model.path=templated"), "line 1: ", "never")
    os.unlink("templated/chat_template.jinja")
    refused("data", "show", "run.ini", "model.path=templated", says=["no chat template"])


def chat(lines, *arguments):
    return weft("generate", "run.ini", "--chat", "--tokens", "6", "--temperature", "0", *arguments, stdin=lines).out


def test_turns_of_a_chat():
    """A line is a turn, which sees the turns and answers before it."""
    assert chat("e4\nd4\n", "--template", "chatml").count("\n") >= 2
    contents = model_with("{{ bos_token }}{% for m in messages %}{{ m.content }}|{% endfor %}")
    first, both = chat("e4\n", contents), chat("e4\nd4\n", contents)
    assert both.startswith(first)
    found = weft("generate", "run.ini", contents, "--prompt", f"e4|{first.rstrip(chr(10))}|d4|", "--tokens", "6",
                 "--temperature", "0", "--json").json["text"]
    assert both[len(first):].replace("\n", "") == found
    chat("", "--prompt", "e4")


@pytest.mark.parametrize("arguments, facts", [(["--system", "x"], ["--system", "--chat"]),
                                              (["--chat", "--template", "x"], ["chat template x"])])
def test_error_of_a_chat(arguments, facts):
    refused("generate", "run.ini", *arguments, "--prompt", "y", says=facts)


@pytest.mark.parametrize("name", ["alpaca", "mistral", *(["llama2", "llama3", "chatml", "gemma"] if FULL else [])])
def test_named_template_is_saved(name):
    """In the model's files, replacing its own, and needs no name later."""
    out = f"named-{name}"
    weft("train", "run.ini", data([pair("1. e4", "e5")]), f"data.template={name}", f"run.out={out}", *ONE,
         "checkpoint.every=1")
    assert read(f"{out}/model/chat_template.jinja") == read(f"{out}/checkpoints/step-1/chat_template.jinja")
    whole = [{"instruction": "Add.", "input": "1 2", "output": "3", "system": "S", "history": [["a", "b"]]}]
    for content in read(GOLDEN / "conversations.jsonl"), whole:
        assert show(content, f"data.template={name}").out == show(content, f"model.path={out}/model").out
    words = ["generate", out, "--chat", "--tokens", "4", "--temperature", "0", "--prompt", "e4"]
    assert weft(*words).out == weft(*words, "--template", name).out


def test_own_template_is_saved():
    weft("train", "run.ini", data([pair("1. e4", "e5")]), "run.out=own-template", *ONE)
    assert read("own-template/model/chat_template.jinja") == read(GOLDEN / "chat_template.jinja")


@pytest.fixture
def several():
    """A model with several templates."""
    path = model_with(read("model/chat_template.jinja"))
    write("templated/additional_chat_templates/tool_use.jinja",
          '{{ bos_token }}{% for m in messages %}{{ m.keys()|join(",") }}='
          "{{ m.content }}|{{ tools|length }}{% endfor %}")
    write("templated/additional_chat_templates/rag.jinja",
          "{{ bos_token }}{% for m in messages %}rag {{ m.content }}|{% endfor %}")
    yield path
    shutil.rmtree("templated")


def test_several_templates(several):
    """A record with tools uses tool_use, and a name selects any."""
    record = [talk({"content": "a", "role": "user"}, answer("b"), tools=[{"type": "function"}])]
    show(record, several, shows=["content,role=a|1[[role,content=b|1]]"])
    show([pair("1. e4", "e5")], several, "data.template=rag", shows=["rag 1. e4|[[rag e5|]]"])
    refused("data", "show", "run.ini", data([pair("a", "b")]), several, "data.template=x",
            says=["template x", "Allowed: alpaca, llama2, llama3, chatml, mistral, gemma, "])


@pytest.mark.parametrize("name", ["own", "rag", "chatml"])
def test_several_templates_are_saved(several, name):
    """Unless the model was trained with a named template, which replaces them."""
    train = ["train", "run.ini", data([pair("1. e4", "e5")]), several, f"run.out=several-{name}",
             f"data.template={name}", *ONE]
    weft(*train, "checkpoint.every=1")
    wanted = {} if name == "chatml" else hashes("templated/additional_chat_templates")
    for saved in "model", "checkpoints/step-1":
        assert hashes(f"several-{name}/{saved}/additional_chat_templates") == wanted
    if name == "own":
        write("several-own/model/additional_chat_templates/mine.txt", "")
        refused(*train, "--overwrite", says=["additional_chat_templates/mine.txt"])


def test_gsm8k():
    """All records are encoded, and the loss of the first answers equals that of transformers."""
    if not all((ASSETS / "data" / file).exists() for file in ("gsm8k_train_alpaca_format.json", "gsm8k_test.jsonl")):
        pytest.skip("gsm8k, which is not among the assets")
    weft("data", "show", "run.ini", "-n", "99", f"data.path={ASSETS}/data/gsm8k_train_alpaca_format.json",
         "data.template=alpaca", "data.context=512")
    with open(ASSETS / "data/gsm8k_test.jsonl", encoding="utf-8") as test:
        path = data("".join(itertools.islice(test, 200)))
    for packing in "yes", "no":
        found = weft("eval", "run.ini", path, "data.context=512", "data.too_long=drop", "data.special_tokens=yes",
                     f"data.packing={packing}", "--json").json
        assert found["loss"] == pytest.approx(EXPECTED["gsm8k"][0],
                                              rel=1e-5) and found["tokens"] == EXPECTED["gsm8k"][1]
