"""Parses each INI example of the pages: an indented block with a [section] as first line other than comments. Settings
that an example lacks, or has for another machine, are passed as overrides. docs.commands runs blocks with commands."""
import re

import pytest
from harness import FAILS, SOURCE, read, weft, write

PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md")), *sorted((SOURCE / "docs/guide").glob("*.md"))]


def examples(text):
    """The INI examples among the indented blocks of a page."""
    for block in re.findall(r"(?m)^    .*\n(?:(?:    .*)?\n)*", text):
        lines = [line[4:] for line in block.splitlines()]
        first = next((line for line in lines if line and line[0] not in "#;"), "")
        if (re.match(r"\[[a-z.]+\]", first) and any(re.match("[a-z_]+ *=", line) for line in lines)  # no table of keys
                and not any(re.match(r"\$ |\.\.\.", line) for line in lines)):
            yield "".join(f"{line}\n" for line in lines)


EXAMPLES = [pytest.param(example, id=f"{page.stem}.{n}")
            for page in PAGES for n, example in enumerate(examples(read(page)), 1)]


def reads(example, **options):
    """It is a valid configuration; the plugin that a page calls `mine` may be missing."""
    write("example.conf", re.sub(r"(?m)^\[.*\.mine\](.*\n)(?:[^\[\n].*\n|\n)*", "", example))
    weft(f"config explain example.conf model.path={SOURCE}/configs/chess/base model.plugin=llama model.start=fresh "
         f"data.path={SOURCE}/configs/chess/train.txt run.out=out", **options)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example):
    reads(example)


def test_number_of_examples():
    assert len(EXAMPLES) > 12


def test_table_of_keys_in_an_example():
    example, = examples("    # a comment\n    [train]\n      steps   none   whole number\n    steps = 2\n")
    reads(example, status=FAILS)
