#!/usr/bin/env python3
"""Compares the rows of the data plugin `instruct` with what `transformers` makes of the same conversations with the files of a
saved model: ids, and with a template that has generation blocks which of them are answers. Writes nothing.

    weft data show run.ini -n 99 --tokens data.packing=no ... >rows.txt
    python compare_rows.py runs/one/model conversations.jsonl rows.txt

A row is a conversation, in any order; a line of rows.txt is a token: place, id, weight as a target, text. Exit status 0 if all
agree.
"""

import json
import sys

from transformers import AutoTokenizer


def shown(path):
    """{ids: weight of each as a target} of every row. A last id without a weight is not among them."""
    rows, ids, weights = {}, [], []
    for line in list(open(path, encoding="utf-8", errors="replace")) + ["row"]:
        words = line.split()
        if words[:1] == ["row"] and ids:
            rows[tuple(ids)] = weights
            ids, weights = [], []
        elif len(words) >= 3 and words[0].isdigit() and words[1].isdigit():
            ids.append(int(words[1]))
            weights.append(float(words[2]))
    return rows


def main():
    directory, conversations, path = sys.argv[1:4]
    tokenizer, rows, bad = AutoTokenizer.from_pretrained(directory), shown(path), 0
    records = [json.loads(line) for line in open(conversations, encoding="utf-8")]
    for record in records:
        made = tokenizer.apply_chat_template(record["messages"], return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = made["input_ids"], made["assistant_masks"]
        weights = rows.get(tuple(ids), rows.get(tuple(ids[:-1])))
        if weights is None or weights != [0.0] + [float(m) for m in mask[1:len(weights)]]:
            bad += 1
            if bad <= 2:
                print(f"{record}\n  transformers {list(zip(ids, mask))}\n  weft {weights}")
    print(f"{directory}: {len(records) - bad} of {len(records)} conversations are the same")
    sys.exit(1 if bad or not records else 0)


if __name__ == "__main__":
    main()
