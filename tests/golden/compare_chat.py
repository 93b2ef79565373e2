#!/usr/bin/env python3
"""Compares the rendering of conversations with transformers: 25 forms of conversations for each template, or random ones.
By hand; writes nothing.

    python compare_chat.py build/tests/chat_render TEMPLATE.jinja... [--random 500] [--seed 1] [--show 2]

Prints a line for each template that differs, the first differences, and the counts of all. A tool call whose arguments are
a JSON string is the one difference by design: where a template encodes them, transformers writes an encoded string, and weft
writes what transformers writes for the same arguments as an object. Exit status 0 if nothing else differs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
from collections import Counter

from chat_forms import FORMS, SPECIAL, as_objects, transformers_text
from make_chat import conversation

def weft_texts(program, source, conversations):
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "chat_template.jinja").write_bytes(source.encode())
        (pathlib.Path(directory) / "tokenizer_config.json").write_text(json.dumps(SPECIAL))
        lines = "".join(json.dumps(c) + "\n" for c in conversations)
        done = subprocess.run([program, directory], input=lines.encode(), capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stderr.decode(errors="replace"))
    return done.stdout.decode().split("\n")[:-1]


def verdict(source, given, mine, other):
    if mine[0] == "!":
        return "refused" if not isinstance(other, str) else "refused by weft"
    text = json.loads(mine[1:])
    if text == other:
        return "same"
    if as_objects(given) != given and text == transformers_text(source, as_objects(given)):
        return "arguments encoded once"
    return "other text" if isinstance(other, str) else "refused by transformers"


def compare(program, path, conversations, show, counts):
    source = path.read_bytes().decode().replace("\r\n", "\n").replace("\r", "\n")
    theirs = [transformers_text(source, c) for _, c in conversations]
    ours = weft_texts(program, source, [c for _, c in conversations])
    bad = Counter()
    for (name, given), mine, other in zip(conversations, ours, theirs):
        what = verdict(source, given, mine, other)
        counts[what] += 1
        if what in ("same", "refused", "arguments encoded once"):
            continue
        bad[what] += 1
        if sum(bad.values()) <= show:
            print(f"{path.name}, {name}: {what}\n    weft         {mine[:1500]}\n    transformers "
                  f"{json.dumps(other)[:1500] if isinstance(other, str) else repr(other)[:300]}")
    if bad:
        print(f"{path.name}: " + ", ".join(f"{n} {what}" for what, n in bad.items()), flush=True)
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("templates", type=pathlib.Path, nargs="+")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=2)
    args = parser.parse_args()
    r = random.Random(args.seed)
    conversations = list(FORMS.items()) if args.random == 0 else [(str(i + 1), conversation(r)) for i in range(args.random)]
    counts = Counter()
    bad = [p.name for p in args.templates if not compare(args.program, p, conversations, args.show, counts)]
    print(f"{len(args.templates)} templates, {len(conversations)} conversations: " +
          ", ".join(f"{n} {what}" for what, n in counts.most_common()))
    if bad:
        sys.exit("other than transformers: " + " ".join(bad))


if __name__ == "__main__":
    main()
