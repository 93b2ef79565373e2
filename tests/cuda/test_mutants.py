"""Applies each patch of mutants.patch: compiles the source, links it with the plugin's other objects, and requires the
named test to fail. MUTANTS=4,7 runs only these."""
import os
import pathlib
import re
import shlex
import shutil
import sys

import pytest
from harness import ANY, BUILD, EMULATOR, SOURCE, patched, patches, run

PATCHES = patches(SOURCE / "tests/cuda/mutants.patch")
CHOSEN = os.environ.get("MUTANTS", "")
MUTANTS = [int(i) for i in CHOSEN.split(",")] if CHOSEN else range(1, len(PATCHES) + 1)
sound = set()  # tests that pass without a mutant


@pytest.fixture(scope="module", autouse=True)
def build(emulator):
    """A build directory that is linked to the original except for the emulated plugins."""
    if shutil.which("ninja") is None:
        pytest.skip("there is no ninja, which knows how a source is compiled")
    os.makedirs("build/tests/cuda")
    for of, without in (BUILD, "tests"), (BUILD / "tests", "cuda"), (EMULATOR, None):
        for file in of.iterdir():
            if file.name != without:
                os.symlink(file, "build" / of.relative_to(BUILD) / file.name)


def command(plugin, pattern):
    """Returns the build's last command for a plugin that matches, as words."""
    commands = run("ninja", "-C", BUILD, "-t", "commands", f"weft-{plugin}-emulator").out.splitlines()
    return shlex.split([line for line in commands if re.search(pattern, line)][-1])


def passes(name, full):
    """Runs a test, or its quick part, with the plugins of build/."""
    name, keys = name.removeprefix("cuda."), ""
    if re.fullmatch("device_.*_cudnn", name):
        name, keys = name.removesuffix("_cudnn"), " attention=cudnn"
    script = SOURCE / f"tests/cuda/test_{name}.py"
    build = os.path.abspath("build")
    of_cuda = (SOURCE / f"tests/cuda/test_{name}.c").exists()
    words = [f"{build}/tests/test_{'cuda_' if of_cuda else ''}{name}"]
    if script.exists():
        words = [sys.executable, "-B", "-m", "pytest", "-q", script]
    return run("timeout", 900, *words, status=ANY, env={
        "WEFT_FULL": "1" if full else None, "WEFT_BUILD": build, "WEFT_EMULATOR_DEVICES": None,
        "WEFT_PLUGIN_PATH": f"{build}/tests/cuda:{build}/plugins", "WEFT_TEST_DEVICE": "cuda",
        "WEFT_TEST_KEYS": f"share=yes workspace=1Mi cache={EMULATOR}/compiled{keys}",
        "CK_TIMEOUT_MULTIPLIER": 10}).status == 0


@pytest.mark.parametrize("i", MUTANTS)
def test_mutant(i):
    """The quick part of the test suffices for most."""
    header, patch = PATCHES[i - 1]
    file, changed, name = header.split()
    if name not in sound:
        assert passes(name, False), f"{name} fails without a mutant"
        sound.add(name)
    shutil.rmtree("plugins", ignore_errors=True)
    shutil.copytree(SOURCE / "plugins", "plugins")
    patched(SOURCE / "plugins" / changed, patch, f"plugins/{changed}")
    plugin = "device-cuda" if file.startswith("device/") else "comm-nccl"
    here, linked = os.getcwd(), pathlib.Path(f"build/tests/cuda/weft-{plugin}.so").absolute()
    words = command(plugin, f"-c {SOURCE}/plugins/{file}( |$)")
    object_file = words[words.index("-o") + 1]
    outputs = {object_file: f"{here}/mutant.o", f"{object_file}.d": f"{here}/mutant.d"}
    run(*[outputs.get(word, word.replace(f"{SOURCE}/plugins/{file}", f"{here}/plugins/{file}")) for word in words],
        "-Wno-error", cwd=BUILD)
    words = command(plugin, f"-o [^ ]*weft-{plugin}.so")
    linked.unlink()
    try:
        run(*[f"{here}/mutant.o" if word == object_file else str(linked) if before == "-o" else word
              for before, word in zip(["", *words], words) if word not in (":", "&&")], cwd=BUILD)
        assert not (passes(name, False) and passes(name, True)), f"{name} passes with {header}"
    finally:
        linked.unlink(missing_ok=True)
        linked.symlink_to(EMULATOR / linked.name)
