"""Public structs must match compiled plugins: every size, offset and slot order equals layout.txt, and the sizes in SDK
1.0 equal weft/sizes.h. Structs have no padding. docs/abi.md names the creator and the reader of each struct. For an
intended change, the test writes both files anew to the build directory. Sizes of 1.0 are permanent, in
tests/archive/sdk-1.0; sizes.h only gains the first sizes of new structs."""
import re

import pytest
from harness import BUILD, SOURCE, read, run, write

INCLUDE = SOURCE / "sdk/include"
HEAD = """\
/* weft/sizes.h: the bytes of each public struct in SDK 1.0. A reader rejects a smaller struct_size (WEFT_WHOLE), and
 * needs WEFT_HAS only for later fields. Written by tests/sdk/test_layout.py. */
#ifndef WEFT_SIZES_H
#define WEFT_SIZES_H

/* clang-format off */
enum {
"""


def parse(text):
    """Returns the structs of measure.sh's text: {name: (whether it grows, size, [(field, offset, size)])}."""
    found = {}
    for words in map(str.split, text.splitlines()):
        if words[0] == "struct":
            found[words[1]] = words[2] == "grows", int(words[3]), []
        elif words[0] == "field":
            owner, name = words[1].split(".")
            found[owner][2].append((name, int(words[2]), int(words[3])))
    return found


@pytest.fixture(scope="module")
def structs(scratch):
    return parse(run("sh", SOURCE / "tests/archive/measure.sh", INCLUDE).out)


def test_padding(structs):
    """No struct has padding, and the second field of one that grows is `flags`."""
    for name, (grows, size, fields) in structs.items():
        end = 0
        for field, at, n in fields:
            assert at == end, f"{name}.{field}: padding before it, at {end}"
            end = at + n
        assert end == size, f"{name}: padding at its end, after {end}"
        assert not grows or fields[1][0] == "flags"


def equals(text, file):
    """The file of the source tree has this text."""
    new = write(BUILD / file.name, text)
    assert text == read(file), f"Built plugins would break. For an intended change, copy {new} to {file}."


def test_layout(structs):
    equals("".join(f"{name} {size}\n" + "".join(f"    {field:<28} {at:4} {n:4}\n" for field, at, n in fields)
                   for name, (_, size, fields) in structs.items()), SOURCE / "tests/sdk/layout.txt")


def test_sizes(structs):
    first = parse(read(SOURCE / "tests/archive/sdk-1.0/measured.txt"))
    rows = [f"    WEFT_SIZE_1_0_{name:<28} = {first.get(name, structs[name])[1]:4}"
            for name in structs if structs[name][0]]
    equals(HEAD + ",\n".join(rows) + "\n};\n/* clang-format on */\n\n#endif\n",
           INCLUDE / "weft/sizes.h")


def test_documented(structs):
    """Each struct in the headers' text is measured, and in abi.md, by name or as arguments of a kernel."""
    text = "".join(read(header) for header in sorted((INCLUDE / "weft").glob("*.h")))
    assert set(structs) == set(re.findall(r"^(?:typedef )?struct (weft_\w+) \{", text, re.M))
    abi = read(SOURCE / "docs/abi.md")
    assert "`WEFT_DEVICE_KERNELS`" in abi
    arguments = set(re.findall(r" X\(\w+, (weft_\w+)\)", read(INCLUDE / "weft/device.h")))
    assert len(arguments) > 15
    assert [name for name in structs if f"`{name}`" not in abi and name not in arguments] == []
