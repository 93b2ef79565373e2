"""Plugin files that a run accepts, [plugins] pin, pin_list and trust, and warnings about accepted files. The policies
are `whole` with a constructor that writes a file, and so shows that the plugin's code has run."""
import hashlib
import os
import pathlib
import re
import shutil

import pytest
from harness import (ANY, BUILD, CC, FAILS, SOURCE, build_plugin, changed_plugin, make_model, make_text,
                     read, run, says, weft, write, write_ini)

CHANGED = SOURCE / "tests/changed"
OPEN = ["plugins.trust=pinned", "plugins.pin_list=open/deep/list"]
GCC = "Free Software Foundation" in run(*CC, "--version").out


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_model("model", 16, 4, 24, 2, 512)
    make_text(40)
    write_ini("run.ini", model="plugin=llama path=model start=fresh", data="path=games.txt document=line context=32",
              train="steps=2 global_batch=4")
    mine("mine")
    shutil.copytree("plugins", "safe/deep")
    pins("trusted", *(BUILD / "plugins").glob("*.so"))
    pins("more", *(BUILD / "plugins").glob("*.so"), "plugins/weft-policy-mine.so")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{scratch}/plugins")
        yield


def mine(id, *flags, **options):
    return changed_plugin("policy", "whole", id, f'RAN="{pathlib.Path().resolve()}/{id}.ran"', by="renamed",
                          sources=[CHANGED / "leaves.c"], flags=flags, **options)


def sha256(file):
    return hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()


def pins(file, *of):
    """Writes or extends a list of pins, as sha256sum does."""
    before = read(file) if pathlib.Path(file).exists() else "# what came with Weft\n\n"
    return write(file, before + "".join(f"{sha256(one)}  {one}\n" for one in of))


def has_run(name="mine"):
    """True if that plugin's code has run since the last call."""
    file = pathlib.Path(f"{name}.ran")
    existed = file.exists()
    file.unlink(missing_ok=True)
    return existed


def plan(*arguments, facts=(), status=0, quiet=False):
    """Plans the run, which logs one line with the facts."""
    said = weft("plan", "run.ini", *arguments, status=status)
    if facts:
        says(said.err, *facts)
    assert not quiet or said.err == ""
    return said.err


def pinned(list, *arguments):
    return "plugins.trust=pinned", f"plugins.pin_list={list}", *arguments


def check(file, *facts):
    """`weft plugins check` warns with these facts, or does not warn; as text and as JSON."""
    text = weft("plugins", "check", file, "--rule", "R26").out
    found = weft("plugins", "check", file, "--rule", "R26", "--json").json[0].get("warnings") or []
    if facts:
        says(text, "  warning", *facts)
        assert any(all(fact in warning for fact in facts) for warning in map(str, found))
    else:
        says(text, re.compile("^  warning"), count=0)
        assert found == []


# ---- pins


def test_without_pins():
    plan("policy.plugin=mine", quiet=True)
    assert has_run()


def test_own_plugins_need_a_pin():
    plan("plugins.trust=pinned", status=1, facts=["[plugins] trust = pinned", "SHA-256",
                                                  f"{BUILD.resolve()}/plugins/weft-"])
    plan(*pinned("trusted"), quiet=True)


def test_file_without_a_pin(scratch):
    """It is rejected with instructions; its code does not run before it is pinned."""
    file, hash = scratch / "plugins/weft-policy-mine.so", sha256("plugins/weft-policy-mine.so")
    has_run()
    said = plan(*pinned("trusted", "policy.plugin=mine"), status=1, facts=[f"{file} ", hash, f"{scratch}/trusted"])
    assert not has_run() and f"[plugins] pin = policy:mine={hash}," in said
    plan(*pinned("trusted", "policy.plugin=mine", f"plugins.pin=policy:mine={hash}"))
    assert has_run()
    plan(*pinned("more", "policy.plugin=mine"))
    plan(*pinned("more", f"policy.plugin={file}"))


def test_other_build_is_another_file():
    mine("built", "-O2")
    pins("builds", *(BUILD / "plugins").glob("*.so"), "plugins/weft-policy-built.so")
    plan(*pinned("builds", "policy.plugin=built"))
    mine("built", "-DANOTHER", "-g")
    plan(*pinned("builds", "policy.plugin=built"), status=1, facts=["weft-policy-built.so "])
    plan("plugins.pin_list=builds", "policy.plugin=built")  # a list by itself restricts no file


def library(file, function, *flags):
    file = pathlib.Path(file).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    run(*CC, "-shared", "-fPIC", f'-DRAN="{pathlib.Path().resolve()}/{function}.ran"', f"-DFUNCTION={function}", "-o",
        file, CHANGED / "leaves.c", *flags)
    return file


def test_libraries_need_a_pin(scratch):
    """Of a pinned file by run path or full path, and of such a library. No code runs before all are pinned."""
    inner = library("libraries/deep/libinner.so", "inner")
    to_inner = ["-DCALLS=inner", "-Llibraries/deep", "-linner", "-Wl,-rpath,$ORIGIN/deep"]
    outer = library("libraries/libouter.so", "outer", *to_inner)
    to_outer = ["-DCALLS=outer", "-Llibraries", "-louter", "-Wl,-rpath,$ORIGIN/../libraries",
                "-Wl,-rpath-link,libraries/deep"]
    pins("pins", *(BUILD / "plugins").glob("*.so"), mine("linked", *to_outer))
    for needed in outer, inner:
        plan(*pinned("pins", "policy.plugin=linked"), status=1, facts=[f" {needed}", sha256(needed)])
        assert not has_run("outer") and not has_run("inner") and not has_run("linked")
        pins("pins", needed)
    plan(*pinned("pins", "policy.plugin=linked"))
    assert has_run("outer") and has_run("inner") and has_run("linked")
    # A variant that the loader prefers on some processors, and a library without a soname, whose path is used.
    variant = library("libraries/glibc-hwcaps/x86-64-v2/libouter.so", "outer", "-g3", *to_inner)
    plan(*pinned("pins", "policy.plugin=linked"), status=1, facts=[f" {variant}"])
    assert not has_run("outer") and not has_run("inner")
    shutil.rmtree("libraries/glibc-hwcaps")
    whole = library("libraries/whole.so", "inner", "-g3")
    pins("pins", mine("linked", "-Wl,--no-as-needed", whole, *to_outer))
    plan(*pinned("pins", "policy.plugin=linked"), status=1, facts=[f" {whole}"])
    assert not has_run("outer") and not has_run("inner")


@pytest.mark.parametrize("content, facts", [("sha256 of mine: 0123", ["line 1 of ", "/bad "]),
                                            (None, ["nowhere", "No such file"])])
def test_invalid_list(content, facts):
    if content:
        write("bad", content + "\n")
    plan(*pinned("bad" if content else "nowhere"), status=1, facts=facts)


def test_invalid_trust():
    plan("plugins.trust=some", status=1, facts=["trust"])


def test_plugin_of_an_unused_section():
    """It is loaded in a subprocess, and checked there."""
    write("idle.ini", read("run.ini") + "[policy.mine]\nnothing = 1\n")
    has_run()
    weft("plan", "idle.ini", *pinned("trusted"), status=ANY)
    assert not has_run()


def test_launcher_of_a_communicator(scratch):
    """That of a file without a pin is not started."""
    write("launcher", f"#!/bin/sh\n: >{scratch}/launcher.ran\nexit 3\n").chmod(0o755)
    changed_plugin("comm", "self", "evil", f'LAUNCH="{scratch}/launcher -n {{ranks}}"', by="renamed")
    ranks = ["train", "run.ini", "--ranks", "2", "strategy.plugin=ddp", "comm.plugin=evil", "run.out=out"]
    weft(*ranks, status=ANY)
    assert has_run("launcher")
    says(weft(*ranks, *pinned("trusted"), status=FAILS).err, "weft-comm-evil.so ")
    assert not has_run("launcher")


# ---- plugins in the directory of a run or its model: loaded only if the command line names them


@pytest.fixture(scope="module")
def resolved(inputs):
    weft("train", "run.ini", "run.out=got")
    shutil.copy("plugins/weft-policy-mine.so", "got")
    os.symlink("got", "away")
    shutil.copytree("model", "brought")
    shutil.copy("plugins/weft-policy-mine.so", "brought")
    text = re.sub(r"(?m)^\[(policy|plugins)[^\n]*\n(.+\n)*\n", "", read("got/config.ini") + "\n")
    assert "[policy" not in text and "[plugins]" not in text
    return text


@pytest.mark.parametrize("lines, facts, named", [
    ("[policy]\nplugin = {here}/got/weft-policy-mine.so",
     ["[policy] plugin = {here}/got/weft-policy-mine.so lies in {here}/got"],
     "policy.plugin={here}/got/weft-policy-mine.so"),
    ("[policy]\nplugin = ../plugins/weft-policy-mine.so", ["relative to {here}/got"], None),
    ("[plugins]\npath = {here}/got\n[policy]\nplugin = mine",
     ["[plugins] path = {here}/got lies in {here}/got"], "plugins.path=got"),
    ("[policy]\nplugin = {here}/away/weft-policy-mine.so", ["lies in {here}/got"], None)])
def test_plugin_in_a_run(scratch, resolved, lines, facts, named):
    write("got/config.ini", resolved + "\n" + lines.format(here=scratch) + "\n")
    for command in ["plan", "got"], ["eval", "got"], ["config", "check", "got/config.ini"]:
        has_run()
        said = weft(*command, status=1)
        assert not has_run()
        says(said.err, "got/config.ini:", *(fact.format(here=scratch) for fact in facts))
        if named:
            weft(*command, named.format(here=scratch))
            assert has_run()


def test_plugin_in_the_model(scratch, resolved):
    text, found = re.subn(f"(?m)^path *= {scratch}/model$", f"path = {scratch}/brought", resolved)
    assert found
    write("got/config.ini", f"{text}\n[policy]\nplugin = {scratch}/brought/weft-policy-mine.so\n")
    says(weft("config", "check", "got/config.ini", status=1).err, f"lies in {scratch}/brought")
    write("got/config.ini", f"{text}\n[policy]\nplugin = {scratch}/plugins/weft-policy-mine.so\n")  # elsewhere
    weft("plan", "got")
    weft("eval", "got")


# ---- warnings, by a run and by `weft plugins check`: who can change or replace the file, and the fix


@pytest.fixture
def deep(scratch):
    """A plugin in open/deep, and links to it."""
    shutil.rmtree("open", ignore_errors=True)
    shutil.copytree("safe", "open")
    os.symlink(scratch / "plugins", "open/link")
    pathlib.Path("through.so").unlink(missing_ok=True)
    os.symlink(scratch / "open/deep/weft-policy-mine.so", "through.so")
    pins("open/deep/list", *(BUILD / "plugins").glob("*.so"), "open/deep/weft-policy-mine.so")
    for path in scratch / "open", scratch / "open/deep":
        path.chmod(0o755)
    return scratch / "open/deep/weft-policy-mine.so"


FILE, LIST, LINK = "open/deep/weft-policy-mine.so", "open/deep/list", "open/link/weft-policy-mine.so"
CHANGES = [  # path, owner, group, mode; the file that is loaded; who, which path, fix, or no warning
    (FILE, 0, 0, 0o646, FILE, "every user", FILE, "chmod o-w"),
    ("open/deep", 0, 0, 0o757, FILE, "every user", "open/deep", "chmod o-w"),
    ("open/deep", 0, 0, 0o1757, FILE, None, None, None),  # like /tmp: users cannot replace each other's files
    ("open", 0, 0, 0o777, FILE, "every user", "open", "chmod o-w"), ("open", 0, 0, 0o1777, FILE, None, None, None),
    ("open", 0, 0, 0o777, LINK, "every user", "open", "chmod o-w"),
    ("open", 0, 0, 0o777, "through.so", "every user", "open", "chmod o-w"),
    ("open", 0, 0, 0o755, "through.so", None, None, None), (FILE, 0, 0, 0o644, FILE, None, None, None),
    (FILE, 65534, 65534, 0o644, FILE, "user 65534", FILE, "chown"), (FILE, 0, 65534, 0o644, FILE, None, None, None),
    (FILE, 0, 65534, 0o664, FILE, "group 65534", FILE, "chmod g-w"),
    ("open", 65534, 0, 0o1755, FILE, "user 65534", "open", ""),  # the sticky bit restricts others, but not the owner
    ("open", 0, 65534, 0o775, FILE, "group 65534", "open", "chmod g-w"),
    ("open", 0, 65534, 0o1775, FILE, None, None, None),
    ("through.so", 65534, 0, None, "through.so", "user 65534", "through.so", "")]


def set_owner(path, owner, group, mode):
    if (owner, group) != (0, 0):
        try:
            os.chown(path, owner, group, follow_symlinks=False)
        except PermissionError:
            pytest.skip("this user cannot give files to another one")
    if mode is not None:
        os.chmod(path, mode)


@pytest.mark.parametrize("path, owner, group, mode, loaded, who, what, fix", CHANGES)
def test_file_that_others_can_change(scratch, deep, path, owner, group, mode, loaded, who, what, fix):
    set_owner(path, owner, group, mode)
    file = pathlib.Path(loaded).resolve()
    if who is None:
        plan(f"policy.plugin={scratch}/{loaded}", quiet=True)
        check(loaded)
        return
    facts = ["changed" if what == FILE else "replaced", who, f"{scratch}/{what}", fix]
    says(plan(f"policy.plugin={scratch}/{loaded}", facts=[f"policy:mine ({file})", *facts]), "can be ", count=1)
    check(loaded, *facts)


@pytest.mark.parametrize("path, owner, mode, who", [(LIST, 0, 0o646, "every user"), ("open", 0, 0o777, "every user"),
                                                    ("open", 65534, 0o1755, "user 65534"), (LIST, 0, 0o644, None)])
def test_list_that_others_can_change(scratch, deep, path, owner, mode, who):
    """It is invalid, which only matters with trust = pinned."""
    set_owner(path, owner, 0, mode)
    arguments = *OPEN, f"policy.plugin={deep}"
    if who is None:
        plan(*arguments)
    else:
        plan(*arguments, status=1, facts=["[plugins] pin_list", f"{scratch}/{LIST}", who, f"{scratch}/{path}"])
        plan(f"plugins.pin_list={scratch}/{LIST}", "policy.plugin=mine")


def test_id_of_an_installed_plugin(scratch):
    """A copy of the installed file counts as the same file."""
    file = mine("block")
    says(plan(facts=[f"policy:block ({file})", "id of"]), "id of", count=1)
    check(file, "id of")
    shutil.copy(BUILD / "plugins/weft-policy-block.so", file)
    plan(quiet=True)
    check(file)
    file.unlink()
    plan(quiet=True)


# ---- fast math, whose linking would be rejected: compiled with it, and linked without it


def compiled(name, *flags):
    source = CHANGED / ("sum.c" if name == "sum" else "renamed.c")
    run(*CC, "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{SOURCE}/sdk/include",
        f"-I{SOURCE}/plugins",
        '-DSOURCE="policy/whole/whole.c"', f'-DID="{name}"', *flags, "-c", source, "-o", f"{name}.o")
    return f"{name}.o"


@pytest.mark.parametrize("flag, of", [("-ffast-math", "plugin"), ("-ffinite-math-only", "plugin"),
                                      ("-ffast-math", "sum"), ("-O2", "sum")])
def test_fast_math(flag, of):
    """Detected through the note, or, if only another source was compiled that way, through debug information."""
    if of == "sum" and not GCC:
        pytest.skip("fast math in another source is known from GCC's debug information")
    objects = [compiled("fast", *([flag] if of == "plugin" else []))]
    objects += [compiled("sum", "-g", flag)] if of == "sum" else []
    file = build_plugin("policy", "fast", *objects)
    if flag == "-O2":
        plan("policy.plugin=fast", quiet=True)
    else:
        plan("policy.plugin=fast", facts=[f"policy:fast ({file})", "-ffast-math"])
        check(file, "-ffast-math")
