#!/usr/bin/env python3
"""Compares `weft tokenize DIR` with the `tokenizers` library on any text file. By hand; writes nothing.

    python compare_tokenizers.py build/weft path/to/model-directory text.txt [--bytes 1000000]

Checks that the ids are the same, and that `--decode` of the ids gives what the library decodes. Prints the first
difference with the text around it. Exit status 0 if all agrees, 1 if not, 2 if something could not be run.
"""

import argparse
import pathlib
import subprocess
import sys

from tokenizers import Tokenizer


def weft(program, directory, data, *options):
    done = subprocess.run([program, "tokenize", str(directory), *options], input=data, capture_output=True)
    if done.returncode != 0:
        sys.stderr.write(done.stderr.decode(errors="replace"))
        sys.exit(2)
    return done.stdout


def read_text(path, limit):
    """The first `limit` bytes of a file, cut back to a whole character."""
    data = path.read_bytes()
    if limit is None or len(data) <= limit:
        return data.decode()
    return data[:limit].decode(errors="ignore")


def compare_ids(ours, encoding, text):
    theirs = encoding.ids
    for i in range(max(len(ours), len(theirs))):
        if ours[i:i + 1] == theirs[i:i + 1]:
            continue
        begin, end = encoding.offsets[i] if i < len(theirs) else (len(text), len(text))
        print(f"ids differ from number {i} on, near character {begin}: weft {ours[i:i + 6]}, "
              f"tokenizers {theirs[i:i + 6]}")
        print(f"  before: {text[max(0, begin - 60):begin]!r}\n  after:  {text[begin:end + 60]!r}")
        return False
    print(f"{len(theirs)} ids are the same")
    return True


def compare_decoded(ours, theirs):
    if ours == theirs:
        print(f"{len(theirs)} decoded bytes are the same")
        return True
    i = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    print(f"decoded bytes differ from byte {i} on: weft {ours[i:i + 40]!r}, tokenizers {theirs[i:i + 40]!r}")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("directory", type=pathlib.Path, help="holds tokenizer.json")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--bytes", type=int, help="compare only so many bytes of the text")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.directory / "tokenizer.json"))
    text = read_text(args.text, args.bytes)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    ours = weft(args.weft, args.directory, text.encode())
    same = compare_ids([int(t) for t in ours.split()], encoding, text)
    back = weft(args.weft, args.directory, " ".join(map(str, encoding.ids)).encode(), "--decode")
    same &= compare_decoded(back, tokenizer.decode(encoding.ids, skip_special_tokens=False).encode())
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
