"""~/.local as a prefix: Weft is installed there and found only through PATH. A plugin is built against it with CMake
and pkg-config without further settings; plugins installed there are found by programs of any other prefix, too. One
version number identifies Weft and its SDK."""
import os
import pathlib
import re
import shlex
import shutil

import pytest
from harness import BUILD, CC, FAILS, SOURCE, patches, read, run, says, write


@pytest.fixture(scope="module", autouse=True)
def local(scratch):
    """Two installations: ~/.local, which is the prefix on PATH, and one elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        for name in "WEFT_PLUGIN_PATH", "XDG_DATA_HOME", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH":
            patch.delenv(name, raising=False)
        prefix = scratch / "home/.local"
        patch.setenv("HOME", str(scratch / "home"))
        patch.setenv("PATH", f"{prefix}/bin:{os.environ['PATH']}")
        for to in prefix, scratch / "elsewhere":
            run("cmake", "--install", BUILD, "--prefix", to)
        yield prefix


def describes(plugin, place, program="weft"):
    """The plugin is found below that directory."""
    says(run(program, "plugins", "describe", plugin).out, f"{place}/")


def test_cmake(local, scratch):
    """Without settings, with one version of program and packages. The program of another prefix finds it, too."""
    assert shutil.which("weft") == f"{local}/bin/weft"
    describes("policy:block", local)
    version, sdk = re.fullmatch(r"weft ([0-9.]+) \(SDK ([0-9.]+)\)\n", run("weft", "--version").out).groups()
    assert version.startswith(sdk + ".")
    run("weft", "plugins", "new", "policy", "mine")
    lists = read("mine/CMakeLists.txt")
    for wanted, end, status in ("99.0", "", FAILS), (sdk, 'message(STATUS "Weft is ${Weft_VERSION}")', 0):
        write("mine/CMakeLists.txt", lists.replace("(Weft 1.0 QUIET)", f"(Weft {wanted} QUIET)\n{end}"))
        said = run("cmake", "-S", "mine", "-B", f"made-{wanted}", status=status)
        says(said, "-DCMAKE_PREFIX_PATH=/path/to/prefix" if status else f"Weft is {version}")
    run("cmake", "--build", f"made-{sdk}")
    run("cmake", "--install", f"made-{sdk}")
    for program in "weft", scratch / "elsewhere/bin/weft":
        describes("policy:mine", local, program)


def test_program_of_another_prefix(local, scratch):
    """It searches ~/.local after the user's directory and before the installation."""
    program = scratch / "elsewhere/bin/weft"
    said = str(run(program, "plugins", "describe", "policy:nowhere", status=FAILS))
    places = [said.find(place) for place in (f"{local}/share/weft/plugins/weft-policy-nowhere.so", f"{local}/lib",
                                             f"{scratch}/elsewhere")]
    assert 0 < places[0] < places[1] < places[2], said


def test_make(local):
    """It queries the program on PATH for its location."""
    run("weft", "plugins", "new", "optimizer", "made-by-make")
    run("make", "-C", "made-by-make", "install")
    describes("optimizer:made-by-make", f"{local}/share/weft/plugins")


def test_compiler_and_pkg_config(local):
    (file,) = local.rglob("weft.pc")
    pc = {"PKG_CONFIG_PATH": file.parent}
    version = run("pkg-config", "--modversion", "weft", env=pc).out.strip()
    says(run("weft", "--version").out, f"weft {version} (SDK ")
    run("weft", "plugins", "new", "policy", "byhand")
    cflags, libs = (shlex.split(run("pkg-config", flag, "weft", env=pc).out) for flag in ("--cflags", "--libs"))
    run(*CC, *cflags, "byhand/byhand.c", "-o", "weft-policy-byhand.so", *libs)
    run("weft", "plugins", "describe", "policy:./weft-policy-byhand.so")


def test_scripts_of_an_installation(scratch):
    """They run in any directory."""
    os.mkdir("work")
    run("sh", scratch / "elsewhere/share/weft/configs/teach.sh", cwd="work")
    assert pathlib.Path("work/runs/teach.log").exists()
    scripts = {file.name for file in pathlib.Path("elsewhere/share/weft/configs").glob("*.sh")}
    assert scripts <= {"manual.sh", "packages.sh", "slurm.sh", "teach.sh", "two-hosts.sh"}


@pytest.mark.parametrize("prefix", ["home/.local", "elsewhere"])
def test_installed_comparison_of_headers(prefix):
    abi, include = f"{prefix}/share/weft/abi", f"{prefix}/include"
    said = run("sh", f"{abi}/compare.sh", f"{abi}/sdk-1.0.txt", include).out
    assert all(line.startswith("adds ") for line in said.splitlines())
    write("measured", run("sh", f"{abi}/measure.sh", include).out)
    shutil.rmtree("later", ignore_errors=True)
    shutil.copytree(include, "later")
    run("patch", "-s", "-p1", "-d", "later",
        stdin=dict(patches(SOURCE / "tests/archive/headers.patch"))["weft_module_view.is_block"])
    says(run("sh", f"{abi}/compare.sh", "measured", "later", status=1).out,
         re.compile(r"^breaks   weft_module_view\.is_block "))
