"""Output of a run on a terminal: one updated line with a bar that fits the width, also on several ranks; colours if
supported; and plain lines if the output is not a terminal."""
import collections
import re
import shutil

import pytest
from harness import WEFT, needs, make_run, read, run, says, weft, write

LINE = re.compile(r" *(step )? *[0-9,]+(/[0-9,]+|%) +[=.#]+ ")
CONTROLS = re.compile("[\r\033]")
UNSET = dict.fromkeys(["COLUMNS", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"])
UTF8 = {"LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_run("steps = 60\nglobal_batch = 1\n[eval]\nevery = 30\n[device]\nthreads = 1\n")
    write("run.ini", read("run.ini").replace("global_batch = 12\n", "").replace("context    = 32", "context = 8"))
    if not shutil.which("script"):
        pytest.skip("no terminal to be measured without script")


class Screen:
    """What a command writes to a terminal of that width: `raw`, and `seen`, the visible text at each update."""

    def __init__(self, columns, command="train run.ini --overwrite", **env):
        self.raw = run("script", "-qec", f"stty cols {columns}; {WEFT} {command}", "/dev/null",
                       env={**UNSET, "TERM": "xterm", **env}).out
        self.columns = columns
        text = re.sub(r"\033\[[0-9;]*m|\033\[K", "", self.raw.replace("\r", "\n"))
        self.seen = re.sub("[^\0-\x7f]", "#", text).split("\n")
        self.states = [line for line in self.seen if LINE.match(line)]  # of the updated line

    def renews(self):
        """Every state of the line is complete and fits."""
        assert len(self.states) >= 2 and max(map(len, self.states)) < self.columns
        assert all(re.search(r" (loss )?[0-9.]+ +[0-9,.]+[kM]?( tok)?/s ", state) for state in self.states)
        left = re.compile(r"([0-9]+(s|m[0-9]+s|h[0-9]+m)|[0-9.]+ (ms|s|min [0-9]+ s) left) *$")
        assert all(left.search(state) for state in self.states[:-1])

    def grows(self):
        """The bar is empty at the start, full at the end, and of constant length."""
        assert len({len(re.search("[=.#]+", state).group()) for state in self.states}) == 1
        assert re.search(r" \.+ | #+ ", self.states[0])
        assert re.match("(step )?(60/60|100%) +(=+|#+) ", self.states[-1])

    def signs(self):
        """Whether the output contains UTF-8 characters and colours."""
        return "━" in self.raw, "\033[3" in self.raw


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_line(columns):
    screen = Screen(columns)
    screen.renews()
    screen.grows()
    if columns == 100:  # words where there is room
        says("\n".join(screen.states), re.compile("^step 60/60 +=+ +loss [0-9.]+ +[0-9,]+ tok/s *$"))


def test_too_narrow_for_everything():
    assert max(len(line) for line in Screen(24).seen if re.match(" *[0-9]+%", line)) < 24


def test_evaluation():
    """Its result replaces the line; --json prints none."""
    screen = Screen(40, "eval run.ini")
    states = [line for line in screen.seen
              if re.match(r" *[0-9]+/[0-9]+ +[=.]+ [0-9.]+ +[0-9.]+k?/s +[0-9]+s *$", line)]
    assert max(map(len, states)) < 40
    says("\n".join(screen.seen), re.compile("^loss  "), count=1)
    assert not re.search(r"===|\.\.\.", Screen(40, "eval run.ini --json").raw)


def test_columns_has_priority_over_the_width():
    screen = Screen(132, COLUMNS=40)
    screen.columns = 40
    screen.renews()


def test_characters_and_colours():
    assert Screen(80).signs() == (False, True)
    screen = Screen(60, NO_COLOR=1, **UTF8)
    assert screen.signs() == (True, False)
    screen.renews()
    assert Screen(60, **UTF8).signs() == (True, True)
    screen = Screen(60, TERM="dumb", **UTF8)
    assert screen.signs() == (False, False) and "\033" not in screen.raw
    says("\n".join(screen.seen), re.compile("^step 60/60  loss .* tok/s"))


def header(*arguments):
    """The lines before the first loss of a run into a file, without notes."""
    out = str(weft("train run.ini --overwrite train.steps=3", *arguments))
    assert not CONTROLS.search(out)
    return [line for line in re.split("(?m)^(eval|step)", out)[0].splitlines() if not line.startswith("weft: ")]


def test_header():
    """Each fact once."""
    plain = header()
    assert [line.split()[0] for line in plain] == "model data batch method lr device memory fits".split()
    text = "\n".join(re.sub("(?<=[0-9]),(?=[0-9])", "", line[11:]) for line in plain)
    facts = map(str.strip, re.split("[,;=\n]", text))
    assert [fact for fact, count in collections.Counter(facts).items() if count > 1] == []
    assert [line.split()[0] for line in header("--verbose")] == (
        "run lr model wrapping data batch world sums device memory fits".split())
    weft("train run.ini --overwrite --verbose --quiet", status=2)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_several_ranks(mpi, monkeypatch):
    """Rank 0 writes to the terminal itself."""
    needs(mpi)
    for name in "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM":
        monkeypatch.setenv(name, "1")
    words = f"train run.ini --overwrite --ranks 2 strategy.plugin=ddp comm.plugin=mpi-{mpi} train.global_batch=2"
    screen = Screen(40, words, **UTF8)
    assert len(screen.states) >= 2 and max(map(len, screen.states)) < 40
    assert not any(line.startswith("[1]") for line in screen.seen)
    result = weft(f"{words} train.steps=3")
    assert not CONTROLS.search(str(result))
    says(result, re.compile(r"^\[0\] step 3/3 "))
