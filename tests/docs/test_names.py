"""The table of docs/guide/coming-from.md agrees with the program's answers (host/config/foreign_names.def). Names
unknown to the program are Weft's own. Each key in the first column exists."""
import re

from harness import SOURCE, read, weft


def test_names():
    known = {}  # {"learning_rate": {"optimizer.lr"}}; for a flag {"num_processes": {"--ranks"}}
    for names, section, key in re.findall(r'(?m)^FOREIGN\("([^"]*)", "([^"]*)", "([^"]*)"',
                                          read(SOURCE / "host/config/foreign_names.def")):
        for name in names.split():
            known.setdefault(name, set()).add(f"{section}.{key}" if section else key)
    # The same from the page: the first cell of a row is "`[optimizer] lr`" or "`--ranks`".
    page = set()
    for row in re.findall(r"(?m)^\| `.*", read(SOURCE / "docs/guide/coming-from.md")):
        _, weft_cell, *cells, _ = row.split("|")
        key = re.sub("[`[ ]", "", weft_cell).replace("]", ".")
        page |= {(name, key) for cell in cells for name in cell.split("`")[1::2]}
    assert len(page) > 40
    assert [(name, key) for name, key in page if key not in known.get(name, {key})] == []
    assert [(name, key) for name, key in page if name not in known and key.partition(".")[2] != name] == []

    keys = "".join(weft(words).out for words in (
        "config describe", "plugins describe optimizer:adamw", "plugins describe data:text"))
    flags = weft("train --help").out + weft("generate --help").out
    assert [key for key in {key for _, key in page} if not key.endswith(".plugin") and (
        f" {key}" not in flags if key.startswith("--") else f"\n  {key.partition('.')[2]} " not in keys)] == []
