#!/usr/bin/env python3
"""Makes tokenizer_families.json: a small tokenizer of the make of each family that Weft trains (how it normalizes, splits,
falls back to bytes, adds tokens and decodes), and what `tokenizers` makes of random Unicode strings with it.

    python make_tokenizer_families.py [--out DIR]
    python make_tokenizer_families.py --compare build/tests/tokenizer_ids [--strings 10000] [--seed 1] [--also DIR...]

The second writes nothing: it compares ids and decoded texts of that many strings for each family, and for each DIR, which
holds a tokenizer.json; prints a line for each; exits with 1 where one differs for another reason than the version of
Unicode in which its characters first appear.
"""

import argparse
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from make_tokenizer import BYTES, CORPUS, LLAMA3, TEXTS, UNDERLINE, added, bpe, byte_symbols, whole
from make_tokenizer_variants import kept_by_library, laid_over, of, sequence_of, split, vectors, with_added

HERE = pathlib.Path(__file__).resolve().parent
PLAIN = dict(BYTES, use_regex=False)
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
         r"|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = CASED % ("", "", r"\p{N}")
O200K = CASED % (ENDINGS + "?", ENDINGS + "?", r"\p{N}{1,3}")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


# --- the two vocabularies ---

def trained(pre_tokenizer, size, alphabet):
    """(vocabulary in order, merges) that the library's trainer learns from CORPUS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


def byte_level():
    cut = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    pieces, merges = trained(cut, 460, pre_tokenizers.ByteLevel.alphabet())
    model = bpe({p: i for i, p in enumerate(pieces)}, [list(m) for m in merges])
    return whole([], model, pre_tokenizer=BYTES, decoder=dict(BYTES))


ALL = range(256)
ENDS, BEGINS = [*range(0x80, 0xc0), *b" \na1."], [*range(0xc2, 0xf5), *b" \na1."]  # of characters


def dense(base, ends=ALL, begins=ALL):
    """The same with every two bytes as a piece: wherever a text is cut between bytes, other ids come out."""
    spec, symbols = copy.deepcopy(base), byte_symbols()
    vocab, merges = spec["model"]["vocab"], spec["model"]["merges"]
    for pair in sorted((symbols[a], symbols[b]) for a in ends for b in begins):
        if pair[0] + pair[1] not in vocab:
            vocab[pair[0] + pair[1]] = len(vocab)
            merges.append(list(pair))
    return spec


def sentencepiece():
    """Pieces with their ranks, and every way to put one together, as the converters of SentencePiece files write them."""
    pieces, merges = trained(pre_tokenizers.Metaspace(), 330, [])
    letters = [p for p in pieces if len(p) == 1 and ord(p) != 0x131]
    longer = ["".join(m) for m in merges if "\u0131" not in "".join(m)]
    longer = [UNDERLINE * 2] + longer + [UNDERLINE * n for n in (3, 4, 8)]
    vocab = {}
    for piece in ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + longer + letters:
        vocab.setdefault(piece, len(vocab))
    pairs = []
    for piece in longer:
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs += sorted((c for c in cuts if c[0] in vocab and c[1] in vocab), key=lambda c: (vocab[c[0]], vocab[c[1]]))
    space = dict(type="Replace", pattern={"String": " "}, content=UNDERLINE)
    back = dict(type="Replace", pattern={"String": UNDERLINE}, content=" ")
    return whole([added(i, t) for i, t in enumerate(["<unk>", "<s>", "</s>"])],
                 bpe(vocab, [list(p) for p in pairs], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
                 normalizer=sequence_of("norm", of("Prepend", prepend=UNDERLINE), space),
                 decoder=sequence_of("dec", back, of("ByteFallback"), of("Fuse"),
                                     of("Strip", content=" ", start=1, stop=0)))


# --- the families ---

def tokens(*contents, **flags):
    return [dict(content=c, **flags) for c in contents]


def cut_by(*regexes, behavior="Isolated", invert=False, last=PLAIN):
    return dict(pre_tokenizer=sequence_of("pre", *[split({"Regex": r}, behavior, invert) for r in regexes], last))


def of_bytes():
    chat = tokens("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    ends = dict(continuing_subword_prefix="", end_of_word_suffix="")
    nfc = dict(normalizer=of("NFC"))
    yield "GPT-2", dict(model=ends), tokens("<|endoftext|>", normalized=True)
    yield "LLaMA 3, SmolLM3", dict(cut_by(LLAMA3), model=dict(ignore_merges=True)), tokens(
        "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
    yield "Qwen2", dict(cut_by(QWEN), **nfc, model=ends), chat
    yield "Qwen3", dict(cut_by(QWEN), **nfc, model=ends), chat + tokens(
        "<tool_call>", "</tool_call>", "<think>", "</think>", special=False)
    yield "SmolLM", dict(pre_tokenizer=sequence_of("pre", of("Digits", individual_digits=True), BYTES)), chat
    yield "Command R", dict(pre_tokenizer=sequence_of("pre", of("Digits", individual_digits=True), BYTES), **nfc), tokens(
        "<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
    yield "OLMo", nfc, tokens("<|endoftext|>") + tokens(*[" " * n for n in (24, 12, 4, 2)], special=False, normalized=True)
    yield "OLMo 2", dict(cut_by(LLAMA3)), chat + tokens("|||IP_ADDRESS|||", special=False)
    yield "Mistral, Tekken", dict(cut_by(TEKKEN), model=dict(ignore_merges=True)), tokens("<s>", "</s>", "[INST]", "[/INST]")
    yield "Phi-4", cut_by(LLAMA3, behavior="Removed", invert=True), tokens(
        "<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>", lstrip=True, rstrip=True)
    yield "Phi-4 mini", cut_by(O200K, behavior="Removed", invert=True), tokens("<|endoftext|>", "<|user|>", "<|end|>")
    yield "DeepSeek", cut_by(*DEEPSEEK), tokens("<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>") + tokens(
        "<think>", "</think>", special=False)


def of_pieces():
    first = of("Metaspace", replacement=UNDERLINE, prepend_scheme="first", split=False)
    space = dict(type="Replace", pattern={"String": " "}, content=UNDERLINE)
    back = dict(type="Replace", pattern={"String": UNDERLINE}, content=" ")
    kept = sequence_of("dec", back, of("ByteFallback"), of("Fuse"))
    marks = tokens("[INST]", "[/INST]", "[TOOL_CALLS]")
    yield "LLaMA 2, TinyLlama, Mistral 0.1, Zephyr", {}, []
    yield "LLaMA 2, as transformers 5 writes it", dict(normalizer=None, pre_tokenizer=first), []
    yield "CodeLlama", {}, tokens(UNDERLINE + "<PRE>", UNDERLINE + "<MID>", UNDERLINE + "<EOT>")
    yield "Mistral 0.3", dict(normalizer=None, pre_tokenizer=first), marks
    yield "Phi-3", {}, tokens("<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>", rstrip=True)
    turns = tokens("<bos>", "<start_of_turn>", "<end_of_turn>") + tokens(
        "\n\n", "\n\n\n", UNDERLINE * 2, UNDERLINE * 5, "<table>", "[multimodal]", special=False)
    yield "Gemma 1 and 2", dict(normalizer=space, decoder=kept), turns
    yield "Gemma 3", dict(normalizer=space, pre_tokenizer=split({"String": " "}, "MergedWithPrevious"),
                          decoder=kept), turns


def families(bases):
    """(name, base, changes) of each."""
    for base, rows in [("bytes", of_bytes()), ("pieces", of_pieces())]:
        for name, changes, more in rows:
            spec = dict(bases[base], added_tokens=bases[base]["added_tokens"])
            yield name, base, dict(changes, **with_added(spec, more))


# --- random Unicode strings ---

BLOCKS = [(0x20, 0x7f), (0x20, 0x7f), (0x80, 0x24f), (0x250, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff),
          (0xe00, 0x11ff), (0x1e00, 0x20ff), (0x2100, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xa640, 0xabff),
          (0xac00, 0xd7ff), (0xe000, 0xfaff), (0xfb00, 0xffff), (0x10000, 0x12fff), (0x1d400, 0x1d7ff),
          (0x1f000, 0x1faff), (0x20000, 0x323af), (0xe0000, 0xe01ef), (0, 0x10ffff)]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u0085", "\u200b"]
BITS = ["'s", "'T", "n't", "'\u017f", "I'll", "e\u0301", "A\u030a", "\u212b", "\u1112\u1161\u11ab", "\u0130", "\u00df", "\ufb01",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f", "\u2581", "\u2581\u2581", "\u0120", "12345", "3.14", "\u0663\u0664", "\u00bd", "\u2167",
        "...", "://", "--", "<0x41>", "<unk>", "\u0915\u094d\u0937\u093f", "\x00", "\x7f", "\ufeff", "/\n", "!?\r\n\n"]


def random_strings(n, seed, special):
    r = random.Random(seed)
    words = CORPUS.split()

    def stretch():
        low, high = r.choice(BLOCKS)
        return "".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 6)))

    def some():
        kinds = [lambda: r.choice(words), lambda: r.choice(BITS), lambda: r.choice(SPACES), stretch, lambda: str(r.randint(0, 10**6))]
        if special:
            kinds.append(lambda: r.choice(special) if r.random() < 0.5 else r.choice(special)[:-1])
        return r.choice(kinds)()

    for _ in range(n):
        text = "".join(some() + (r.choice(SPACES) if r.random() < 0.4 else "") for _ in range(r.randint(0, 12)))
        yield "".join(c for c in text if not 0xd800 <= ord(c) < 0xe000)


# --- manual runs and the full suite ---

def ours(program, directory, texts):
    """[(ids, decoded, decoded without special tokens)] of the program tokenizer_ids."""
    lines = "".join(json.dumps(t, ensure_ascii=False) + "\n" for t in texts)
    done = subprocess.run([program, str(directory)], input=lines.encode(), capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stderr.decode(errors="replace") or f"{program} ends with status {done.returncode}")
    rows = done.stdout.split(b"\n")
    assert len(rows) == 3 * len(texts) + 1
    for i in range(len(texts)):
        ids, kept, left = rows[3 * i:3 * i + 3]
        yield [int(t) for t in ids.split()], bytes.fromhex(kept.decode()), bytes.fromhex(left.decode())


def is_new(c):
    """Whether a character is in no version of Unicode up to that of this Python."""
    return unicodedata.category(c) == "Cn"


def without_new(text):
    """The same with letters for private use in the places of new characters: these are of one class in all versions."""
    return "".join("\ue000" if is_new(c) else c for c in text)


def same_text(mine, theirs):
    """Broken UTF-8 comes as it is here, and as U+FFFD from the library."""
    return mine.decode(errors="replace").replace("\ufffd", "") == theirs.replace("\ufffd", "")


def reference(directory):
    """The library's tokenizer; AutoTokenizer's where tokenizer_config.json may name a class."""
    if not (directory / "tokenizer_config.json").exists():
        return Tokenizer.from_file(str(directory / "tokenizer.json"))
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(directory).backend_tokenizer


def differing(program, directory, texts):
    """The texts with other ids, and how many of the others are decoded otherwise."""
    tokenizer = reference(directory)
    odd = kept_by_library(json.loads(tokenizer.to_str()))
    others, decoded = [], 0
    for text, (ids, kept, left) in zip(texts, ours(program, directory, texts)):
        theirs = tokenizer.encode(text, add_special_tokens=False).ids
        if ids != theirs:
            others.append((text, ids, theirs))
            continue
        for mine, skip in [(kept, False), (left, True)]:
            back = tokenizer.decode(ids, skip_special_tokens=skip)
            if not same_text(mine, back) and not (skip and odd & set(ids)):
                decoded += 1
                if decoded <= 3:
                    print(f"  {ids}, skip_special_tokens={skip}\n    weft       {mine!r}\n    tokenizers {back!r}")
    return others, decoded


def compare(program, name, directory, n, seed):
    """Prints what differs."""
    spec = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    texts = list(random_strings(n, seed, [t["content"] for t in spec["added_tokens"]]))
    wrong, decoded = differing(program, directory, texts)
    for text, mine, theirs in wrong[:3]:
        print(f"  {text!r}\n    weft       {mine}\n    tokenizers {theirs}")
    print(f"{name}: {n - len(wrong)} of {n} have the same ids; {decoded} are decoded otherwise", flush=True)
    return len(wrong) + decoded


def compare_all(args):
    bases, faults = dict(bytes=dense(byte_level()), pieces=sentencepiece()), 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, base, changes in families(bases):
            where = pathlib.Path(scratch)
            (where / "tokenizer.json").write_text(json.dumps(laid_over(bases[base], changes)), encoding="utf-8")
            faults += compare(args.compare, name, where, args.strings, args.seed)
    for directory in args.also:
        faults += compare(args.compare, directory.name, directory, args.strings, args.seed)
    sys.exit(1 if faults else 0)


def write(out):
    bases, rows = dict(bytes=dense(byte_level(), ENDS, BEGINS), pieces=sentencepiece()), []
    for name, base, changes in families(bases):
        spec = laid_over(bases[base], changes)
        special = [t["content"] for t in spec["added_tokens"]]
        texts = [without_new(t) for t in random_strings(40, 7, special)] + [t for t in TEXTS[4:24] if t]
        rows.append(dict(name=name, base=base, changes=changes, vectors=vectors(spec, texts)))
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer_families.json").write_text(
        "{" + f'"about": "as tokenizer_variants.json",\n "tokenizers": {dump(tokenizers.__version__)},\n'
        f' "bases": {dump(bases)},\n "variants": [\n' + ",\n".join("  " + dump(row) for row in rows) + "\n ]}\n",
        encoding="utf-8")
    print(f"{len(rows)} families, {sum(len(row['vectors']) for row in rows)} vectors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("--compare", metavar="PROGRAM")
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", type=pathlib.Path, nargs="*", default=[])
    args = parser.parse_args()
    compare_all(args) if args.compare else write(args.out)


if __name__ == "__main__":
    main()
