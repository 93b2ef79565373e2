#!/usr/bin/env python3
"""Makes plugins/tokenizer/bpe/unicode_table.h: the general category of every character, from the tables of the regular
expressions of the `tokenizers` library (Unicode 16.0), with two flags: the library's Punctuation pre-tokenizer cuts at
the character, and Unicode 9.0, whose tables the library normalizes by, has the character (queried from Perl). Makes
unicode.json too: for each part of a tokenizer.json that reads classes of characters, number and hash of the library's
ids for a text that holds every character.

    python make_unicode.py [--table FILE] [--golden FILE]
"""

import argparse
import json
import pathlib
import subprocess

import tokenizers
from tokenizers import Regex, Tokenizer, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cn Co".split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HEAD = """/* unicode_table.h: made by tests/golden/make_unicode.py. Runs of characters, each as its first character << 8 and
 * the category's number; 32: Punctuation of the `tokenizers` library; 128: Unicode 9.0 has the characters. */
/* clang-format off */
static const uint32_t runs[] = {
"""


def cut_at(step):
    """The characters at which a pre-tokenizer cuts, a letter on both sides of each."""
    found = set()
    for i in range(0, len(POINTS), 4096):
        text = "".join("a" + chr(c) for c in POINTS[i:i + 4096]) + "a"
        pieces = {begin for _, (begin, _) in step.pre_tokenize_str(text)}
        found.update(ord(text[b]) for b in range(1, len(text), 2) if b in pieces)
    return found


def categories():
    out = {}
    for number, name in enumerate(CATEGORIES):
        step = pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed")
        for i in range(0, len(POINTS), 4096):
            block = POINTS[i:i + 4096]
            left = {ord(c) for piece, _ in step.pre_tokenize_str("".join(map(chr, block))) for c in piece}
            out.update((c, number) for c in block if c not in left)
    return out


def of_unicode_9():
    program = r"no warnings; for (0..0x10ffff) { print qq($_\n) if chr($_) =~ /\p{Present_In: 9.0}/ }"
    return {int(line) for line in subprocess.run(["perl", "-e", program], check=True, capture_output=True).stdout.split()}


def base():
    """Byte pieces alone: the ids are the bytes that the parts before the model leave."""
    vocab = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}}
    return dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None, pre_tokenizer=None,
                post_processor=None, decoder=None,
                model=dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None,
                           end_of_word_suffix=None, fuse_unk=False, byte_fallback=True, ignore_merges=False,
                           vocab=vocab, merges=[]))


def rows():
    """(changes of the base, text before each character, text after it)"""
    def removed(regex):
        return dict(type="Split", pattern={"Regex": regex}, behavior="Removed", invert=False)

    for name in CATEGORIES + list("LMNPSZC"):
        yield dict(pre_tokenizer=removed(r"\p{%s}" % name)), "", ""
    for regex in [r"\s", r"\S", r"\d", r"\D", r"\P{L}", r"[^\s\p{L}\p{N}]", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                  r"[^\x{0}-\x{ffff}]", "\u00e9|[\u00e4-\u00fc\\x{1f600}-\\x{1f64f}]", r"[^!-\x{3ff}]", "[a-z-]|\u2019"]:
        yield dict(pre_tokenizer=removed(regex)), "", ""
    for regex in [r"(?i:'s|'t|'k)", r"(?i:'[a-s])", r"(?i)'[^K]"]:
        yield dict(pre_tokenizer=removed(regex)), "'", ""
    lone = removed(r"(?<![\s\S])[\s\S](?![\s\S])")  # a piece of one character
    for step in [dict(type="Digits", individual_digits=True), dict(type="Punctuation", behavior="Isolated")]:
        yield dict(pre_tokenizer=dict(type="Sequence", pretokenizers=[step, lone])), "ab", "ab"
    yield dict(pre_tokenizer=dict(type="Punctuation", behavior="Removed")), "", ""
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        yield dict(normalizer=dict(type=form)), "a\u0301", "\u0323"
    yield dict(normalizer=dict(type="Lowercase")), "", ""
    word = dict(id=257, content="<x>", single_word=True, lstrip=False, rstrip=False, normalized=False, special=True)
    yield dict(added_tokens=[word]), "<x>", ""


def fnv(ids):
    h = 14695981039346656037
    for i in ids:
        h = (h ^ i) * 1099511628211 % 2**64
    return f"{h:016x}"


def golden():
    ranges = [[0, 0xD7FF], [0xE000, 0x1FFFF], [0x2A6D0, 0x2A710], [0x2EBD0, 0x2EE60], [0x323A0, 0x33480], [0xE0000, 0xE01FF]]
    out = []
    for changes, before, after in rows():
        text = "".join(before + chr(c) + after for low, high in ranges for c in range(low, high + 1))
        ids = Tokenizer.from_str(json.dumps({**base(), **changes})).encode(text, add_special_tokens=False).ids
        out.append(dict(changes=changes, before=before, after=after, n=len(ids), hash=fnv(ids)))
    return dict(tokenizers=tokenizers.__version__, base=base(), ranges=ranges, rows=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=pathlib.Path, default=ROOT / "plugins/tokenizer/bpe/unicode_table.h")
    parser.add_argument("--golden", type=pathlib.Path, default=ROOT / "tests/golden/unicode.json")
    args = parser.parse_args()
    category, punctuation, old = categories(), cut_at(pre_tokenizers.Punctuation()), of_unicode_9()
    words, before = [], None
    for c in range(0x110000):
        value = category.get(c, CATEGORIES.index("Cn")) | 32 * (c in punctuation) | 128 * (c in old)
        if value != before:
            words.append(f"0x{c << 8 | value:x}")
        before = value
    lines = [", ".join(words[i:i + 9]) for i in range(0, len(words), 9)]
    args.table.write_text(HEAD + ",\n".join(lines) + "};\n/* clang-format on */\n")
    found = golden()
    dump = lambda value: json.dumps(value)
    args.golden.write_text("{" + ",\n".join(f'"{k}": {dump(v)}' for k, v in found.items() if k != "rows") +
                           ',\n"rows": [\n' + ",\n".join(map(dump, found["rows"])) + "\n]}\n")
    print(f"{len(words)} runs, {len(found['rows'])} rows")


if __name__ == "__main__":
    main()
