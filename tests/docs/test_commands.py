"""Runs every command of README.md and of the pages in docs/guide in order, each page in its own directory with a copy
of configs/. Pages need no markup, and readers understand their indented blocks in the same way:

  A block, or a part of it after a blank line, that starts with only "# NAME.EXTENSION" is a file to write. C starts
  with "/* NAME.c: ...", which belongs to the file, so that the block can be pasted.
  A line "$ COMMAND" is a command to run; the rest of the block up to the next "$" is its output, and so is a later
  block that starts with "...".
  A shown error "weft COMMAND: ..." means that the command fails; otherwise it must succeed.
  A shown "^C" is sent after the first training step."""
import os
import re
import shutil
import signal

import pytest
from harness import ANY, BUILD, FULL, SOURCE, needs, read, start, wait_until, write


def steps(text):
    """The files and commands of a page, in order: kind, name or command, and lines of the file or output."""
    found, step, shown, blanks, inside = [], None, None, 0, False
    for line in text.splitlines():
        if line == "":
            blanks += 1  # blank lines of a file, if the block continues after them
            continue
        if not line.startswith("    "):
            inside, step = False, None
            continue
        line = line[4:]
        file = (blanks or not inside) and (re.fullmatch(r"# ([\w./-]+\.[a-z]+)", line)
                                           or re.match(r"/\* ([\w./-]+\.c): ", line))
        if file:
            step = ("file", file.group(1), [line] if line.startswith("/") else [])
            found.append(step)
        elif line.startswith("$ "):
            step = shown = ("command", line[2:], [])
            found.append(step)
        elif not inside and line == "...":
            step = shown
        elif step:
            if inside and step[0] == "file":
                step[2].extend([""] * blanks)
            step[2].append(line)
        inside, blanks = True, 0
    return found


# The quick suite runs the guides that take seconds, and one for authors of plugins.
QUICK = ["by-hand", "coming-from", "troubleshooting", "your-data", "your-own-policy"]
GUIDES = [SOURCE / f"docs/guide/{name}.md" for name in QUICK]
if FULL:
    GUIDES = [SOURCE / "README.md", *sorted((SOURCE / "docs/guide").glob("*.md"))]
PAGES = [page for page in GUIDES if any(step[0] == "command" for step in steps(read(page)))]


def plain(line):
    """Replaces numbers, except exit statuses, times and what depends on the machine."""
    line = re.sub("^device .*", "device", line).replace("/home/you/weft", "PLACE")
    status = re.search("exit status [0-9]+", line)
    line = re.sub(r"[0-9]+(,[0-9]{3})*(\.[0-9]+)?(e[-+]?[0-9]+)?k?", "#", line)
    if status:
        line = line.replace("exit status #", f"{status.group()}!", 1)  # no prefix of another
    line = re.sub("# (KiB|MiB|GiB|B)([^A-Za-z]|$)", "# MEMORY ", line)
    line = re.sub("(# TIME )+", "# TIME ", re.sub("# (us|ms|s|min|h)([^A-Za-z]|$)", "# TIME ", line))
    return re.sub("[━─█▇▆▅▄▃▂▁]+", "BAR", line)


def words(line):
    return " ".join(line.split())


def contains(line, shown):
    """The line has the parts between "..." of the shown one, in order."""
    at = 0
    for part in map(str.strip, shown.split("...")):
        at = line.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.fixture(scope="module", autouse=True)
def environment(scratch):
    """Installations of a page stay in a directory, which also has the installed examples."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PATH": f"{BUILD}:{os.environ['PATH']}", "WEFT_BUILD_DIR": BUILD, "LC_ALL": "C.UTF-8",
                            "OMP_WAIT_POLICY": "passive", "HOME": scratch / "home"}.items():
            patch.setenv(name, str(value))
        patch.delenv("XDG_DATA_HOME", raising=False)
        for source in SOURCE / "configs", SOURCE / "sdk/template":
            shutil.copytree(source, f"home/.local/share/weft/{source.name}")
        yield


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page, scratch):
    if re.search(r"(?m)^    \$ weft train.*--ranks", read(page)):
        needs("mpich")
    here = scratch / "page"
    shutil.copytree(SOURCE / "configs", here / "configs")
    os.symlink(SOURCE / "sdk", here / "sdk")
    for kind, name, lines in steps(read(page)):
        if kind == "file":
            write(here / name, "".join(f"{line}\n" for line in lines))
            continue
        process = start("sh", "-c", f"exec {name}" if "^C" in lines else name, cwd=here)
        if "^C" in lines:
            wait_until(lambda: re.search("(?m)^step", process.out) or not process.alive(), "step")
            process.signal(signal.SIGTERM)
        result = process.wait(ANY)
        fails = any(re.match("weft [a-z][a-z ]*: ", line) for line in lines)
        assert fails == (result.status != 0), f"{name}: exit status {result.status}\n{result}"
        printed = [words(plain(line)) for line in str(result).replace(str(here), "/home/you/weft").splitlines()]
        missing = [line for line in lines if line not in ("^C", "...")
                   and not any(contains(real, words(plain(line))) for real in printed)]
        assert missing == [], f"{name}:\n{result}"
    shutil.rmtree(here)
