#!/usr/bin/env python3
"""Makes tokenizer_variants.json: two small vocabularies, and what `tokenizers` makes of a few texts with each way to
normalize, split, add tokens, look pieces up and decode that a tokenizer.json can ask for.

A variant is one of the two models with `changes` laid over it, key by key; `model` inside is laid over the model.

    python make_tokenizer_variants.py [--out DIR]
"""

import argparse
import copy
import json
import pathlib

import tokenizers
from tokenizers import Tokenizer

from make_tokenizer import LLAMA3, UNDERLINE, added, bpe, byte_symbols, whole

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = ["ab cab  bab", " ab", "a", "12ab3 45", "Ab\nab\n\nAB ", "caf\u00e9 cafe\u0301", "x<x>y <x> ab<y>b", "b-b--b-",
         "zq z zqz", "\u00bd\u0663 1\u2167b", "  \t ab \u3000<y>", "", "ab'S b's"]
SPACED = [" a <x> b", "a<x>b", "  <x>  <x>", "<x><x>", "a<x> ", "<x>ab<x> ab", "xax <x>x", "\u00e9<x>a", "a  <y> <y>b"]


def learned(symbols, joins):
    vocab = {}
    for piece in symbols + [a + b for a, b in joins]:
        vocab.setdefault(piece, len(vocab))
    return vocab


def characters():
    """SentencePiece style: some characters, unknown piece, no byte pieces; several ways to the same piece."""
    joins = [("a", "b"), (UNDERLINE, "ab"), ("b", "a"), ("c", "a"), ("ca", "b"), ("c", "ab"), (UNDERLINE, UNDERLINE),
             ("1", "2"), (UNDERLINE, "b"), ("\n", "\n"), ("f", "e"), ("ca", "fe"), ("b", "-")]
    symbols = ["<unk>", "<s>", "</s>"] + list("abcABfexy-123'sS\n\t ") + [UNDERLINE, "\u00e9", "\u0301", "\u00bd"]
    vocab = learned(symbols, joins)
    space = dict(type="Replace", pattern={"String": " "}, content=UNDERLINE)
    decoders = [dict(type="Replace", pattern={"String": UNDERLINE}, content=" "), dict(type="Fuse"),
                dict(type="Strip", content=" ", start=1, stop=0)]
    return whole([added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
                 bpe(vocab, [list(j) for j in joins], unk_token="<unk>", fuse_unk=True),
                 normalizer=dict(type="Sequence", normalizers=[dict(type="Prepend", prepend=UNDERLINE), space]),
                 decoder=dict(type="Sequence", decoders=decoders))


def byte_level():
    """Byte-level with a vocabulary of the bytes that the texts have."""
    bytes_ = sorted(set("".join(TEXTS + SPACED).encode()))
    spell = byte_symbols()
    joins = [("a", "b"), ("\u0120", "ab"), ("1", "2"), ("\u0120", "\u0120"), ("c", "ab"), ("'", "s"),
             ("\u010a", "\u010a"), ("<", "x"), ("-", "b"), ("A", "b"), ("\u0120", "b")]
    vocab = learned([spell[b] for b in bytes_], joins)
    plain = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return whole([], bpe(vocab, [list(j) for j in joins]), pre_tokenizer=plain, decoder=dict(plain))


def of(type_, **keys):
    return dict(type=type_, **keys)


def split(pattern, behavior, invert=False):
    return of("Split", pattern=pattern, behavior=behavior, invert=invert)


def meta(scheme, cut):
    return of("Metaspace", replacement=UNDERLINE, prepend_scheme=scheme, split=cut)


def sequence_of(kind, *parts):
    name = dict(pre="pretokenizers", norm="normalizers", dec="decoders")[kind]
    return {"type": "Sequence", name: list(parts)}


def character_variants():
    yield "as it is", {}
    for scheme in ["always", "first", "never"]:
        for cut in [True, False]:
            part = meta(scheme, cut)
            name = f"Metaspace {scheme} {'split' if cut else 'whole'}"
            yield name, dict(normalizer=None, pre_tokenizer=part, decoder=part)
    old = of("Metaspace", replacement=UNDERLINE, add_prefix_space=True)
    yield "Metaspace in its older spelling", dict(normalizer=None, pre_tokenizer=old, decoder=old)
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        yield f"Split {behavior}", dict(normalizer=None, pre_tokenizer=split({"String": "-"}, behavior))
        turned = split({"Regex": "[ab]+"}, behavior, True)
        yield f"Split {behavior} inverted", dict(normalizer=None, pre_tokenizer=turned)
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
        yield form, dict(normalizer=of(form))
    for each in [True, False]:
        yield f"Digits individual {each}", dict(pre_tokenizer=of("Digits", individual_digits=each))
    yield "Replace by an expression", dict(normalizer=of("Replace", pattern={"Regex": r"\s+|b$"}, content="-"))
    yield "Replace by nothing", dict(normalizer=of("Replace", pattern={"String": "b"}, content=""))
    yield "nothing but the model", dict(normalizer=None, decoder=None)
    yield "unknown pieces apart", dict(model=dict(fuse_unk=False))
    few = {f"<0x{b:02X}>": 100 + i for i, b in enumerate(b"zq\xc2\xbd\r")}
    yield "some byte pieces", dict(model=dict(byte_fallback=True, vocab=few))
    strip = of("Strip", content=" ", start=2, stop=0)
    yield "byte pieces in the decoder", dict(model=dict(byte_fallback=True, vocab=few),
                                             decoder=sequence_of("dec", of("ByteFallback"), strip))
    yield "whole pieces first", dict(model=dict(ignore_merges=True, vocab={"bab": 120, UNDERLINE + "12ab3": 121}),
                                     pre_tokenizer=split({"String": UNDERLINE}, "MergedWithNext"))
    yield "merges as texts", dict(model=dict(merges=["a b", "#version: 0.2", "b a", "c a"]))


def byte_variants():
    plain = of("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    bare = dict(plain, use_regex=False)

    def cut_by(regex, behavior="Isolated"):
        return dict(pre_tokenizer=sequence_of("pre", split({"Regex": regex}, behavior), bare))

    yield "GPT-2", {}
    yield "blank in front", dict(pre_tokenizer=dict(plain, add_prefix_space=True))
    yield "without expression", dict(pre_tokenizer=bare)
    yield "LLaMA 3", dict(cut_by(LLAMA3), model=dict(ignore_merges=True))
    yield "digits first", dict(pre_tokenizer=sequence_of("pre", of("Digits", individual_digits=True), plain))
    yield "words and blanks", cut_by(r" ?\S+|\s")
    yield "classes", cut_by(r"[^\S\n]+|\d+|[^\D]|\p{Lu}|b$", "Contiguous")
    yield "lookbehind, either case", cut_by(r"(?<=[a-c])(?i:B|'S)")
    yield "empty matches", cut_by("x*")
    yield "composed first", dict(normalizer=of("NFC"))


def added_variants():
    """One flag of an added token at a time, in both vocabularies."""
    for flag in ["single_word", "lstrip", "rstrip", "normalized"]:
        yield f"added: {flag}", [dict(content="<x>", **{flag: True})]
    yield "added: lstrip and rstrip", [dict(content="<x>", lstrip=True, rstrip=True)]
    yield "added: all", [dict(content="<x>", lstrip=True, rstrip=True, single_word=True, normalized=True)]
    yield "added: the longest", [dict(content="<x>"), dict(content="<x>a"), dict(content="<x"), dict(content="x<x>")]
    yield "added: one white, one greedy", [dict(content="  ", lstrip=True), dict(content="<x>", rstrip=True)]
    yield "added: plain", [dict(content="<y>", special=False), dict(content="ab", special=False, normalized=True)]


def with_added(base, tokens):
    known, out = base["model"]["vocab"], list(base["added_tokens"])
    free = len(known)
    for token in tokens:
        id_ = known.get(token["content"])
        if id_ is None:
            id_, free = free, free + 1
        out.append(dict(added(id_, token["content"]), **token))
    return dict(added_tokens=out)


def laid_over(base, changes):
    spec = copy.deepcopy(base)
    for key, value in changes.items():
        if key == "model":
            for name, part in value.items():
                if name == "vocab":
                    spec["model"]["vocab"].update(part)
                else:
                    spec["model"][name] = part
        else:
            spec[key] = value
    return spec


def kept_by_library(spec):
    """Ids that the library keeps where special tokens are to be left out: it looks for its name, not for its form."""
    return {t["id"] for t in spec["added_tokens"] if t["special"] and t["normalized"] and spec["normalizer"]}


def vectors(spec, texts):
    tokenizer, kept, out = Tokenizer.from_str(json.dumps(spec)), kept_by_library(spec), []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        entry = dict(text=text, ids=ids)
        for key, skip in [("decoded", False), ("without_special", True)]:
            decoded = tokenizer.decode(ids, skip_special_tokens=skip)
            if "\ufffd" not in decoded and not (skip and kept & set(ids)):
                entry[key] = decoded
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        if plain != ids:
            entry["plain"] = plain
        out.append(entry)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    bases, variants = dict(characters=characters(), bytes=byte_level()), []
    for name, more in [("characters", character_variants()), ("bytes", byte_variants())]:
        variants += [(title, name, changes, TEXTS) for title, changes in more]
        variants += [(title, name, with_added(bases[name], tokens), SPACED) for title, tokens in added_variants()]
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    rows = [dict(name=title, base=name, changes=changes, vectors=vectors(laid_over(bases[name], changes), texts))
            for title, name, changes, texts in variants]
    about = ("decoded keeps special tokens, without_special leaves them out; plain: ids where special tokens are text. "
             "Decoded texts with U+FFFD in them are left out.")
    (out / "tokenizer_variants.json").write_text(
        "{" + f'"about": {dump(about)},\n "tokenizers": {dump(tokenizers.__version__)},\n "bases": {dump(bases)},\n'
        ' "variants": [\n' + ",\n".join("  " + dump(row) for row in rows) + "\n ]}\n", encoding="utf-8")
    print(f"{len(rows)} variants, {sum(len(row['vectors']) for row in rows)} vectors")


if __name__ == "__main__":
    main()
