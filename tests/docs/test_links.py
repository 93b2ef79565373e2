"""Every relative link of README.md, docs/ and configs/ leads to an existing file, and every #anchor to one of its
headings. With WEFT_INSTALLED=PREFIX: those of the installed docs/ and configs/."""
import collections
import os
import pathlib
import re

import pytest
from harness import SOURCE, read

INSTALLED = os.environ.get("WEFT_INSTALLED")
ROOT = pathlib.Path(INSTALLED or SOURCE)
PAGES = [page for pattern in ("share/doc/weft/*.md share/doc/weft/*/*.md share/weft/configs/*/*.md" if INSTALLED else
                              "README.md docs/*.md docs/*/*.md configs/*/*.md").split()
         for page in sorted(ROOT.glob(pattern))]
TEXT = "".join(map(read, PAGES))


def anchors(text):
    """Anchors of its headings, as generated for Markdown."""
    seen = collections.Counter()
    for heading in re.findall("(?m)^##* (.*)", text):
        anchor = re.sub("[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1


def test_links():
    broken, count = [], 0
    for page in PAGES:
        text = re.sub("(?m)^    .*\n", "", read(page))
        for link in re.findall(r"\]\(((?![a-z]*://)[^)]*)\)", text):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            count += 1
            if not target.exists() or (anchor and anchor not in anchors(read(target))):
                broken.append((str(page.relative_to(ROOT)), link))
    assert broken == [] and count > 20


@pytest.mark.skipif(INSTALLED is not None, reason="of the source tree alone")
def test_paths_and_functions():
    """Each `host/...` path and each function weft_... of the pages exists."""
    paths = set(re.findall(r"`((?:host|sdk|plugins|tests|configs)/[A-Za-z0-9_./-]+)`", TEXT))
    assert [path for path in paths if not (ROOT / path).exists()] == []
    words = {word for part in ("host", "sdk", "plugins") for file in (ROOT / part).rglob("*.[chm]*") if file.is_file()
             for word in re.findall(r"\bweft_\w+", read(file))}
    assert set(re.findall(r"\bweft_[a-z0-9_]+", TEXT)) - words == set()
