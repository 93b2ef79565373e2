"""weft plugins new: the project is installed and moved, and a plugin of every kind that has a template is written,
builds with make and with CMake, without a warning as C11 by two compilers and as C++17, and trains; with the full suite
each one's own check runs."""
import os
import re
import shutil
import sys

import pytest
from harness import BUILD, FAILS, FULL, SOURCE, full_only, read, run, says, write

KINDS = sorted(path.name for path in (SOURCE / "sdk/template/new").iterdir() if path.name != "common")
WARN = "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
MAKE = shutil.which("make")


@pytest.fixture(scope="module", autouse=True)
def local(scratch):
    """The prefix, which is moved after the installation. The project of each kind is written."""
    assert len(KINDS) >= 9
    run("cmake", "--install", BUILD, "--prefix", scratch / "installed")
    os.mkdir("moved")
    os.rename("installed", "moved/local")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WEFT_PLUGIN_PATH", raising=False)
        patch.setenv("XDG_DATA_HOME", str(scratch / "share"))
        for kind in KINDS:
            run("moved/local/bin/weft", "plugins", "new", kind, f"my-{kind}")
        yield scratch / "moved/local"


def cmake(source, to, local, *words):
    run("cmake", "-S", source, "-B", to, f"-DCMAKE_PREFIX_PATH={local}", *words)
    run("cmake", "--build", to)


@pytest.fixture(scope="module")
def program(local):
    return local / "bin/weft"


def refused(command, *facts, **options):
    """The command fails, with a line that has the facts. Returns its output."""
    result = str(run(*command, status=FAILS, **options))
    says(result, *facts)
    return result


def test_installation(local):
    assert (local / "share/doc/weft/plugin-authors.md").is_file()
    assert (local / "share/weft/configs/chess/base/model.safetensors").is_file()
    run(sys.executable, "-B", "-m", "pytest", "-q", SOURCE / "tests/docs/test_links.py", env={"WEFT_INSTALLED": local})


@pytest.mark.parametrize("kind", KINDS)
def test_make(program, scratch, kind):
    id = f"my-{kind}"
    assert not any("weftnew" in read(file).lower() for file in (scratch / id).rglob("*") if file.is_file())
    run("make", "-C", id, f"WEFT={program}", "CFLAGS=-std=c11 -Wall -Wextra -Wpedantic -Werror")
    if FULL:
        run("make", "-C", id, f"WEFT={program}", "check")
    else:
        run(program, "train", f"{id}/try/run.ini", f"{kind}.plugin={id}/weft-{kind}-{id}.so",
            f"run.out={scratch}/out-{kind}", "train.steps=2")


@pytest.mark.parametrize("language, compiler", [("C", "gcc"), ("C", "clang"), ("CXX", "g++")])
def test_cmake_without_a_warning(program, local, language, compiler):
    """All kinds below one project, because its configuration takes long. As C++ the sources have the names of that
    language. The host loads the plugins."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    to = f"by-{compiler}"
    lists = f"cmake_minimum_required(VERSION 3.22)\nproject(every LANGUAGES {language})\n"
    for kind in KINDS:
        source, c = f"{to}/my-{kind}", f"my_{kind}.c"
        shutil.copytree(f"my-{kind}", source, ignore=lambda _, names: [name for name in names if name.endswith(".so")])
        lists += f"add_subdirectory(my-{kind})\n"
        if language == "CXX":
            os.rename(f"{source}/{c}", f"{source}/{c}pp")
            text = read(f"{source}/CMakeLists.txt")
            for old, new in ("LANGUAGES C)", "LANGUAGES CXX)"), ("CMAKE_C_", "CMAKE_CXX_"), (f"{c})", f"{c}pp)"):
                assert old in text
                text = text.replace(old, new)
            write(f"{source}/CMakeLists.txt", text.replace("CXX_STANDARD 11", "CXX_STANDARD 17"))
    write(f"{to}/CMakeLists.txt", lists)
    cmake(to, f"{to}/build", local, f"-DCMAKE_{language}_COMPILER={compiler}", f"-DCMAKE_{language}_FLAGS={WARN}")
    for kind in KINDS:
        run(program, "plugins", "describe", f"{kind}:{to}/build/my-{kind}/weft-{kind}-my-{kind}.so")


def test_device_that_a_guide_explains(program, local):
    """docs/guide/your-own-device.md"""
    cmake(local / "share/weft/template/device-plain", "plain", local, f"-DCMAKE_C_FLAGS={WARN}")
    run(program, "plugins", "describe", "device:plain/weft-device-plain.so")


def test_cmake_installs_and_tests(program, local):
    """It installs to the search path of the program of the same prefix."""
    cmake("my-policy", "cmake-build", local, f"-DCMAKE_INSTALL_PREFIX={local}")
    run("ctest", "--test-dir", "cmake-build", "--output-on-failure")
    run("cmake", "--install", "cmake-build")
    says(run(program, "plugins", "describe", "policy:my-policy"), str(local))


@full_only
@pytest.mark.parametrize("kind", KINDS)
def test_cmake_of_one_kind(local, kind):
    cmake(f"my-{kind}", f"cmake-{kind}", local)


def test_make_installs(program, scratch):
    """In the user's own directory; and with the program of a build tree."""
    run("make", "-C", "my-optimizer", f"WEFT={program}", "install")
    says(run(program, "plugins", "describe", "optimizer:my-optimizer"), f"{scratch}/share/weft/plugins")
    run(BUILD / "weft", "plugins", "new", "optimizer", "of-the-tree")
    run("make", "-C", "of-the-tree", f"WEFT={BUILD}/weft")
    assert os.path.exists("of-the-tree/weft-optimizer-of-the-tree.so")


@pytest.mark.parametrize("words, facts", [
    ("optimiser x", ["'optimiser'", "optimizer?"]), ("policy My", ["'My'"]), ("policy weft-x", ["'weft-x'"]),
    ("optimizer adamw", ["optimizer:adamw", "/"]), ("data another --into my-data", ["my-data"]),
    ("data another --into locked/another", ["locked"])])
def test_refused(program, scratch, words, facts):
    if "locked" in words:
        if os.getuid() == 0:
            pytest.skip("root writes to any directory")
        os.mkdir("locked", 0o555)
    refused([program, "plugins", "new", *words.split()], *facts)
    assert list(scratch.glob("*.tmp")) + list(scratch.glob("*/*.tmp")) == []


def test_program_without_templates(local, program, scratch):
    shutil.copy(program, "alone")
    shutil.copytree(local / "libexec", "libexec")
    refused(["./alone", "plugins", "new", "data", "another"], re.compile("templates.*/"))
    shutil.rmtree("libexec")
    refused([MAKE, "-C", "my-policy", f"WEFT={scratch}/alone", "PKG_CONFIG_PATH="], "weft.pc", f"{scratch}/alone")


def test_missing_tool(program, scratch):
    """make names it before it builds anything."""
    os.mkdir("tools")  # what make itself needs, and nothing else
    for tool in "sh", "cc", "find", "tr", "pkg-config":
        os.symlink(shutil.which(tool), f"tools/{tool}")
    run(MAKE, "-C", "my-policy", "clean")
    make = [MAKE, "-C", "my-policy"]
    with_weft = [*make, f"WEFT={program}"]
    tools = {"PATH": scratch / "tools"}
    outputs = [refused(make, "weft-policy-my-policy", "PATH", env={**tools, "PKG_CONFIG_PATH": ""}),
               refused([*make, "WEFT=nowhere/weft", "PKG_CONFIG_PATH="], "nowhere/weft")]
    write("a home/weft.pc", re.sub("(?m)^includedir=.*", f"includedir={scratch}/a home", read(BUILD / "sdk/weft.pc")))
    outputs.append(refused([*with_weft, f"PKG_CONFIG_PATH={scratch}/a home", "PC_DIRS="], "blank", "CMake"))
    shutil.copy(program, "a home")
    outputs.append(refused(make, "blank", env={"PATH": f"{scratch}/a home:{os.environ['PATH']}"}))
    outputs.append(refused([*with_weft, "CC=no-such-cc"], "no-such-cc"))
    os.unlink("tools/pkg-config")
    outputs.append(refused(with_weft, "pkg-config", "CMake", env=tools))
    assert not any("my_policy.c" in output for output in outputs)
    run(*with_weft)
    refused(["sh", "my-policy/check.sh"], "check.sh", "nowhere/weft", env={"WEFT": "nowhere/weft"})
