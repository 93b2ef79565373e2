#!/usr/bin/env python3
"""base/tokenizer.json and base/tokenizer_config.json: byte-level BPE with 512 tokens, learned from chess games.

A word is what stands between blanks together with the blank before it (`1.`, ` e4`, ` Nf3`), and merges never
cross words. So a game's text and the beginning of a game that is typed as a prompt are cut alike, and a whole
move number or a common move is one token. All 256 bytes are in the vocabulary: any text can be written with it.

    make_tokenizer.py --base base.txt      (a virtual environment with tokenizers==0.23.3)

Half of what it learns from is base games, half fine-tune games; held-out games are not among them.
"""

import argparse
import json
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY = 512
SPECIAL = ["<unk>", "<s>", "</s>"]  # ids 0, 1, 2

CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_bos_token": True,
    "add_eos_token": False,
    "clean_up_tokenization_spaces": False,
}


def learn(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r" ?\S+|\s"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", SPECIAL.index("<s>"))])
    return tokenizer


def check(tokenizer, lines):
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == [0, 1, 2]
    assert tokenizer.get_vocab_size() == VOCABULARY
    for text in lines + ["1. e4", "", "  \n\t caf\u00e9 \u265e"]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text, text


def report(tokenizer, name, lines):
    counts = sorted(len(encoding.ids) for encoding in tokenizer.encode_batch(lines, add_special_tokens=False))
    print(f"{name}: {sum(counts)} tokens, {sum(map(len, lines)) / sum(counts):.2f} bytes a token; a game: "
          f"median {counts[len(counts) // 2]}, p95 {counts[len(counts) * 95 // 100]}, most {counts[-1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=pathlib.Path, required=True, help="base games, from make_games.py base")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "base", help="folder to write to")
    options = parser.parse_args()
    base = options.base.read_text().splitlines()
    train = (HERE / "train.txt").read_text().splitlines()
    tokenizer = learn(base[:len(train)] + train)
    check(tokenizer, train)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.out / "tokenizer.json"))
    (options.out / "tokenizer_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    for name, lines in (("base", base), ("train", train), ("heldout", (HERE / "heldout.txt").read_text().splitlines())):
        report(tokenizer, name, lines)


if __name__ == "__main__":
    main()
