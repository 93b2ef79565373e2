#!/usr/bin/env python3
"""Compares the interpreter of chat templates with jinja2, set up as transformers does, over random conversations. By hand;
writes nothing.

    python compare_chat.py build/tests/chat_render TEMPLATE.jinja... [--conversations 500] [--seed 1]

A line for each template: how many conversations have the same text, how many both refuse, and the first that differ. Exit
status 0 if all agree.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

from make_chat import conversation


def rendered(source, conversations):
    template = _compile_jinja_template(source)
    for c in conversations:
        try:
            yield template.render(**json.loads(json.dumps(c)))
        except Exception as error:
            yield error


def compare(program, path, conversations):
    lines = "".join(json.dumps(c) + "\n" for c in conversations)
    done = subprocess.run([program, str(path)], input=lines.encode(), capture_output=True)
    if done.returncode != 0:
        print(f"{path.name}: {done.stderr.decode(errors='replace').strip()}")
        return False
    same = refused = shown = 0
    theirs = list(rendered(path.read_text(encoding="utf-8"), conversations))
    ours = done.stdout.decode().split("\n")
    for c, mine, other in zip(conversations, ours, theirs):
        both = mine[0] == "!" and not isinstance(other, str)
        alike = mine[0] == "=" and json.loads(mine[1:]) == other
        same += alike
        refused += both
        if both or alike or shown >= 2:
            continue
        shown += 1
        print(f"  {json.dumps(c)[:1500]}\n    weft   {mine[:1500]}\n    jinja2 {json.dumps(other)[:1500] if isinstance(other, str) else repr(other)}")
    print(f"{path.name}: {same} of {len(conversations)} have the same text, {refused} are refused by both, "
          f"{len(conversations) - same - refused} differ", flush=True)
    return same + refused == len(conversations)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("templates", type=pathlib.Path, nargs="+")
    parser.add_argument("--conversations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    r = random.Random(args.seed)
    conversations = [conversation(r) for _ in range(args.conversations)]
    bad = [p.name for p in args.templates if not compare(args.program, p, conversations)]
    if bad:
        sys.exit("other than jinja2: " + " ".join(bad))


if __name__ == "__main__":
    main()
