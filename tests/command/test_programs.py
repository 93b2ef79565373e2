"""The command line as a whole: tools, external commands, help, the manual page and completions."""
import os
import re
import shutil
import textwrap

import pytest
from harness import BUILD, SOURCE, WEFT, has, make_run, read, run, says, weft, write

MANUAL = BUILD / "manual"


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    """A program weft-NAME on the PATH is a command; it receives the arguments and the path of weft."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{scratch}/bin:{os.environ['PATH']}")
        program("count", '#!/bin/sh\necho "count $*"\n"$WEFT_PROGRAM" --version\nexit 7\n')
        yield


def program(name, text):
    write(f"bin/weft-{name}", text).chmod(0o755)


@pytest.fixture(scope="module")
def names():
    """The commands that the help lists."""
    found = re.findall(r"(?m)^  ([a-z]+(?: [a-z]+)?)  *[A-Z].*\.$", weft("--help").out)
    assert len(found) > 20
    return found


@pytest.fixture(scope="module")
def help(names):
    """The help of the program and of each command, which has two examples that start with the command."""
    every = weft("--help").out
    assert len(re.findall("(?m)^  weft ", every)) == 2
    for name in names:
        text = weft(f"{name} --help").out
        says(text[text.index("Examples:"):], f"weft {name}", count=2)
        every += text
    return every


def test_external_command(scratch):
    out = weft("count a 'b c' --json", status=7).out
    assert out.splitlines() == ["count a b c --json", *weft("--version").out.splitlines()]
    says(weft("--help").out, f"{scratch}/bin/weft-count")
    weft("count", env={"PATH": "bin:/usr/bin:/bin"}, status=range(1, 7))  # no relative directory of PATH is searched
    weft("../count", status=2)


def test_example_of_the_documentation():
    example = re.search(r"(?m)^    #!/bin/sh\n((    .*)\n)*", read(SOURCE / "docs/commands.md")).group()
    program("losses", textwrap.dedent(example))
    write("some-run/metrics.jsonl", '{"step": 1, "loss": 2.5, "lr": 0.1}\n{"step": 2, "loss": 1.25}\n')
    assert weft("losses some-run").out == "2.5\n1.25\n"


def test_program_without_its_tools():
    """It names the missing file, and its own commands work."""
    os.mkdir("lone")
    shutil.copy(WEFT, "lone")
    says(run("lone/weft", "prove", "run.ini", status=range(1, 124)), "weft-prove")
    run("lone/weft", "--version")


def test_help_fits_80_columns(help):
    assert [line for line in help.splitlines() if len(line) > 80] == []


def test_manual_and_completions(names, help):
    """They contain all commands and flags of the help."""
    page = read(MANUAL / "weft.1")
    assert [name for name in names if f'.SS "weft {name}"' not in page] == []
    for flag in set(re.findall("(?m)^  (--[a-z-]*)", help)):
        assert flag.replace("-", r"\-") in page
        assert all(flag in read(MANUAL / file) for file in ("weft.bash", "_weft"))
    if shutil.which("groff"):
        assert run("groff", "-man", "-ww", "-Tascii", MANUAL / "weft.1").err == ""


@pytest.mark.parametrize("words, completion", [
    ("weft tr", "train"), ("weft plugins ch", "check"), ("weft train run.ini --over", "--overwrite"),
    ("weft plugins check --se", "--seconds")])
def test_completion_of_bash(words, completion):
    if not shutil.which("bash"):
        pytest.skip("no bash")
    script = '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; echo "${COMPREPLY[*]}"'
    assert run("bash", "-c", script, MANUAL / "weft.bash", *words.split()).out == f"{completion}\n"


def test_each_command(names):
    """One run of each listed command; the sanitizers run these."""
    make_run("steps = 2\n[optimizer]\nlr = 1e-3\n[checkpoint]\nevery = 2\n[strategy]\nplugin = single\n")
    ran = set()

    def each(name, words, **options):
        ran.add(name)
        return weft(f"{name} {words}", **options)

    each("config check", "run.ini")
    each("config describe", "train")
    each("config explain", "run.ini --json")
    each("data show", "run.ini --n 1")
    each("data stats", "run.ini")
    each("plan", "run.ini --print-program")
    each("train", "run.ini run.out=base")
    each("train", "run.ini model.path=base/model model.start=weights adapter.plugin=lora adapter.r=2 run.out=learned")
    each("eval", "learned")
    each("generate", "learned --prompt '1. e4' --tokens 4")
    each("merge", "base/model learned/model merged")
    each("report", "learned base")
    each("profile", "run.ini --steps 1 --warmup 0")
    each("prove", "run.ini --ranks 1 --steps 1")
    each("ab", "run.ini --vary train.micro_batch=1,2 --rounds 2 --steps 1 --learn 0", status=[0, *range(10, 124)])
    each("init", "base/model games.txt -o first.ini")
    each("tokenize", "model", stdin=read("games.txt"))
    each("plugins list", "")
    each("plugins describe", "optimizer:adamw")
    each("plugins new", "policy mine")
    each("plugins check", f"{BUILD}/plugins/weft-policy-block.so --rule R26")
    if has("mpich"):
        each("plugins exchange", "run.ini --ranks 2")
    assert ran | {"plugins exchange"} == set(names)
