"""The table of slots in docs/plugin-slots.md contains each slot of a kind's table in the SDK, in rows of its kind; the
kernels of a device as WEFT_DEVICE_KERNELS, their workspace queries as WEFT_DEVICE_WORKSPACES. A second table contains
the slots of extension tables."""
import re

from harness import SOURCE, read

INCLUDE = SOURCE / "sdk/include/weft"
KINDS = "device|data|tokenizer|model|comm|optimizer|policy|strategy|adapter"


def table(head):
    """The pairs of a table: the first cell, or that of the row above, and each name in the second cell."""
    found, first = set(), ""
    rows = re.search(rf"(?m)^\| {head} \| slot.*\n((?:\|.*\n)*)", read(SOURCE / "docs/plugin-slots.md")).group(1)
    for row in rows.splitlines():
        _, cell, names, *_ = row.split("|")
        first = cell.strip(" `") or first
        found |= {(first, name) for name in names.split("`")[1::2]}
    return found


def test_slots_of_kinds():
    slots, kind = set(), None
    for words in map(str.split, read(SOURCE / "tests/sdk/layout.txt").splitlines()):
        if words and words[0].startswith("weft"):
            match = re.fullmatch("weft_(.*)_plugin", words[0])
            kind = match and match.group(1)
        if kind and len(words) == 3 and int(words[1]) >= 8:
            slots.add((kind, words[0]))
    listed, lists = set(), set()
    for name, text in re.findall(r"#define (WEFT_DEVICE_[A-Z]*)\(X\)((?:.*\\\n)*.*)", read(INCLUDE / "device.h")):
        found = re.findall(r" X\(([a-z_]*), weft_[a-z_]*\)", text)
        listed |= {("device", slot + "_workspace" * ("WORKSPACES" in name)) for slot in found}
        lists |= {("device", name)}
    assert len(slots) > 110 and len(listed | lists) > 35
    shown = table("kind")
    assert {(kind, slot) for kind, slot in (slots - listed) | lists
            if (kind, slot) not in shown and ("all that have them", slot) not in shown} == set()
    assert ("all that have them", "extension") in shown and ("device", "host_view") in shown


def test_slots_of_extension_tables():
    """All tables of slots in the SDK, except those of kinds and of the host."""
    slots = {(name, slot) for header in INCLUDE.glob("*.h")
             for name, body in re.findall(rf"(?ms)^typedef struct (weft_(?:{KINDS})_[a-z_]+) {{(.*?)^}}", read(header))
             if not re.search("_(plugin|job)$", name) for slot in re.findall(r"\(\*([a-z_0-9]+)\)\(", body)}
    assert len(slots) > 25 and slots - table("table") == set()
