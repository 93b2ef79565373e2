"""weft plugins check with several files, of which one is not a plugin or rejects a given key: the others are still
checked, results are printed, and each exit status is as documented in the help."""
import re

import pytest
from harness import BUILD, changed_plugin, lines, says, weft, write

BLOCK, SIZE, CLASS = (str(BUILD / f"plugins/weft-policy-{id}.so") for id in ("block", "size", "class"))
WRONG, DIES, WAITS = (f"plugins/weft-policy-{id}.so" for id in ("wrong", "dies", "waits"))


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    write("junk.so", "no plugin\n")
    for id, change in ("wrong", "stop"), ("dies", "crash"), ("waits", "hang"):
        changed_plugin("policy", "whole", id, f"IN_UNITS={change}")


def holding(text):
    return len(lines(text, re.compile(r"^  R[0-9]+ +holds")))


@pytest.mark.parametrize("files", [["junk.so", BLOCK, SIZE], [BLOCK, "junk.so", SIZE], [BLOCK, SIZE, "junk.so"]])
def test_file_that_is_no_plugin(files):
    """At every position: the file and the reason are printed in its place, and on stderr."""
    said = weft("plugins check", *files, "--rule", "R26", status=1)
    assert holding(said.out) == 2 and "junk.so" in said.out.splitlines()
    says(said.out, re.compile("^  refused .*junk.so .*ELF"))
    says(said.err, re.compile("^weft plugins check: junk.so "))
    said = weft("plugins check", *files, "--rule", "R26", "--json", status=1)
    says(said.err, re.compile("^weft plugins check: junk.so "))
    plugins = [file for file in said.json if "id" in file]
    (junk,) = [file for file in said.json if "id" not in file]
    assert [file["id"] for file in plugins] == ["block", "size"] and len(said.json) == 3
    assert all([rule["verdict"] for rule in file["rules"]] == ["holds"] and "refused" not in file for file in plugins)
    assert junk["file"] == "junk.so" and "junk.so" in junk["refused"]


def test_two_files_that_are_no_plugins():
    said = weft("plugins check", BLOCK, "nowhere.so", "junk.so", "--rule", "R26", status=1)
    says(said.err, "2 ", "nowhere.so ")
    assert holding(said.out) == 1


def test_key_that_one_plugin_rejects():
    """The next one accepts it."""
    said = weft("plugins check", BLOCK, SIZE, "size=4096", "--rule", "R26", "--json", status=1)
    block, size = said.json
    assert "key size" in block["refused"] and block["rules"] == []
    assert [rule["verdict"] for rule in size["rules"]] == ["holds"]
    says(said.err, "key size")


@pytest.mark.parametrize("status, arguments", [
    (0, [BLOCK, "--rule", "R40"]), (2, [BLOCK, "--rule", "R999"]), (2, []), (10, [WRONG, "--rule", "R40"]),
    (11, [DIES, "--rule", "R40"]),
    (12, [WAITS, "--rule", "R40", "--seconds", "0.5"]), (12, [WRONG, WAITS, DIES, "--rule", "R40", "--seconds", "0.5"]),
    (13, [CLASS, BLOCK, "--rule", "R26"]), (10, [CLASS, WRONG]), (1, [WRONG, "junk.so", "--rule", "R40"])])
def test_status(status, arguments):
    weft("plugins check", *arguments, status=status)
    says(" ".join(weft("plugins check --help").out.split()), re.compile(rf"(^|[ :;,]){status} [a-z]"))
