"""weft report: its output agrees with the records of runs; damaged files have a message."""
import csv
import html.parser
import os
import pathlib
import random
import re
import shutil

import pytest
from harness import (FULL, WEFT, lines, make_run, needs, read, records, refused, run, says, weft, write)

OTHER = "two&<b>"
DRAWS = 400 if FULL else 40


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_run("steps = 6\n[eval]\nevery = 2\n[checkpoint]\nevery = 2\nkeep = 1\n[optimizer]\nlr = 1e-2\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        weft("train run.ini run.out=one")
        weft("train run.ini", f"run.out={OTHER}", "optimizer.lr=0.02", "train.activation_checkpointing=yes")
        yield


class Page(html.parser.HTMLParser):
    """Fails unless every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()


def page(file):
    """Returns a page, which is self-contained, and whose elements are closed."""
    text = read(file)
    assert text and not re.search(r"<script|<link|<img|src=|href=|url\(|@import|https?:", text)
    Page(text)
    return text


def contains(text, *parts):
    assert [part for part in parts if part not in text] == []


def rows(*runs):
    """The rows of the CSV, whose cells here contain no line ends."""
    return list(csv.DictReader(weft("report --csv", *runs).out.splitlines()))


def near(value):
    """Equal within the digits of a record."""
    return pytest.approx(value, rel=2e-3, abs=2e-3)


def test_one_run():
    result = weft("report one")
    contains(result.out, "one/report.html", "learning rate", "evaluation loss")
    says(result.out, re.compile("factor|speed-up"), count=0)  # a single run is not compared
    line = read("run.ini").splitlines().index("lr = 1e-2") + 1
    text = page("one/report.html")
    contains(text, "<code>optimizer.lr</code>", f"run.ini:{line}", "command line",
             f"evaluation loss {records('one/evaluations.jsonl')[-1]['loss']:.4f}", "checkpoint",
             "prefers-color-scheme:dark", "after 6 steps", "began at step 0", "no longer kept", "<code>model/</code>")
    assert text.count('<path class="line') == 5 and text.count('<circle class="dot') == 4


def test_numbers_agree_with_the_records():
    row, = rows("one")
    assert not os.path.exists("report.html")
    values = {name: float(row[name]) for name in row if re.fullmatch("[0-9.e+-]+", row[name])}
    metrics, evaluations, saves, phases, starts = (
        records(f"one/{file}.jsonl") for file in ("metrics", "evaluations", "checkpoints", "phases", "starts"))
    assert values["seconds"] == near(saves[-1]["seconds"])
    assert values["seconds"] == near(sum(values[f"{part}_seconds"] for part in (
        "compute", "communication", "evaluation", "checkpoint", "start")))
    assert values["compute_seconds"] == near(sum(sum(record["phases"].values()) for record in metrics))
    assert values["evaluation_seconds"] == near(sum(record["took"] for record in evaluations))
    assert values["checkpoint_seconds"] == near(sum(record["took"] for record in saves))
    assert values["loss"] == near(metrics[-1]["loss"]) and values["eval_loss"] == near(evaluations[-1]["loss"])
    assert values["resident_bytes"] == near(phases[-1]["ranks"][-1]["resident_peak"])
    exact = dict(steps=6, ranks=1, global_batch=12, micro_batch=1, micro_batches=12, replicas=1, lr=0.01,
                 strategy="single", precision="fp32", planned_bytes=starts[0]["planned"][0]["total"])
    assert {name: row[name] for name in exact} == {name: str(value) for name, value in exact.items()}


def test_comparison():
    out = weft("report one", OTHER, "--html", "both.html").out
    contains(out, "both.html", "12 = 1 x 12 x 1", "speed-up")
    assert [line.split() for line in lines(out, re.compile("^[a-z]+[.][a-z]"))] == [
        ["optimizer.lr", "0.01", "0.02"], ["train.activation_checkpointing", "no", "yes"]]
    text = page("both.html")
    contains(text, "two&amp;&lt;b&gt;", "optimizer.lr")
    assert OTHER not in text
    out = weft("report one", OTHER, "--markdown").out
    contains(out, r"two&\<b>", "| optimizer.lr | 0.01 | 0.02 |")
    says(out, re.compile(r"^\|---\|"), count=2)
    first, second, third = rows("one", OTHER, "one")
    assert float(second["speedup"]) == near(float(first["seconds"]) / float(second["seconds"]))
    assert float(second["memory_factor"]) == near(float(second["planned_bytes"]) / float(first["planned_bytes"]))
    assert float(third["speedup"]) == near(1)
    says(weft("report one one").out, re.compile(r"^(optimizer|train)\."), count=0)
    assert not os.path.exists("report.html")


def test_name_is_text_in_a_spreadsheet_and_cannot_control_a_terminal():
    name = "a\033[31mred\u009b31m\nline"
    shutil.copytree("one", name, symlinks=True)
    shutil.copytree("one", "=1+1", symlinks=True)
    _, formula, escaped = weft("report =1+1 --csv", name).out.split("\n", 2)[:3]
    assert formula.split(",")[0] == '"\'=1+1"' and escaped.split(",")[0].rstrip() == "a [31mred  31m line"
    write(f"{name}/metrics.jsonl", '{"step": "x\033[31m"\n')
    for form in ["--markdown"], []:
        result = weft("report one", name, *form, status=[0, 1])
        assert "\033" not in str(result) and "red" in result.err


@pytest.mark.skipif(not shutil.which("script"), reason="no terminal to be narrow without script")
@pytest.mark.parametrize("columns", [40, 64, 200])
def test_width(columns):
    out = run("script", "-qec", f"stty cols {columns}; {WEFT} report one '{OTHER}'", "/dev/null",
              env={"LC_ALL": "C"}).out.replace("\r", "")
    assert max(map(len, out.splitlines())) <= columns
    contains(out, "speed-up", "optimizer.lr")


def test_supported_characters():
    assert re.fullmatch("[ -~\n]*", weft("report one", env={"LC_ALL": "C"}).out)
    contains(weft("report one", env={"LC_ALL": "C.UTF-8"}).out, "█")


def warned(out, *facts):
    """A report of the run succeeds with a warning, and writes a page."""
    pathlib.Path(out, "report.html").unlink(missing_ok=True)
    says(weft(f"report {out}").err, f"{out}: ", *facts)
    return page(f"{out}/report.html")


def test_damaged_and_missing_files():
    shutil.copytree("one", "bad", symlinks=True)
    metrics = pathlib.Path("bad/metrics.jsonl")
    metrics.write_text(metrics.read_text() + '{"step": 7, "loss": 2.0, "lr"')
    warned("bad", "metrics.jsonl", "last line")
    content = metrics.read_bytes().split(b"\n")
    metrics.write_bytes(b"\n".join([*content[:2], b'{"step": ', b"\x00\x01\xff", *content[4:]]))
    warned("bad", "metrics.jsonl: 2 lines", "line 3")
    os.unlink("bad/starts.jsonl")
    warned("bad", "starts.jsonl")
    os.unlink("bad/phases.jsonl")
    os.mkdir("bad/phases.jsonl")
    warned("bad", "phases.jsonl")
    metrics.write_text("")
    os.rmdir("bad/phases.jsonl")
    refused("report bad", says="bad ")
    refused("report one nowhere", says="nowhere: ")
    refused("report run.ini", says="run.ini ")
    # Records of an earlier version.
    write("old/metrics.jsonl", '{"step": 1, "loss": 2.5, "lr": 0, "grad_norm": 0.6, "tokens": 99}\n')
    warned("old", "starts.jsonl")


def test_run_that_has_just_started_and_one_that_is_active():
    shutil.copytree("one", "begun", symlinks=True, ignore=shutil.ignore_patterns("[mepc]*.jsonl"))
    warned("begun", "no step")
    shutil.copytree("one", "under", symlinks=True)
    for file, count in ("metrics", 4), ("checkpoints", 3):
        write(f"under/{file}.jsonl", "".join(read(f"one/{file}.jsonl").splitlines(keepends=True)[:count]))
    weft("report under")
    contains(read("under/report.html"), "step 4 of 6")


def test_values_of_other_types():
    shutil.copytree("one", "odd", symlinks=True)
    for file, pattern, replacement in [
            ("metrics", '"loss": [^,]*', '"loss": "high"'), ("metrics", '"phases": {[^}]*}', '"phases": [1]'),
            ("phases", r'"ranks": \[', '"ranks": [7, {}, '), ("starts", r'"planned": \[', '"planned": [null, 3, '),
            ("starts", r'"config": \[', '"config": [5, {"key": 1}, ')]:
        text, count = re.subn(pattern, replacement, read(f"odd/{file}.jsonl"))
        assert count
        write(f"odd/{file}.jsonl", text)
    weft("report odd")
    page("odd/report.html")


def test_random_changed_bytes():
    """It may fail with a message, but never otherwise."""
    draw = random.Random(7)
    for _ in range(DRAWS):
        shutil.rmtree("torn", ignore_errors=True)
        shutil.copytree("one", "torn", symlinks=True, ignore=shutil.ignore_patterns("checkpoints", "model"))
        for file in "starts", "metrics", "evaluations", "checkpoints", "phases":
            path = pathlib.Path(f"torn/{file}.jsonl")
            content = bytearray(path.read_bytes())
            content[draw.randrange(len(content))] = draw.randrange(256)
            path.write_bytes(content)
        weft("report torn", status=[0, 1])


def test_wrong_usage():
    refused("report one --html nowhere/page.html", says="nowhere/page.html")
    weft("report one --csv --markdown", status=2)


def test_ranks():
    needs("mpich")
    weft("train run.ini run.out=ranks --ranks 2 strategy.plugin=ddp comm.plugin=mpi-mpich")
    out = weft("report one ranks").out
    says(out, re.compile("^ranks +1 +2$"))
    says(out, re.compile("^effective batch +12 = 1 x 12 x 1 +12 = 1 x 6 x 2$"))
    weft("report ranks")
    contains(page("ranks/report.html"), "<span>rank 0</span>", "<span>rank 1</span>", "exchange", "ddp on 2 ranks")
