"""Each public header compiles on its own as C11, C17 and C++17, without warnings and implicit padding, and so do the
examples in its comments. Functions have thread tags. A plugin in C++ has the same two exports. One source builds both a
loadable and a static plugin. A false SDK version does not compile."""
import os
import pathlib
import re
import shlex

import pytest
from harness import CC, FAILS, SOURCE, read, run, says, write

INCLUDE = f"-I{SOURCE}/sdk/include"
HEADERS = sorted((SOURCE / "sdk/include/weft").glob("*.h"))
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Wshadow", "-Wpadded", "-Werror", INCLUDE]
CXX = shlex.split(os.environ.get("CXX") or "c++")
THREAD = re.compile(r"\[(any-thread|main|worker)\]")


def compiles(source, *flags, status=0, compiler=CC, **options):
    return run(*compiler, *flags, source, status=status, **options)


def test_compile():
    assert len(HEADERS) >= 14
    for header in HEADERS:
        text = f"#include <weft/{header.name}>\n" * 2
        for standard in "c11", "c17":
            compiles(write("one.c", text), f"-std={standard}", *STRICT, "-Wconversion", "-fsyntax-only")
        compiles(write("one.cpp", text), "-std=c++17", *STRICT, "-fsyntax-only", compiler=CXX)


def test_threads():
    """Each function of a table has a thread tag: in the comment after it, in the one above it and its neighbours, or,
    for tables with "All [main]", in the table's comment."""
    n, missing = 0, []
    for header in HEADERS:
        above = everything = ""
        for part in re.findall(r"/\*.*?\*/|^typedef struct|^\}|^    [^(/]*\(\*[a-z_]+\)\([^;]*;(?:[ \t]*/\*.*?\*/)?",
                               read(header), re.M | re.S):
            if part.startswith("/*"):
                above = part
            elif part == "typedef struct":
                everything, above = above if "All [" in above else "", ""
            elif part == "}":
                above = everything = ""
            else:
                n += 1
                if not any(THREAD.search(text) for text in (part, above, everything)):
                    missing.append(f"{header.name}: {part}")
    assert n >= 90 and not missing


def test_versions():
    """Kind versions in the documents equal the host's."""
    rules, abi = read(SOURCE / "docs/sdk-rules.md"), read(SOURCE / "docs/abi.md")
    versions = re.findall(r"KIND\(([a-z]+), (\d+)", read(SOURCE / "host/plugin/kinds.c"))
    assert len(versions) == 9
    for kind, version in versions:
        assert re.search(rf"^\| R8 .*`{kind}/{version}`", rules, re.M)
        assert re.search(rf"^- \*\*Each kind .*[ ,]{kind}[ ,].* at {version}\.", abi, re.M)


def test_documented_structs():
    """abi.md lists each struct that a plugin receives or fills with the rule that tests it in a longer form, or as
    untested."""
    abi = read(SOURCE / "docs/abi.md")
    tested = re.search(r"^## Rules that test each struct.*?^`tests", abi, re.M | re.S)[0]
    structs = set()
    for kind, columns in re.findall(r"^\| (request|view|table|answer) \|(.*)", abi, re.M):
        cells = columns.split("|")[1:3 if kind == "answer" else 2]
        structs.update(re.findall(r"`(weft_\w+|WEFT_DEVICE_KERNELS)`", " ".join(cells)))
    assert len(structs) >= 25 and [name for name in structs if name not in tested] == []


def example(header, first):
    """Returns the example in a header's comments, from its first line on."""
    found = re.search(rf"^ \*     {first}.*?^ \*$", read(SOURCE / f"sdk/include/weft/{header}.h"), re.M | re.S)[0]
    return "\n".join(line[7:] for line in found.splitlines()[:-1]) + "\n"


def test_examples():
    """The examples, joined to one source."""
    units = "weft_status units(const weft_policy_job *job, const weft_wrap *wrap)"
    forward = "weft_value forward(const weft_ops *ops, weft_graph *g, weft_value x, const block *layer, double eps)"
    text = "\n".join([
        "#include <weft/model.h>", "#include <weft/policy.h>", example("keys", "#define LION_KEYS"),
        example("optimizer", "WEFT_HP"), example("optimizer", "WEFT_ELEMENTWISE"),
        "static weft_optimizer_plugin lion_table;", example("plugin", "WEFT_PLUGIN"),
        "const char *use(void);", "const char *use(void) { return lion_update.cpu != NULL ? lion_hp_fields : NULL; }",
        "typedef struct block { weft_weight *norm, *q_proj; } block;",
        f"{units}; {units} {{ uint32_t i;", example("policy", r"for \(i = 0"), "}",
        f"{forward}; {forward} {{", example("ops", "weft_value h"), "    return y; }", ""])
    compiles(write("examples.c", text), "-std=c11", *STRICT, "-Wconversion", "-fsyntax-only")
    compiles(write("examples.cpp", text), "-std=c++17", *STRICT, "-fsyntax-only", compiler=CXX)


def test_cpp_plugin():
    """It exports the two names and no other."""
    run(*CXX, "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", INCLUDE, "-O2", "-fPIC", "-shared",
        "-fvisibility=hidden", f"-Wl,--version-script={SOURCE}/sdk/cmake/weft-plugin.map",
        SOURCE / "tests/sdk/policy.cpp", "-o", "policy.so")
    exports = run("nm", "-D", "--defined-only", "policy.so").out.split()[2::3]
    assert sorted(exports) == ["weft_plugin_entry", "weft_plugin_note"]


def test_static_plugins():
    for id in "sgd", "adamw":
        compiles(SOURCE / f"plugins/optimizer/{id}/{id}.c", "-std=c11", *STRICT, "-O2", f"-DWEFT_STATIC={id}", "-c",
                 "-o", f"{id}.o")
    run(*CC, "-std=c11", *STRICT, SOURCE / "tests/sdk/static.c", "sgd.o", "adamw.o", "-lm", "-o", "static")
    assert run(pathlib.Path("static").resolve()).out.strip() == "sgd adamw"


@pytest.mark.parametrize("version, exists", [("1, 0", True), ("1, 7", False)])
def test_min_sdk(version, exists):
    source = write("min.c", f"#define WEFT_MIN_SDK WEFT_SDK({version})\n#include <weft/plugin.h>\n")
    result = compiles(source, "-std=c11", INCLUDE, "-fsyntax-only", status=0 if exists else FAILS)
    if not exists:
        says(result.err, "WEFT_MIN_SDK names an SDK that does not exist")
