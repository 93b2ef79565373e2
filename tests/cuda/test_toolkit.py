"""The CUDA toolkit that the build selects, by its nvcc's version: at least 12.4, and the build tree's own if the
system's is older. Tests CMake's messages with fake compilers that only print a version."""
import os
import pathlib
import re
import shutil

import pytest
from harness import ANY, SOURCE, run, says, write

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")


def nvcc(directory, release):
    file = write(f"{directory}/bin/nvcc",
                 f'#!/bin/sh\necho "Cuda compilation tools, release {release}, V{release}.131"\n')
    file.chmod(0o755)
    return str(pathlib.Path(directory).resolve())


def select(*arguments, **options):
    return run("cmake", *arguments, "-P", SOURCE / "plugins/cuda.cmake", status=ANY, **options)


def is_accepted(result):
    """Missing parts are reported, and the version is accepted."""
    assert "CUDA" in str(result) and not re.search("is the least|no release", str(result))


@pytest.mark.parametrize("release", ["11.8", "12.3"])
def test_old(release):
    root = nvcc("old", release)
    says(select(f"-DWEFT_CUDA_ROOT={root}"), f"{root}/bin/nvcc", f"CUDA {release}", "12.4")


@pytest.mark.parametrize("release", ["12.4", "12.10", "13.0"])
def test_new(release):
    is_accepted(select(f"-DWEFT_CUDA_ROOT={nvcc('new', release)}"))


def test_no_version():
    root = nvcc("none", "")
    says(select(f"-DWEFT_CUDA_ROOT={root}"), f"{root}/bin/nvcc", "release")


def test_own():
    """The build tree's own toolkit replaces an older one of the system."""
    env = {"CUDA_HOME": nvcc("system", "12.3")}
    os.makedirs("tree")
    says(select(env=env, cwd="tree"), "system/bin/nvcc", "12.3")
    nvcc("tree/cuda/nvidia/cu13", "13.0")
    is_accepted(select(env=env, cwd="tree"))
