#!/usr/bin/env python3
"""Makes tests/golden/chat/ids.txt: what transformers makes of golden/chat's conversations with the tokenizers of
golden/tokenizer: for each that a template takes, FNV-1a (8 hexadecimal digits) of the ids, and of the mask of the answers'
ids where the template has generation blocks, else "-".

    python tests/golden/make_chat_ids.py
"""

import json
import os

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZERS = ["gpt2-style", "llama3-style", "sp-bpe", "sp-bpe-normalized"]
TEMPLATES = ["modes", "tags", "thinking"]


def fnv(numbers):
    h = 14695981039346656037
    for n in numbers:
        h = ((h ^ (n & 0xFFFFFFFF)) * 1099511628211) % 2**64
    return "%08x" % (h >> 32)


def main():
    with open(os.path.join(HERE, "chat", "conversations.jsonl"), encoding="utf-8") as f:
        conversations = [json.loads(line) for line in f.read().split("\n") if line]
    conversations = conversations[:120]
    with open(os.path.join(HERE, "chat", "ids.txt"), "w", encoding="ascii") as out:
        for name in TOKENIZERS:
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(HERE, "tokenizer", name, "tokenizer.json"))
            for template in TEMPLATES:
                with open(os.path.join(HERE, "chat", template + ".jinja"), encoding="utf-8") as f:
                    source = f.read()
                for i, c in enumerate(conversations):
                    c = dict(c)
                    messages = c.pop("messages")
                    tools = c.pop("tools", None)
                    try:
                        made = tokenizer.apply_chat_template(messages, tools=tools, chat_template=source, return_dict=True,
                                                             return_assistant_tokens_mask=template == "modes", **c)
                    except Exception:
                        continue
                    mask = fnv(made["assistant_masks"]) if template == "modes" else "-"
                    out.write("%s %s %d %s %s\n" % (name, template, i, fnv(made["input_ids"]), mask))


if __name__ == "__main__":
    main()
