#!/usr/bin/env python3
"""Makes plugins/tokenizer/bpe/unicode_table.h: the general category of every character, from the tables of the regular
expressions of the `tokenizers` library (Unicode 16.0), with two flags: the library's Punctuation pre-tokenizer cuts at
the character, and Unicode 9.0, whose tables the library normalizes by, has the character (queried from Perl). Makes
unicode.json too: for each part of a tokenizer.json that reads classes of characters, number and hash of the library's
ids for a text that holds every character. Makes plugins/tokenizer/common/case_table.h from this Python's str: 3.11 to
3.13 (Unicode 14.0 to 15.1) have the same cases.

    python make_unicode.py [--table FILE] [--golden FILE] [--case FILE]
"""

import argparse
import json
import pathlib
import subprocess
import sys

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


CASE_HEAD = """/* case_table.h: made by tests/golden/make_unicode.py: upper, lower, title and casefold of Python's str. */
/* clang-format off */
typedef struct case_run {
    int32_t first, last, step, delta;
} case_run;
"""


def runs_of(pairs):
    """[first, last, step, delta] of characters with the same delta at the same step."""
    out = []
    for c, delta in pairs:
        if out and out[-1][3] == delta and c - out[-1][1] <= 2 and out[-1][2] in (0, c - out[-1][1]):
            out[-1][1:3] = c, c - out[-1][1]
        else:
            out.append([c, c, 0, delta])
    return [(a, b, step or 1, delta) for a, b, step, delta in out]


def case_table():
    one = lambda f: {c: ord(f(chr(c))) - c for c in POINTS if len(f(chr(c))) == 1}
    upper, lower = one(str.upper), one(str.lower)
    title, fold = one(str.title), one(str.casefold)
    tables = dict(upper={c: d for c, d in upper.items() if d}, lower={c: d for c, d in lower.items() if d},
                  title={c: d for c, d in title.items() if d != upper.get(c)},
                  fold={c: d for c, d in fold.items() if d != lower.get(c)},
                  cased={c: 0 for c in POINTS if (chr(c) + "A").title()[-1] == "a"})
    lines = [CASE_HEAD]
    for name, pairs in tables.items():
        words = ["{0x%x, 0x%x, %d, %d}" % run for run in runs_of(sorted(pairs.items()))]
        lines.append("static const case_run %s_runs[] = {\n" % name)
        lines.append(",\n".join(", ".join(words[i:i + 4]) for i in range(0, len(words), 4)) + "};\n")
    text = lambda s, c: "NULL" if len(s) == 1 else '"%s"' % "".join("\\x%02x" % b for b in s.encode())
    lines.append("/* Characters that become several; NULL: the runs have it. */\nstatic const struct {\n    int32_t point;\n"
                 "    const char *upper, *title, *lower, *fold;\n} several[] = {\n")
    for c in POINTS:
        all_four = [f(chr(c)) for f in (str.upper, str.title, str.lower, str.casefold)]
        if max(map(len, all_four)) > 1:
            lines.append("{0x%x, %s},\n" % (c, ", ".join(text(s, c) for s in all_four)))
    return "".join(lines).removesuffix(",\n") + "};\n/* clang-format on */\n"


def case_rows():
    """For test_jinja.c: hash of each change of every character up to U+1FFFF but U+03A3, alone and behind a letter."""
    for name in ["upper", "lower", "title", "swapcase"]:
        for before in ["", "b"]:
            text = bytearray()
            for i in range(0, 0x20000, 4096):
                block = [c for c in range(i, i + 4096) if not 0xD800 <= c < 0xE000 and c != 0x3A3]
                text += getattr(" ".join(before + chr(c) for c in block), name)().encode()
            yield name, before, fnv(text)


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
    parser.add_argument("--case", type=pathlib.Path, default=ROOT / "plugins/tokenizer/common/case_table.h")
    args = parser.parse_args()
    assert (3, 11) <= sys.version_info < (3, 14), "the cases are those of Python 3.11 to 3.13"
    args.case.write_text(case_table())
    print(*case_rows(), sep="\n")
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
