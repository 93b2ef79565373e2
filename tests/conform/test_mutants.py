"""weft plugins check: the templates of `weft plugins new` satisfy every rule, and each mutant of mutants/KIND.patch
violates the rule that it is listed for. Such a file has one patch of the template per mutant: the rule that must detect
it, or another name, for variant(). The quick suite tests every 24th mutant, three templates, and of the other
templates only that they train."""
import os
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FULL, SOURCE, full_only, lines, patched, patches, read_json, refused, run, says, weft,
                     write)

KINDS = ["optimizer", "policy", "strategy", "tokenizer", "data", "model", "adapter", "device", "comm"]
EXTENDED = {"square": "model", "share": "data"}  # a model with a custom operator, and data with a slot `share`
PATCHES = {kind: patches(SOURCE / f"tests/conform/mutants/{kind}.patch") for kind in sorted([*KINDS, *EXTENDED])}
MUTANTS = [(kind, i, name) for kind in PATCHES for i, (name, _) in enumerate(PATCHES[kind]) if re.match("R[0-9]", name)]
BROKEN = re.compile("^  R[0-9]+ +(broken|crashes|hangs)")
POLICY, OPTIMIZER, EMULATOR = "my-policy/sound.so", "my-optimizer", BUILD / "tests/cuda/weft-device-cuda.so"


def built_in(kind, id):
    return BUILD / f"plugins/weft-{kind}-{id}.so"


def make_plugin(source, file, *flags):
    flags = flags or ["-O1", "-fno-math-errno", "-ffp-contract=off", "-Wl,--no-undefined"]
    run("gcc", "-std=gnu11", "-fvisibility=hidden", "-fPIC", "-shared", f"-I{SOURCE}/sdk/include",
        f"-I{SOURCE}/tests/conform",
        f"-Wl,--version-script={SOURCE}/sdk/cmake/weft-plugin.map", *flags, source, "-o", file, "-lm")
    return file


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    os.mkdir("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", f"{scratch}/scratch")
        for kind in KINDS:
            weft(f"plugins new {kind} my-{kind}")
            make_plugin(f"my-{kind}/my_{kind}.c", f"my-{kind}/sound.so")
        for name, kind in EXTENDED.items():
            shutil.copytree(f"my-{kind}", f"my-{name}")
            patched(f"my-{kind}/my_{kind}.c", dict(PATCHES[kind])[name], f"my-{name}/my_{name}.c")
            make_plugin(f"my-{name}/my_{name}.c", f"my-{name}/sound.so")
        yield
    assert not list(pathlib.Path("scratch").rglob("weft-check-*"))  # what a rule wrote


def variant(kind, name, file=None, text=None):
    """Builds my-KIND/FILE.so, by default NAME.so, with that patch. Returns its path."""
    path = f"my-{kind}/{file or name}"
    patched(f"my-{kind}/my_{kind}.c", text or dict(PATCHES[kind])[name], f"{path}.c")
    return make_plugin(f"{path}.c", f"{path}.so")


def keys(kind):
    return ["weight_decay=0.1"] if kind == "optimizer" else []


@pytest.mark.parametrize("kind", [*KINDS, *EXTENDED] if FULL else KINDS)
def test_template(kind):
    """Its optimizer has no states for R114, its tokenizer no tables for R116, its data no `share` for R120."""
    allowed = re.compile("^  R(114|116|120) +moot") if kind in KINDS else re.compile("$^")
    rule = [] if FULL or kind in ("optimizer", "policy", "data") else ["--rule", "R27"]
    said = weft(f"plugins check my-{kind}/sound.so", *keys(kind), *rule).out
    says(said, re.compile("^  R27 +holds"))
    assert not [line for line in lines(said, re.compile("^  R[0-9]+ +(broken|crashes|hangs|untried|moot)"))
                if not allowed.match(line)]


@pytest.mark.parametrize("kind, i, rule", MUTANTS if FULL else MUTANTS[23::24])
def test_mutant(kind, i, rule):
    assert len(MUTANTS) >= 60
    file = variant(kind, rule, f"mutant{i}", PATCHES[kind][i][1])
    said = weft(f"plugins check {file} --seconds 5 --rule {rule}", *keys(kind), status=[10, 11, 12])
    says(said, re.compile(f"^  {rule} +(broken|crashes|hangs)"))


def test_json():
    found = weft(f"plugins check {POLICY} my-data/sound.so --json --rule R26").json
    assert [file["kind"] for file in found] == ["policy", "data"]


@pytest.mark.parametrize("arguments, facts", [
    ("blocks=2", ["no file"]), ("./no-such.so", ["no-such.so"]), (f"{POLICY} block=3", ["key block", "blocks?"]),
    (f"{POLICY} blocks=0 --rule R40", ["[policy] blocks = 0 "]),
    (f"{built_in('policy', 'class')} class=x", ["key class", "classes?"])])
def test_error(arguments, facts):
    refused(f"plugins check {arguments}", says=facts)


@pytest.mark.parametrize("rule", ["R99", "26", "R30"])
def test_unknown_rule(rule):
    """The error lists the rules of a policy."""
    refused(f"plugins check {POLICY} --rule {rule}", status=2, says="R26, R40, R41, R42, R43, R44")


def test_missing_key():
    says(weft("plugins check", built_in("policy", "class"), status=13), "classes", "missing")


def answers(status, verdict, facts, *arguments, **options):
    """The check of one rule has that status and verdict; one line has the facts."""
    said = weft("plugins check", *arguments, status=status, **options)
    says(said, re.compile(f"^  R[0-9]+ +{verdict}"))
    says(said, *facts)
    return said


@pytest.mark.parametrize("status, verdict, facts, kind, name, arguments", [
    (0, "moot", [], "adapter", "unmerged", "--rule R92"),
    (11, "crashes", ["optimizer:my-optimizer", "prepare", "update 7"], "optimizer", "crash", "--rule R31"),
    (12, "hangs", ["prepare", "2 s", "step 2"], "optimizer", "endless", "--rule R27 --seconds 2"),
    (10, "broken", ["standard output or error"], "optimizer", "mute", "--rule R27"),
    (10, "broken", ["descriptors"], "optimizer", "shut", "--rule R31"),
    (11, "crashes", ["optimizer:my-optimizer", "prepare", "status 0"], "optimizer", "raw", "--rule R31"),
    (10, "broken", ["optimizer:my-optimizer", "prepare", "status 0"], "optimizer", "raw", "--rule R27"),
    (11, "crashes", ["leaving.so)", "main thread", "prepare"], "optimizer", "leaving", "--rule R31"),
    (10, "broken", ["leaving.so)", "main thread", "prepare", "step 3"], "optimizer", "leaving", "--rule R27"),
    # A key that is never read violates no rule, because it may need another key, and is named.
    (0, "holds", [": momentum"], "optimizer", "deaf", "weight_decay=0.1 --rule R31"),
    (0, "holds", [": blocks"], "policy", "deaf", "--rule R41"),
    # A plugin that cannot work on this machine, and reports that in works, in its entry or in a slot, passes.
    (13, "untried", ["no loom"], "policy", "shy", ""),
    # Rejected inputs are not tested: the rule's share is reported, and a policy that rejects most inputs is untried.
    (13, "untried", ["1 of 27 trees", "rejects 26", "5 modules are too many"], "policy", "picky", "--rule R40"),
    (0, "holds", ["26 of 27 trees", "rejects 1"], "policy", "fussy", "--rule R41"),
    (0, "holds", ["26 of 27 trees", "rejects 1"], "policy", "narrow", "--rule R40"),
    *((0, "holds", ["jobs in a mode", "rejects"], "strategy", code, "--rule R50") for code in ("user", "unsupported")),
    # A required list of paths. A path on the command line starts at the working directory.
    (13, "untried", ["also", "missing"], "policy", "listed", "--rule R40"),
    (0, "holds", [], "policy", "listed", "also=here,/there --rule R40"),
    (10, "broken", ["weft prove: rank"], "optimizer", "dies", "--rule R28")])
def test_variant(status, verdict, facts, kind, name, arguments):
    answers(status, verdict, facts, variant(kind, name), *arguments.split())


def test_several_reasons_of_a_variant():
    said = answers(10, "broken", ["lm_head.weight"], variant("optimizer", "pid"), "--rule", "R28")
    says(said, "process", " id")
    said = weft("plugins check", variant("policy", "idle"), status=13).out
    says(said, "no loom")
    says(said, re.compile("^  R[0-9]* *untried"), count=7)
    says(said, re.compile("^  R26 +holds"))
    said = str(weft("plugins check my-optimizer/dies.so --rule R28", status=10))
    says(said, "signal 11")
    assert not [line for line in said.splitlines() if line and not line.startswith((" ", "optimizer:"))]


@pytest.mark.parametrize("status, verdict, facts, file, arguments", [
    (0, "holds", ["R40"], built_in("policy", "class"), "classes=LlamaDecoderLayer --rule R40"),
    (13, "untried", ["R40"], built_in("policy", "class"), "classes=NoSuchClass --rule R40"),
    (13, "untried", ["/nonexistent"], built_in("data", "text"), "path=/nonexistent --rule R27"),
    (0, "holds", ["R52"], built_in("strategy", "fsdp"), "--rule R52"),  # it has its keys to itself
    (0, "holds", ["jobs in a mode", "rejects"], built_in("strategy", "single"), "--rule R50"),
    (13, "untried", ["0.1 s"], POLICY, "--rule R28 --seconds 0.01"),
    (0, "holds", [], built_in("data", "text"), "path=text.txt --rule R70"),
    (0, "holds", [], built_in("data", "text"), "path=text.txt --rule R27")])
def test_plugin(status, verdict, facts, file, arguments):
    write("text.txt", "".join(f"{i} words of a line\n" for i in range(1, 4001)))
    answers(status, verdict, facts, file, *arguments.split())


@pytest.mark.skipif(not EMULATOR.exists(), reason="the CUDA emulator, which was not built")
def test_one_card_for_two_ranks():
    answers(13, "untried", ["1 card", "2 ranks"], EMULATOR, "--rule", "R28")


def test_policy_that_takes_all_trees():
    says(weft(f"plugins check {POLICY} --rule R40"), "tested on", count=0)


def test_contraction():
    """Built with it, on a processor with FMA; and without a compiler to look."""
    if re.search(r"\bfma\b", pathlib.Path("/proc/cpuinfo").read_text()):
        file = make_plugin("my-optimizer/my_optimizer.c", "my-optimizer/fma.so", "-O3", "-march=native")
        answers(10, "broken", ["contraction"], file, "weight_decay=0.1", "--rule", "R117")
    answers(13, "untried", [], "my-optimizer/sound.so", "--rule", "R117", env={"CC": "nothing", "PATH": "/nonexistent"})


def test_reason_without_warnings(scratch):
    """A reason is only the error, without earlier warnings."""
    file = variant("policy", "loner")
    os.chmod(file, 0o646)  # causes a warning
    answers(10, "broken", [f"status 1: [0] weft prove: policy:my-policy ({scratch}/{file}) ", "rank 1", "rank 0: "],
            file, "--rule", "R28")


def test_run_with_a_variant(scratch):
    file = scratch / variant("optimizer", "short")  # prepare writes beyond hp, whose size is one member short
    refused(f"train my-optimizer/try/run.ini optimizer.plugin={file} run.out={scratch}/short",
            says=["short.so)", "byte 8 of hp", "prepare", "hp_size is 8"])
    file = scratch / variant("data", "empty")
    refused(f"train my-data/try/run.ini data.plugin={file} eval.every=2",
            says=["[data] plugin = my-data", "validation"])


@pytest.mark.parametrize("kind, name, facts", [
    ("tokenizer", "id", ["wrong.so)", "id 999", "encode"]),
    ("tokenizer", "fails", ["text.txt:1: tokenizer:my-tokenizer ({file})", "encode"]),
    ("tokenizer", "rounds", ["tokenizer:my-tokenizer ({file})", "floating-point mode"]),
    ("tokenizer", "umask", ["umask", "create", "tokenizer:my-tokenizer ("]),
    *(("adapter", name, ["adapter:my-adapter ({file}), in training", "'model.layers.0."])
      for name in ("same", "rounds")),
    ("adapter", "umask", ["umask"])])
def test_error_names_the_plugin_that_causes_it(scratch, kind, name, facts):
    file = scratch / variant(kind, name, "wrong")
    said = refused(f"train my-{kind}/try/run.ini {kind}.plugin={file} run.out={scratch}/blamed-{kind}-{name}",
                   says=[fact.format(file=file) for fact in facts])
    says(said, re.compile(rf"(data|model):[a-z]+ \(.*: .*my-{kind}"), count=0)


BUILT = [*BUILD.glob("plugins/weft-*.so"), *BUILD.glob("tests/cuda/weft-device-cuda.so"),
         *SOURCE.glob("tests/archive/sdk-*/*.so")]


@full_only
@pytest.mark.parametrize("file", [file for file in BUILT if "weft-device-archive" not in file.name], ids=str)
def test_built_and_archived_plugin(file):
    """It satisfies the rules, or is not tested. The archived minimal device lacks features."""
    words = {"weft-optimizer": "weight_decay=0.1", "weft-policy-class": "classes=LlamaDecoderLayer",
             "tests/cuda": "share=yes"}
    said = weft("plugins check", file, *(word for part, word in words.items() if part in str(file)),
                status=range(0, 20))
    says(said, re.compile("^  R26  *holds"))
    says(said, BROKEN, count=0)


@full_only
@pytest.mark.parametrize("rule", ["R80", "R84", "R85", "R86", "R87", "R118", "R119"])
@pytest.mark.parametrize("family", sorted(path.name for path in SOURCE.glob("tests/golden/family-*")))
def test_family(family, rule):
    directory = SOURCE / "tests/golden" / family
    model_type = read_json(directory / "config.json")["model_type"]
    answers(0, "holds", [], built_in("model", model_type), "--directory", directory, "--rule", rule)
