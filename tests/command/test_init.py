"""Configurations written by `weft init` run and fit without changes: for text and JSONL, without weights and with a
run's, read by config check, plan and train."""
import os
import pathlib
import re
import shutil

import pytest
from harness import (WEFT, change_json, eval_loss, hashes, make_model, make_text, near, read, refused, says,
                     weft, write)

SCRATCH = "init scratch data/games.txt --fresh"


def has_line(file, *wanted, absent=()):
    """Returns the lines of a configuration, which has each line, and no key that is absent."""
    text = read(file).splitlines()
    assert [line for line in wanted if line not in text] == []
    assert not any(line.startswith(f"{key} = ") for line in text for key in absent)
    return text


def reasons(file):
    """Every key has a reason above it."""
    text = read(file).splitlines()
    assert all(above.startswith("#") for above, line in zip(text, text[1:]) if re.match("[a-z_]+ = ", line))


def works(file):
    """All commands accept the configuration. A step has a loss, and the end a model; the last step of the file is the
    last of its schedule."""
    says(weft("config check", file), "weft train")
    reasons(file)
    says(weft("plan", file), re.compile("^fits "))
    says(weft("train", file, "train.steps=2"), re.compile("^step 2/2 "))
    out = re.search("(?m)^out = (.*)", read(file)).group(1)
    assert (pathlib.Path(file).parent / out / "model/config.json").exists()


def data(name, text):
    """Writes a data file, text or bytes, and returns its name."""
    pathlib.Path("data", name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def init(name, ini):
    return weft("init runs/scratch", f"data/{name}", "-o", ini)


@pytest.fixture(scope="module", autouse=True)
def games(scratch):
    """The lines of data/games.txt; runs/scratch is a run with the model."""
    make_model("scratch", 32, 8, 56, 2, 512)
    os.mkdir("data")
    make_text(90, "data/games.txt")
    says(weft(SCRATCH), re.compile("^run.ini: 8[0-9] "))
    works("run.ini")
    has_line("run.ini", "document = line", "validation = 0.05", "start = fresh", "plugin = llama")
    text = read("data/games.txt")
    data("one.txt", text.replace("\n", " "))
    data("games.jsonl", "".join('{"id": "g", "moves": "%s", "n": %d}\n' % line[::-1]
                                for line in enumerate(text.splitlines(), 1)))
    data("paragraphs.txt", re.sub("((?:.*\n){3})", r"\1\n", text))
    return text.splitlines()


def test_directory_of_a_run_means_its_model(scratch):
    """A second run has a new directory."""
    weft("init runs/scratch data/games.txt --out two.ini")
    has_line("two.ini", f"path = {scratch}/runs/scratch/model", "out = runs/model")
    weft(f"{SCRATCH} -o three.ini")
    has_line("three.ini", "out = runs/scratch-2")
    printed = weft(f"{SCRATCH} -o -").out
    assert printed.splitlines()[4:] == read("three.ini").splitlines()[4:]


def test_existing_file_is_replaced_only_on_request():
    before = read("run.ini")
    refused(SCRATCH, says=["run.ini", "--overwrite"])
    assert read("run.ini") == before
    write("run.ini", "# mine\n")
    weft(f"{SCRATCH} --overwrite")
    has_line("run.ini", "document = line")


def test_text():
    init("paragraphs.txt", "sub.ini")
    has_line("sub.ini", "document = paragraph")
    works("sub.ini")
    init("one.txt", "one.ini")
    text = has_line("one.ini", "document = file", "validation = none", "context = 128")  # context from the model
    assert "[eval]" not in text  # nothing to evaluate
    works("one.ini")


def test_jsonl(games):
    """By name and by content; the text field."""
    init("games.jsonl", "lines.ini")
    has_line("lines.ini", "field = moves", absent=["format"])
    works("lines.ini")
    data("games.json", read("data/games.jsonl").replace('"moves"', '"text"'))
    init("games.json", "json.ini")
    has_line("json.ini", "format = jsonl", "field = text")
    works("json.ini")


def test_pgn(games):
    """By name or by content; games are their moves."""
    text = "".join(f'[Event "e"]\n[Round "{n}"]\n\n1. e4 {{a}} e5 2. f4 (2. Nf3 Nc6){" exf4" if n % 2 else ""} 1-0\n\n'
                   for n in range(1, len(games) + 1))
    init(data("games.pgn", text), "pgn.ini")
    has_line("pgn.ini", absent=["format", "document"])
    says(weft("data show pgn.ini -n 1"), "1. e4 e5 2. f4")
    init(data("pgn.txt", text), "look.ini")
    has_line("look.ini", "format = pgn")


ASKED = [f'{{"question": "q", "answer": "a{n}"}}' for n in range(1, 9)]
ARRAY = "[" + ",".join(ASKED) + "]\n"
TABLE = 'id,"prompt",completion\n1,q,a\n2,q,b\n3,q,c\n4,q,d\n'


@pytest.mark.parametrize("name, text, wanted, absent, run", [
    ("asked.jsonl", "\n".join(ASKED) + "\n", ["template = alpaca"], [], True),
    ("asked.json", ARRAY, [], ["format"], False),
    ("asked.txt", ARRAY, ["format = json"], [], False), ("asked.csv", TABLE, [], ["separator"], True),
    ("europe.CSV", TABLE.replace(",", ";"), ["separator = semicolon"], [], True)])
def test_question_answer_records(name, text, wanted, absent, run):
    """Detected by their content."""
    init(data(name, text), f"{name}.ini")
    has_line(f"{name}.ini", "plugin = instruct", *wanted, absent=absent)
    if run:
        works(f"{name}.ini")


BOM = "\ufeff"
ROWS = "q1,a1\nq2,a2\nq3,a3\n"


@pytest.mark.parametrize("name, text, wanted", [  # as spreadsheets save it: with a byte order mark and a "sep=" row
    ("marked.csv", f"{BOM}question;answer\r\n" + ROWS.replace(",", ";"), ["separator = semicolon"]),
    ("marked.tsv", f"{BOM}question\tanswer\n" + ROWS.replace(",", "\t"), []),
    ("marked.jsonl", BOM + '{"question":"q","answer":"a"}\n' * 2, []),
    ("marked.json", f'{BOM}[{{"question":"q","answer":"a"}},{{"question":"q","answer":"a"}}]', []),
    ("said.csv", "sep=;\nquestion;answer\n" + ROWS.replace(",", ";"), []),
    ("late.csv", f"\n\nquestion,answer\n{ROWS}", []),
    ("frage.csv", f'Frage,"Antwort"\n{ROWS}', ["columns = Frage, Antwort"]),
    ("dolly.jsonl", "".join(f'{{"instruction":"i","context":"{text}","response":"a"}}\n' for text in ("c", "")), [])])
def test_answers_are_learned(name, text, wanted):
    init(data(name, text), f"{name}.ini")
    has_line(f"{name}.ini", "plugin = instruct", *wanted)
    says(weft(f"data show {name}.ini -n 1 data.validation=none"), "[[a")


def test_unknown_properties_are_reported():
    file = data("openings.tsv", "eco\tname\tpgn\nA00\tPolish\t1. b4\nA00\tGrob\t1. g4\n")
    says(init(file, "openings.ini").err, "openings.tsv", "eco, name, pgn")
    has_line("openings.ini", "plugin = text")
    file = data("bodies.jsonl", '{"title":"t","body":"a long text"}\n' * 2)
    says(init(file, "bodies.ini").err, "title, body", "only body")


TURN = '{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "rating": 5}'


def test_keys_unused_in_training():
    """They are listed, wherever a record has them; the file runs without changes."""
    init(data("turns.jsonl", f'{{"messages": [{TURN}]}}\n'.replace(', "rating": 5', "") * 4), "turns.ini")
    has_line("turns.ini", "plugin = instruct", absent=["ignore"])
    init(data("more.jsonl", f'{{"id": "x", "source": "s", "messages": [{TURN}]}}\n' * 3
              + f'{{"messages": [{TURN}], "url": "u", "license": null}}\n'), "more.ini")
    assert re.search("(?m)^ignore = (.*)", read("more.ini")).group(1).replace(" ", "") == "source,rating,url"
    works("more.ini")


def test_planning_finds_a_configuration_that_fits():
    """With half the memory, the micro-batch is smaller."""
    weft(f"{SCRATCH} -o whole.ini")
    half = weft("plan whole.ini --json").json["fit"]["planned"] // 2
    weft(f"{SCRATCH} -o half.ini --fit {half}B")
    says(weft(f"plan half.ini --fit {half}B"), re.compile("^fits "))
    assert read("whole.ini") != read("half.ini")
    refused(f"{SCRATCH} -o bad.ini --fit 100kB", says="fit")


@pytest.fixture
def nothing_written():
    yield
    assert not os.path.exists("bad.ini")


OOPS = '{"messages": [{"role": "user", "content": "q"}, {"role": "oops", "content": "a"}], "url": "u"}\n'


@pytest.mark.parametrize("name, text, facts", [
    ("none.json", "[]", []), ("oops.jsonl", OOPS, ["oops"]),
    ("array.json", '[{"text": "a"}, {"text": "b"}]', ["array"]),
    ("wide.txt", "1. e4 e5\n".encode("utf-16") * 90, ["UTF-16"]),
    ("bytes.txt", WEFT.read_bytes()[:20000] if WEFT.exists() else b"", []), ("empty.txt", "", ["empty"]),
    ("missing.txt", None, ["No such file"])])
def test_inputs_that_other_commands_reject(name, text, facts, nothing_written):
    if text is not None:
        data(name, text)
    refused(f"init runs/scratch data/{name} -o bad.ini", says=[name, *facts])


def test_models_that_other_commands_reject(nothing_written):
    config = read("scratch/config.json")
    for model, file, text, facts in [
            ("data", None, None, []), ("scratch", None, None, ["model.safetensors"]),
            ("bin", "pytorch_model.bin", "", ["save_pretrained"]),
            ("stranger", "config.json", config.replace('"model_type"', '"type_of_model"'), ["model_type"]),
            ("broken", "config.json", '{"model_type": "llama",}\n', ["broken/config.json:1:24: "])]:
        if file:
            shutil.copytree("scratch", model)
            write(f"{model}/{file}", text)
        refused(f"init {model} data/games.txt -o bad.ini", says=[model, *facts])


def test_path_with_characters_that_start_comments():
    shutil.copytree("data", "a # b")
    os.rename("a # b/games.txt", "a # b/x ; y.txt")
    weft("init runs/scratch", "a # b/x ; y.txt", "-o", "quoted.ini")
    works("quoted.ini")


@pytest.fixture(scope="module")
def tuned(games):
    """The weights of an adapter on a packed base with added tokens."""
    init("paragraphs.txt", "base.ini")
    weft("train base.ini --overwrite run.out=runs/tuned train.steps=2 adapter.plugin=lora adapter.r=3 model.base=nf4",
         "tokenizer.add=<a>,<b>")
    return hashes("runs/tuned/model", "*.safetensors")


@pytest.mark.parametrize("source", ["runs/tuned", "runs/tuned/model"])
def test_adapter_is_continued(scratch, tuned, source):
    """From a run or on its own: on its base as stored, with the added tokens."""
    weft(f"init {source} data/paragraphs.txt -o on.ini --overwrite")
    text = has_line("on.ini", f"path = {scratch}/runs/scratch/model", f"from = {scratch}/runs/tuned/model",
                    "add = <a>,<b>")
    assert text.count("base = nf4") == (source == "runs/tuned")
    reasons("on.ini")
    weft("train on.ini --overwrite run.out=runs/on train.steps=1 optimizer.lr=0")
    assert hashes("runs/on/model", "*.safetensors") == tuned != {}


def test_base_of_an_adapter(scratch, tuned, nothing_written):
    refused("init runs/tuned data/paragraphs.txt --fresh -o bad.ini",
            says=["runs/tuned", "--fresh", f"{scratch}/runs/scratch/model"])
    words = "data.path=data/one.txt data.document=file data.context=128"
    near(eval_loss(f"runs/tuned model.base=auto data.validation=none {words}"),
         eval_loss(f"runs/tuned/model {words}"), 1e-9)
    shutil.copytree("runs/tuned/model", "theirs")
    change_json("theirs/adapter_config.json", base_model_name_or_path="meta-llama/L")
    for command in "init theirs data/one.txt -o bad.ini", "eval theirs data.path=data/one.txt":
        refused(command, says=["theirs", "meta-llama/L"])
    change_json("theirs/adapter_config.json", base_model_name_or_path=None)
    refused("init theirs data/one.txt -o bad.ini", says=["theirs/adapter_config.json", "base_model_name_or_path"])
