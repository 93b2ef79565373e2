"""Plugins of every kind, built with earlier headers, small and stripped, run in the current host, on one and on
several ranks. Their results equal the bits of the built-in plugin if it computes the same, else stored losses. Each
incompatible header change is reported with its item."""
import os
import pathlib
import re
import shutil

import pytest
from harness import FULL, SOURCE, grown_headers, lines, losses, needs, patches, read, run, same_tensors, says, weft, write

ARCHIVE = SOURCE / "tests/archive"
TODAY = SOURCE / "sdk/include"
RELEASED = sorted(path.name for path in ARCHIVE.glob("sdk-*"))
SETS = [*RELEASED, *(["today"] if FULL else [])]  # today's sources are those of plugins that other tests train
KINDS = sorted({*re.findall(r"\bKIND\(([a-z]+), ", read(SOURCE / "host/plugin/kinds.c"))} - {"name"})
PLUGINS = [(kind, "archive") for kind in KINDS] + [("device", "archive-wrap"), ("comm", "archive-files"),
                                                   ("comm", "archive-wrap")]
NEAR = 1e-6  # relative tolerance of a loss: two devices differ by 1e-9, and a learning rate larger by 1e-4 causes 1e-5


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    os.environ["TMPDIR"] = str(scratch)  # for messages of archive-files
    run("sh", ARCHIVE / "build.sh", SOURCE, TODAY, "today")
    shutil.copytree(ARCHIVE / "try", "try")
    shutil.copytree("try", "try-model")
    shutil.copy("try/model/config.json", "try-model")
    train("builtin")
    train("builtin-sgd", "optimizer.plugin=sgd", "optimizer.momentum=0.9")
    yield
    assert not list(pathlib.Path().glob("weft-archive-*"))  # messages between ranks


def train(out, *arguments, directory="try"):
    weft("train", f"{directory}/run.ini", f"run.out={out}", *arguments)


def same(out):
    same_tensors(f"{out}/checkpoints/step-4", "builtin/checkpoints/step-4")


def file_of(name, kind, id):
    return (pathlib.Path("today").resolve() if name == "today" else ARCHIVE / name) / f"weft-{kind}-{id}.so"


def test_archive_of_today():
    """It has every kind, and its files are small."""
    sizes = {file.name: file.stat().st_size for file in pathlib.Path("today").glob("*.so")}
    assert sorted(sizes) == sorted(f"weft-{kind}-{id}.so" for kind, id in PLUGINS) and max(sizes.values()) < 100 * 1024


@pytest.mark.parametrize("name", [*RELEASED, "today"])
@pytest.mark.parametrize("kind, id", PLUGINS)
def test_plugin(name, kind, id):
    file = file_of(name, kind, id)
    weft("plugins", "describe", f"{kind}:{file}")
    if name not in SETS or (kind, id) == ("comm", "archive-wrap"):  # that one runs on several ranks, below
        return
    out = f"{name}-{kind}-{id}"
    train(out, f"{kind}.plugin={file}", directory="try-model" if kind == "model" else "try")
    # Plugins with the same computation; communication pattern and placement do not affect the numbers.
    if kind in ("policy", "strategy", "comm") or id == "archive-wrap":
        same(out)
    elif kind in ("device", "optimizer"):
        builtin = "builtin" if kind == "device" else "builtin-sgd"
        assert losses(out) == pytest.approx(losses(builtin), rel=NEAR)
    if name in RELEASED:
        wanted = says(read(ARCHIVE / name / "losses.txt"), re.compile(f"^{kind} {id} ")).split()[2:]
        assert len(wanted) == 4 and losses(out) == pytest.approx([float(loss) for loss in wanted], rel=NEAR)


@pytest.mark.parametrize("how, arguments", [
    ("ranks", [("strategy", "archive")]), ("fsdp", ["strategy.plugin=fsdp", ("policy", "archive")]),
    ("stages", ["strategy.plugin=mp", ("device", "archive-wrap")]), ("wrap", [("strategy", "archive")])])
@pytest.mark.parametrize("name", SETS)
def test_ranks(name, how, arguments):
    """With the archived communicators: of files, and in the row `wrap` over MPI."""
    if how == "wrap":
        needs("mpich")
    arguments = [*arguments, ("comm", "archive-wrap" if how == "wrap" else "archive-files")]
    words = [word if isinstance(word, str) else f"{word[0]}.plugin={file_of(name, *word)}" for word in arguments]
    train(f"{name}-{how}", "--ranks", "2", *words)
    same(f"{name}-{how}")


@pytest.mark.parametrize("name", SETS)
def test_exchanges(name):
    weft("plugins", "exchange", "try/run.ini", "--ranks", "3", "strategy.plugin=ddp",
         f"comm.plugin={file_of(name, 'comm', 'archive-files')}")


def compare(status, old, new):
    return run("sh", ARCHIVE / "compare.sh", old, new, status=status)


@pytest.mark.parametrize("old", [*(ARCHIVE / name / "measured.txt" for name in RELEASED), "today/measured.txt"])
def test_headers_of_today_break_no_binary(old):
    compare(0, old, TODAY)


def test_headers_equal_themselves():
    assert compare(0, TODAY, TODAY).out == ""


def test_headers_that_grow():
    grown_headers("grown")
    assert len(lines(compare(0, TODAY, "grown").out, re.compile(r"^adds     weft_[a-z_0-9]*\.grown$"))) > 50
    compare(1, "grown", TODAY)


CHANGES = dict(patches(ARCHIVE / "headers.patch"))
FACTS = {"weft_module_view.is_block": ["gone"], "weft_module_view.parent": ["8 bytes", "4"],
         "weft_module_view.name": ["from 16 to 8"], "constant WEFT_SHARDED": [" 2", " 1"],
         "define WEFT_UNIT_ROOT": ["(-2)", "(-1)"], "define WEFT_HOST_WORLD": ["weft.host.world/2"],
         "weft_ref.more": ["by value"], "weft_instruction.early": ["at 8", "48 bytes"],
         "struct weft_parameter_view": ["gone"]}


def changed(item):
    shutil.rmtree("changed", ignore_errors=True)
    shutil.copytree(TODAY, "changed")
    run("patch", "-s", "-F0", "-p1", "-d", "changed", stdin=CHANGES[item])
    return "changed"


@pytest.mark.parametrize("item", list(CHANGES)[:-1 if FULL else 1])
def test_incompatible_header(item):
    said = compare(1, TODAY, changed(item))
    says(said.out, re.compile(rf"^breaks   {re.escape(item)}\b"), *FACTS.get(item, []))


def test_other_text_of_an_inline_function():
    said = compare(0, TODAY, changed("adapter.h:weft_adapter_site"))
    assert re.fullmatch(r"carries  adapter\.h:weft_adapter_site .*\n", said.out)


@pytest.mark.parametrize("script, arguments, facts", [
    ("compare.sh", [TODAY, "invalid"], ["invalid"]), ("compare.sh", ["junk", TODAY], ["junk"]),
    ("compare.sh", ["nowhere", TODAY], ["nowhere"]), ("compare.sh", [TODAY], ["usage: compare.sh"]),
    ("measure.sh", ["."], ["headers of the SDK"])])
def test_error(script, arguments, facts):
    if arguments == [TODAY, "invalid"]:
        shutil.copytree(TODAY, "invalid")
        write("invalid/weft/emit.h", "no C at all\n")
    write("junk", "hello\n")
    says(run("sh", ARCHIVE / script, *arguments, status=range(1, 124)).err, *facts)
