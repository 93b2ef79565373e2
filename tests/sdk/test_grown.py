"""Plugins with longer structs than the host, and a host with longer structs than its plugins: both have the same bits
as matching ones."""
import os
import re

import pytest
from harness import (BUILD, SOURCE, WEFT, grown_headers, hashes, lines, make_run, needs, read, run, says)

GROWN = BUILD / "grown"
SIDES = {"both": (WEFT, BUILD / "plugins"), "plugins": (WEFT, GROWN / "build/plugins"),
         "host": (GROWN / "build/weft", BUILD / "plugins")}


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    """Builds the complete tree again with the longer structs and the settings of the outer build. Bits do not depend on
    the optimization level, so it compiles fast code for a few steps only; the CUDA device is not used here."""
    needs("mpich")
    grown_headers(GROWN / "include")
    settings = re.findall(r"^(CMAKE_C_COMPILER(?:_LAUNCHER)?|WEFT_[A-Z]*_CC|WEFT_DNNL_ROOT|WEFT_SANITIZE):[A-Z]*=(.*)",
                          read(BUILD / "CMakeCache.txt"), re.M)
    ninja = ["-G", "Ninja"] if (BUILD / "build.ninja").exists() else []
    run("cmake", "-S", SOURCE, "-B", GROWN / "build", "-DWEFT_TESTS=OFF", "-DWEFT_CUDA=OFF",
        f"-DWEFT_SDK_INCLUDE={GROWN}/include", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1",
        "-DCMAKE_C_FLAGS=-Wno-missing-field-initializers",  # caused by the longer structs
        *(f"-D{name}={value}" for name, value in settings), *ninja)
    run("cmake", "--build", GROWN / "build", "--parallel", os.cpu_count(), timeout=7200)
    make_run("steps = 4\nclip = 1.0\n[eval]\nevery = 2\n[optimizer]\nplugin = adamw\nlr = 1e-3\n"
             "[checkpoint]\nevery = 2\nkeep = 9\n[device]\nthreads = 1\n")


def side(name, words, *arguments):
    program, plugins = SIDES[name]
    return run(program, *words.split(), *arguments, env={"WEFT_PLUGIN_PATH": plugins})


def results(name):
    """Trains, resumes, plans and generates, on one rank and on two. Returns the hashes, programs and text."""
    found = []
    for ranks in "", "--ranks 2 comm.plugin=mpi-mpich strategy.plugin=fsdp policy.plugin=size policy.size=20k":
        out = f"{name}.{bool(ranks)}"
        side(name, f"train run.ini run.out={out} {ranks}")
        side(name, f"train run.ini run.out={out} train.steps=6 train.schedule=constant {ranks} --resume")
        found.append(hashes(out, "*.safetensors"))
        # A host with longer structs needs a few more bytes outside of the program.
        program = side(name, f"plan run.ini {ranks} --print-program").out
        found.append(lines(program, re.compile("^ +[0-9]+ +[0-3]  [A-Z]")))
    found.append(side(name, f"generate run.ini model.path={name}.False/model model.start=weights --tokens 5 "
                      "--temperature 0 --json --prompt", "1. e4").json)
    side(name, f"train run.ini run.out={name}.mp train.steps=2 --ranks 2 comm.plugin=mpi-mpich strategy.plugin=mp "
         "policy.plugin=class policy.classes=LlamaDecoderLayer")
    return [*found, hashes(f"{name}.mp", "*.safetensors")]


@pytest.fixture(scope="module")
def both(inputs):
    wanted = results("both")
    assert all(wanted)
    return wanted


def test_path():
    """The plugins come from the expected path."""
    says(side("plugins", "plugins list").out, re.compile(f"^device +cpu .* ok +{GROWN}/build/plugins/"))


@pytest.mark.parametrize("name", ["plugins", "host"])
def test_results(both, name):
    assert results(name) == both
