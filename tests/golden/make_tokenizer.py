#!/usr/bin/env python3
"""Makes tokenizer/: small BPE tokenizers of the three sorts in use, and what `tokenizers` makes of awkward texts.

The merges are learned here from CORPUS by a few lines of plain byte-pair encoding (ties broken by the pair itself), so
that the files do not depend on the version of a trainer. The ids and decoded texts come from the library.

    python make_tokenizer.py [--out DIR]
"""

import argparse
import collections
import copy
import json
import pathlib

import tokenizers
from tokenizers import Tokenizer, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
UNDERLINE = "\u2581"  # represents a space in SentencePiece

CORPUS = """
The ferry leaves the harbour at seven in the morning, when the lamps along the quay are still lit. There are never more
than thirty people on it. The captain knows their names; he knows who will sleep and who will stand at the rail and
watch the gulls. In winter there is ice on the steps, and then the ticket seller throws sand from a bucket and says the
same thing that she says every year: that the sea was warmer when she was a child.
It isn't true, of course. I've looked at the records, and they've not moved by more than a degree. But who'd want to
tell her that? She'll say you weren't there, and she's right. We're all a little like that: what we remember is not what
the thermometer showed. I'm no better than the others.
On the other side there is a market. They sell bread, smoked fish, apples in autumn, and something that they call coffee.
A train goes from there to the city every hour; the line is single, and where two trains have to pass each other, one of
them waits among the birches until the signal changes. Those who have been waiting there for years will tell you that
this is the best part of the journey. Nothing happens. The engine hums, the windows are full of white trees, and then
the other train comes, and everyone looks at everyone else for the length of a breath.
def count(words):
    table = {}
    for word in words:
        table[word] = table.get(word, 0) + 1
    return table
for (int i = 0; i < n; i++) { total += price[i] * 12; }
In 1987 it cost 25 crowns; in 2024 it is 250. The 7:30 train, number 1147, is late by 15 minutes.
Der Hafen liegt im Nebel, und die Fähre fährt trotzdem über das Wasser; für die Möwen ist das schön.
İstanbul'da ışıklar yanıyor, kıyıda balıkçılar ağlarını topluyor.
Паром уходит из гавани рано утром, когда фонари на набережной ещё горят.
渡船早上七点离开港口。海面上有雾。
Le café est fermé; à midi, le garçon préfère dormir où il fait frais.
"""

# Texts for every tokenizer. They include NUL and other controls; vectors.json writes such texts in hex.
TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "\t\t  \n\n\n x", "a", " a", "a ", "  a  ",
    "The ferry leaves the harbour.", " The ferry leaves the harbour.", "The  ferry   leaves    the harbour.     ",
    "\n    table[word] = table.get(word, 0) + 1\n        return", "    for word in words:\n\tpass\n",
    "I'm, you're, he's, she'll, they've, we'd, isn't; I'M, YOU'RE, HE'S, SHE'LL, it'\u017f 'tis '' 's", "0", "42",
    "123", "1234", "1234567890",
    "3.14159 -2,5e10 0x1F 1\u00bd m\u00b2 \u2167 \u0663\u0664\u0665 \U0001d7d8\U0001d7d9",
    "harbourharbourharbourthethethethemorningmorning", "a" * 300, "ab" * 100, "trainstrainstrains " * 5,
    "Donaudampfschifffahrtsgesellschaftskapit\u00e4n", "!" * 9, "...", "--", "?!?! (yes) [no] {maybe} <b>",
    "a.b,c;d:e", "caf\u00e9 cafe\u0301 f\u00e4hrt fa\u0308hrt \u00c5\u212b",
    "Z\u0351\u036b\u0343\u036aa\u0310l\u0325g\u0321o\u031b",
    "\u0131\u015f\u0131k I\u015eIK i\u015fik \u0130stanbul i\u0307",
    "\u041f\u0430\u0440\u043e\u043c \u0443\u0445\u043e\u0434\u0438\u0442 \u0438\u0437 \u0433\u0430\u0432\u0430\u043d\u0438",
    "\u6e21\u8239\u65e9\u4e0a\u4e03\u70b9\u79bb\u5f00\u6e2f\u53e3\u3002",
    "\u6771\u4eac\u30bf\u30ef\u30fc\u306f333m\u3067\u3059", "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u0645\u0631\u062d\u0628\u0627\u064b \u200fabc\u200e",
    "\u03b1\u03b2\u03b3 \u03a3\u03c3\u03c2", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1f3\U0001f1f4 \U0001f44d\U0001f3fd \u2764\ufe0f",
    "x\U0001f6a2y \U0001f6a2\U0001f6a2", "\u00a0a\u00a0 b\u00a0", "a\u0085b \u0085", "a\u000bb\u000cc",
    "a\u001cb\u001db\u001eb\u001fb", "a\u1680b\u180ec", "a\u2000b\u2003 c\u2009", "a\u2028b\u2029c\n",
    "a\u202fb\u205fc\u3000d \u3000", "a\u200bb\u2060c\ufeffd", "\ufeffstart", "\u0000", "a\u0000b \u0000\u0000 c",
    "\u0001\u007f\u0080\u009f", "\ufffd \uffff \U0010ffff \ue000", "\u2581", "a\u2581b \u2581 c", "<0x41>",
    "\u0120the", "\u0120", "\u00aa \u00ba \u02b0 \u02bc \u01c5 \u3005", "a_b __c__ snake_case",
    "http://www.example.org/a?b=c&d=%20#e", "tab\there\nnew\r\nline\rend", "x \n y", "x  \n\n  y",
    "end with spaces   ", "end\n\n\n", "price[i] * 12; } // \u20ac5, \u00a33, 7 \u2260 8",
    "kaleidoscope zebra kaleidoscopes zebras kaleidoscop", " zebra", "The quick-brown fox's don't\u2019s",
]


def learn(words, alphabet, count):
    """Byte-pair encoding on {word as tuple of symbols: occurrences}: the merges, in order."""
    words, known, merges = dict(words), set(alphabet), []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                if pair[0] + pair[1] not in known:
                    pairs[pair] += n
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        known.add(best[0] + best[1])
        words = _merged(words, best)
    return merges


def _merged(words, best):
    out = collections.Counter()
    for word, n in words.items():
        parts, i = [], 0
        while i < len(word):
            if word[i:i + 2] == best:
                parts.append(best[0] + best[1])
                i += 2
            else:
                parts.append(word[i])
                i += 1
        out[tuple(parts)] += n
    return out


def added(id, content, special=True, normalized=False):
    return dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=normalized,
                special=special)


def bpe(vocab, merges, **changes):
    return dict(dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                     end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False,
                     vocab=vocab, merges=merges), **changes)


def whole(added_tokens, model, **parts):
    base = dict(version="1.0", truncation=None, padding=None, added_tokens=added_tokens, normalizer=None,
                pre_tokenizer=None, post_processor=None, decoder=None)
    return dict(base, **parts, model=model)


def template(token, id):
    """A post-processor that puts one token before the text."""
    first, text, second = {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, \
        {"Sequence": {"id": "B", "type_id": 1}}
    again = {"SpecialToken": {"id": token, "type_id": 1}}
    return dict(type="TemplateProcessing", single=[first, text], pair=[first, text, again, second],
                special_tokens={token: dict(id=token, ids=[id], tokens=[token])})


def sentencepiece(normalized):
    """SentencePiece-style: pieces and every way to put each together, characters last, byte tokens for the rest."""
    words = collections.Counter()
    for word in CORPUS.split():
        words[tuple(UNDERLINE + word)] += 1
    latin = sorted({c for w in words for c in w if ord(c) < 128})
    letters = [UNDERLINE] + latin + sorted("äöüéç")  # İ, ı, Cyrillic and CJK use byte tokens
    runs = [UNDERLINE * n for n in (2, 4, 8)]
    pieces = runs[:1] + ["".join(m) for m in learn(words, set(letters), 70)] + runs[1:]
    vocab = {}
    for token in ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces + letters:
        vocab[token] = len(vocab)
    merges = []
    for piece in pieces:
        splits = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        known = [s for s in splits if s[0] in vocab and s[1] in vocab]
        merges += sorted(known, key=lambda s: (vocab[s[0]], vocab[s[1]]))
    space = lambda a, b: dict(type="Replace", pattern={"String": a}, content=b)
    return whole(
        [added(i, t, normalized=normalized) for i, t in enumerate(["<unk>", "<s>", "</s>"])],
        bpe(vocab, [" ".join(m) for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        normalizer=dict(type="Sequence", normalizers=[dict(type="Prepend", prepend=UNDERLINE), space(" ", UNDERLINE)]),
        post_processor=template("<s>", 1),
        decoder=dict(type="Sequence", decoders=[space(UNDERLINE, " "), dict(type="ByteFallback"), dict(type="Fuse"),
                                                dict(type="Strip", content=" ", start=1, stop=0)]))


def byte_symbols():
    """The printable character that stands for each byte in byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def byte_level(pre_tokenizer, count):
    """Vocabulary of single bytes and learned pieces, with the merges, for a byte-level pre-tokenizer."""
    words = collections.Counter()
    for word, _ in pre_tokenizer.pre_tokenize_str(CORPUS):
        words[tuple(word)] += 1
    symbols = [s for _, s in sorted(byte_symbols().items(), key=lambda x: x[1])]
    merges = learn(words, set(symbols), count)
    vocab = {t: i for i, t in enumerate(symbols + ["".join(m) for m in merges])}
    return vocab, merges


BYTES = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)


def gpt2():
    vocab, merges = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 140)
    vocab["<|endoftext|>"] = len(vocab)  # in the vocabulary and added; the others are only added
    n = len(vocab)
    tokens = [added(n - 1, "<|endoftext|>"), added(n, "<|user|>"), added(n + 1, "-->", special=False, normalized=True),
              added(n + 2, "-->>", special=False, normalized=True)]
    return whole(tokens, bpe(vocab, [list(m) for m in merges], continuing_subword_prefix="", end_of_word_suffix=""),
                 pre_tokenizer=BYTES, post_processor=dict(BYTES, trim_offsets=False), decoder=dict(BYTES))


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def llama3():
    split = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(LLAMA3), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocab, merges = byte_level(split, 140)
    for word in ["\u0120kaleidoscope", "zebra", "123"]:  # no merges lead here: matched as a whole, or never
        vocab[word] = len(vocab)
    n = len(vocab)
    plain = dict(BYTES, use_regex=False)
    return whole(
        [added(n, "<|begin_of_text|>"), added(n + 1, "<|end_of_text|>"), added(n + 2, "<|eot_id|>")],
        bpe(vocab, [list(m) for m in merges], ignore_merges=True),
        pre_tokenizer=dict(type="Sequence", pretokenizers=[
            dict(type="Split", pattern={"Regex": LLAMA3}, behavior="Isolated", invert=False), plain]),
        post_processor=dict(type="Sequence", processors=[dict(plain, use_regex=True),
                                                         template("<|begin_of_text|>", n)]),
        decoder=dict(BYTES))


# name -> (tokenizer.json, bos, eos, texts with its special tokens, id lists that no text encodes to)
def tokenizers_to_make():
    special = ["<s>", "a<s>b", " <s> the </s> harbour", "<s></s><unk>", "<s>\n\n</s>", "x</s>", "<S> < s> <s", "<s> ",
               "the<unk>train"]
    sp_ids = [[1], [259], [4], [0xE2 + 3], [0xE2 + 3, 0x82 + 3], [0xE2 + 3, 0x82 + 3, 0xAC + 3], [1, 300, 301, 2],
              [300, 0xF0 + 3, 0x9F + 3, 300], [0x41 + 3, 0xC3 + 3, 0xA9 + 3, 0xFF + 3, 0x42 + 3]]
    gpt2_texts = ["<|endoftext|>", "a<|endoftext|>b", "one <|user|> two", "<|user|><|user|>", "x --> y", "x-->>y",
                  "-->>>", "-- >", "<|endoftext", "<|ENDOFTEXT|>", " <|endoftext|> ", "I'<|user|>m"]
    llama3_texts = ["<|begin_of_text|>", "<|begin_of_text|>the harbour<|eot_id|>", "a <|end_of_text|> b",
                    "<|eot_id|>\n\n\n<|eot_id|>  ", "<|eot|>"]
    byte_ids = [[300], [0], [256, 300], [161, 128]]
    yield "sp-bpe", sentencepiece(False), "<s>", "</s>", special, sp_ids
    yield "sp-bpe-normalized", sentencepiece(True), "<s>", "</s>", special, sp_ids
    yield "gpt2-style", gpt2(), None, "<|endoftext|>", gpt2_texts, byte_ids
    yield "llama3-style", llama3(), "<|begin_of_text|>", "<|end_of_text|>", llama3_texts, byte_ids


def spelled(key, text):
    """Text as it is, or in hex where it holds a control character that a JSON reader may refuse."""
    if any(ord(c) < 32 and c not in "\n\t\r" for c in text):
        return {key + "_hex": text.encode().hex()}
    return {key: text}


def vectors(tokenizer, texts, lists, bos):
    """One entry per text, one per list of ids; decoded with special tokens kept."""
    decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
    out = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        entry = {**spelled("text", text), "ids": ids}
        with_special = tokenizer.encode(text).ids
        if bos is None:
            assert with_special == ids
        else:
            assert with_special == [tokenizer.token_to_id(bos)] + ids
            entry["ids_bos"] = with_special
        out.append({**entry, **spelled("decoded", decode(ids))})
    return out, [{"ids": ids, **spelled("decoded", decode(ids))} for ids in lists]


def verify(where, exact):
    """The files on disk load back and say the same; byte-level texts come back whole."""
    again = Tokenizer.from_file(str(where / "tokenizer.json"))
    data = json.loads((where / "vectors.json").read_text(encoding="utf-8"))
    used = set()
    for v in data["vectors"]:
        text = v["text"] if "text" in v else bytes.fromhex(v["text_hex"]).decode()
        back = v["decoded"] if "decoded" in v else bytes.fromhex(v["decoded_hex"]).decode()
        assert again.encode(text, add_special_tokens=False).ids == v["ids"]
        assert not exact or back == text, (text, back)
        used.update(v["ids"])
    return len(used), again.get_vocab_size()


def make(out, name, spec, bos, eos, special_texts, lists):
    where = out / "tokenizer" / name
    where.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_str(json.dumps(copy.deepcopy(spec)))
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    (where / "tokenizer.json").write_text(dump(spec) + "\n", encoding="utf-8")
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=bos, eos_token=eos,
                  add_bos_token=bos is not None, add_eos_token=False,
                  clean_up_tokenization_spaces=False, model_max_length=512)
    (where / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")

    vecs, decodes = vectors(tokenizer, TEXTS + [CORPUS[-700:]] + special_texts, lists, bos)
    about = dict(about="text (or text_hex: UTF-8 in hex), ids without added special tokens, ids_bos with what the "
                       "post-processor adds, decoded (or decoded_hex) with special tokens kept; decode: lists of ids "
                       "that no text gives, where broken UTF-8 comes out as U+FFFD", tokenizers=tokenizers.__version__)
    rows = lambda items: ",\n".join("  " + dump(v) for v in items)
    (where / "vectors.json").write_text(
        dump(about)[:-1] + ',\n "vectors": [\n' + rows(vecs) + '\n ],\n "decode": [\n' + rows(decodes) + "\n ]\n}\n",
        encoding="utf-8")
    used, size = verify(where, exact=not name.startswith("sp-"))
    print(f"{name}: {size} pieces, {used} of them in {len(vecs)} vectors, "
          f"{sum(f.stat().st_size for f in where.iterdir())} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    for row in tokenizers_to_make():
        make(out, *row)


if __name__ == "__main__":
    main()
