#!/usr/bin/env python3
"""Makes tokenizer_auto.json: ids of AutoTokenizer over tokenizer classes, model types and the files that name tokens.

A case is one of the bases with `changes` laid over tokenizer.json, and up to four other files. `surround` is what is put
around an empty text.

    python make_tokenizer_auto.py [--out DIR]
"""

import argparse
import json
import os
import pathlib
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from transformers import AutoTokenizer

from make_tokenizer import UNDERLINE, added, byte_symbols
from make_tokenizer_variants import byte_level, characters, of

HERE = pathlib.Path(__file__).resolve().parent
FILES = dict(config="tokenizer_config.json", map="special_tokens_map.json", added="added_tokens.json", model="config.json")
TEXTS = ["ab cab</s><s> ab", "<s>ab <x> b</s>\n<s>cab", " ab", "ab", "  <s>  ab", "a<y>b <unk>12ab3 45</s>", "<s><s>ab'S b's </s>",
         "<x>ab<x> ab", "x<|endoftext|> <mask>ab", "caf\u00e9 cafe\u0301 <s> \u00bd1b", "", UNDERLINE + "ab<s>" + UNDERLINE + "ab"]


def token(content, **flags):
    return dict(dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True), **flags)


def around(name, number):
    """A post-processor that puts a token before a text."""
    one, text = {"SpecialToken": dict(id=name, type_id=0)}, {"Sequence": dict(id="A", type_id=0)}
    return of("TemplateProcessing", single=[one, text], pair=[one, text, {"Sequence": dict(id="B", type_id=1)}],
              special_tokens={name: dict(id=name, ids=[number], tokens=[name])})


def bases():
    pieces, letters = characters(), byte_level()
    vocab = pieces["model"]["vocab"]
    for b in range(256):
        vocab.setdefault(f"<0x{b:02X}>", len(vocab))
    pieces["model"]["byte_fallback"] = True
    pieces["post_processor"] = around("<s>", 1)
    vocab = letters["model"]["vocab"]
    for symbol in byte_symbols().values():
        vocab.setdefault(symbol, len(vocab))
    first = len(vocab)
    letters["added_tokens"] = [added(first + i, name) for i, name in enumerate(["<|endoftext|>", "<s>", "</s>"])]
    return dict(pieces=pieces, letters=letters)


def cases(spec):
    """(base, changes, other files)"""
    def normalized(base, **flags):
        return [dict(t, **flags) for t in spec[base]["added_tokens"]]

    def decoder(base, *more, **flags):
        listed = {str(t["id"]): {k: v for k, v in dict(t, **flags).items() if k != "id"} for t in spec[base]["added_tokens"]}
        n = len(spec[base]["model"]["vocab"]) + sum(t["id"] >= len(spec[base]["model"]["vocab"]) for t in spec[base]["added_tokens"])
        return {**listed, **{str(n + i): t for i, t in enumerate(more)}}

    for model in ["llama", "mistral", "phi3", "gemma", "gemma2", "none"]:
        for name in [None, "LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "PreTrainedTokenizerFast", "FooTokenizer"]:
            files = dict(config={} if name is None else dict(tokenizer_class=name))
            if model != "none":
                files["model"] = dict(model_type=model)
            yield "pieces", {}, files
    for model in ["gpt2", "phi", "starcoder2", "olmo2", "olmo", "qwen2", "qwen3", "qwen3_5", "cohere", "cohere2", "llama", "smollm3"]:
        for name in [None, "GPT2Tokenizer", "Qwen2Tokenizer", "GPTNeoXTokenizer", "CohereTokenizer", "CodeGenTokenizer",
                     "PreTrainedTokenizerFast", "LlamaTokenizer"]:
            if not (name == "LlamaTokenizer" and model in ["qwen2", "qwen3_5"]):
                yield "letters", {}, dict(config={} if name is None else dict(tokenizer_class=name), model=dict(model_type=model))
    yield "pieces", {}, dict(config={}, model=dict(model_type="llama", tokenizer_class="LlamaTokenizerFast"))
    llama = dict(tokenizer_class="LlamaTokenizer")
    for keys in [dict(legacy=True), dict(legacy=False), dict(legacy=None), dict(add_prefix_space=False), dict(add_prefix_space=True),
                 dict(add_prefix_space=None, legacy=True), dict(add_bos_token=False, add_eos_token=True), dict(bos_token=None),
                 dict(mask_token="x", foo_token="cab"), dict(extra_special_tokens=["<x>", "y"]),
                 dict(additional_special_tokens=["<x>", dict(token("<y>", lstrip=True), __type="AddedToken")]),
                 dict(extra_special_tokens=dict(image_token="<x>")), dict(bos_token=dict(token("<s>", rstrip=True), __type="AddedToken"))]:
        for class_ in [llama, dict(tokenizer_class="PreTrainedTokenizerFast")]:
            yield "pieces", {}, dict(config={**class_, **keys})
    for flags in [dict(normalized=True), dict(rstrip=True, lstrip=True), dict(special=False)]:
        for class_ in [llama, dict(tokenizer_class="PreTrainedTokenizerFast"), dict(tokenizer_class="GemmaTokenizer")]:
            yield "pieces", dict(added_tokens=normalized("pieces", **flags)), dict(config=class_)
            yield "pieces", dict(added_tokens=normalized("pieces", **flags)), dict(config={**class_, "added_tokens_decoder": decoder("pieces")})
            yield "pieces", {}, dict(config={**class_, "added_tokens_decoder": decoder("pieces", token("<x>"), token("<y>", special=False, normalized=True), **flags)})
    yield "pieces", {}, dict(config=dict(llama, eos_token="</s>"), map=dict(bos_token="<s>", eos_token=token("x", lstrip=True)))
    yield "pieces", {}, dict(config=dict(llama, bos_token="<s>", added_tokens_decoder=decoder("pieces")), map=dict(eos_token="<s>", pad_token="x"))
    yield "pieces", {}, dict(map=dict(bos_token="<s>", pad_token="y"), added={"<x>": 294})
    yield "pieces", {}, dict(config=llama, added={"<x>": 294, "<y>": 295})
    code = dict(tokenizer_class="CodeLlamaTokenizer")
    for keys in [{}, dict(add_prefix_space=False), dict(legacy=True), dict(unk_token="a", prefix_token="x")]:
        yield "pieces", {}, dict(config={**code, **keys})
    for class_ in ["GPT2Tokenizer", "Qwen2Tokenizer", "CohereTokenizer", "GPTNeoXTokenizer", "Qwen3_5Tokenizer", "PreTrainedTokenizerFast"]:
        for keys in [dict(add_prefix_space=True), dict(bos_token="a", pad_token="<s>"), dict(added_tokens_decoder=decoder("letters", token("<x>"), lstrip=True), eos_token="</s>"),
                     dict(eos_token="<|endoftext|>", extra_special_tokens=["ab"], added_tokens_decoder=decoder("letters", special=False))]:
            yield "letters", {}, dict(config=dict(tokenizer_class=class_, **keys))
    digits = of("Sequence", pretokenizers=[of("Digits", individual_digits=True), of("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)])
    for class_ in ["GPT2Tokenizer", "PreTrainedTokenizerFast"]:
        number = spec["letters"]["added_tokens"][1]["id"]
        yield "letters", dict(pre_tokenizer=digits, post_processor=around("<s>", number)), dict(config=dict(tokenizer_class=class_, bos_token="<s>"), model=dict(model_type="llama"))
        yield "letters", dict(post_processor=around("<s>", number)), dict(config=dict(tokenizer_class="GPTNeoXTokenizer", bos_token="<s>"))


def load(base, changes, files):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "tokenizer.json").write_text(json.dumps({**base, **changes}))
        for key, value in files.items():
            (path / FILES[key]).write_text(json.dumps(value))
        return AutoTokenizer.from_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out
    transformers.logging.set_verbosity_error()
    spec, rows = bases(), []
    for base, changes, files in cases(spec):
        tokenizer = load(spec[base], changes, files)
        have = {**spec[base]["model"]["vocab"], **{t["content"]: t["id"] for t in spec[base]["added_tokens"]}}
        names = [getattr(tokenizer, f"{n}_token") for n in ["bos", "eos", "pad"]]
        limit = max(have.values())
        ids = [tokenizer(t, add_special_tokens=False)["input_ids"] for t in TEXTS]
        listed = str(files)
        # A default missing in the vocabulary would get a new id; here it has no id, and its text is plain
        # text.
        new = {i for i in set(sum(ids, [])) if i > limit and str(tokenizer.convert_ids_to_tokens(i)) not in listed}
        rows.append(dict(base=base, changes=changes, files=files, special=[have.get(n, -1) for n in names],
                         surround=tokenizer("")["input_ids"], ids=[None if new & set(i) else i for i in ids]))
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    (out / "tokenizer_auto.json").write_text(
        "{" + f'"transformers": {dump(transformers.__version__)},\n "texts": {dump(TEXTS)},\n "bases": {dump(spec)},\n "rows": [\n' +
        ",\n".join(dump(row) for row in rows) + "\n]}\n", encoding="utf-8")
    print(f"{len(rows)} rows, {sum(i is not None for row in rows for i in row['ids'])} texts")


if __name__ == "__main__":
    main()
