#!/usr/bin/env python3
"""What `transformers` gets from a model directory: loss over a text, or a greedy continuation. By hand.

    python check_hf.py MODEL_DIR --text data.txt --context 256 [--document line] [--bos] [--eos]
    python check_hf.py MODEL_DIR --greedy "Once upon a time" 40 [--bos] [--ignore-eos]
    python check_hf.py MODEL_DIR --ids 5 17 3 --greedy-ids 20

The loss is what `weft eval` reports: each document alone, cut into windows of `context` inputs with stride `context`,
a window's last target being the next one's first id; the sum of cross entropies over all targets, divided by their
number. Computes in float32, or in --double (all but what transformers itself keeps in float32).
"""

import argparse
import json
import math
import pathlib
import re
import sys

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, logging


def documents(data, kind, field):
    """The texts of a file, as `document = file | line | paragraph` or JSONL's `field` cut it."""
    if field:
        return [json.loads(line)[field] for line in data.split("\n") if line.strip()]
    if kind == "file":
        return [data]
    if kind == "line":
        return [d for d in data.split("\n") if d]
    return [d.strip("\n") for d in re.split(r"\n(?:[ \t]*\n)+", data) if d.strip()]


def encode(tokenizer, text, args):
    """Ids of a text without what the post-processor adds; BOS and EOS only when asked for."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    before = [tokenizer.bos_token_id] if args.bos else []
    after = [tokenizer.eos_token_id] if args.eos else []
    if None in before + after:
        sys.exit("the tokenizer names no such token: leave out --bos and --eos, or name it in tokenizer_config.json")
    return before + ids + after


@torch.no_grad()
def loss(model, lists, context):
    """Sum of cross entropies in double, and number of targets."""
    total, count = 0.0, 0
    for ids in lists:
        for begin in range(0, len(ids) - 1, context):
            window = torch.tensor(ids[begin:begin + context + 1])
            logits = model(input_ids=window[None, :-1], use_cache=False).logits[0]
            total += F.cross_entropy(logits, window[1:], reduction="none").double().sum().item()
            count += len(window) - 1
    return total, count


@torch.no_grad()
def greedy(model, ids, count, stop):
    """Ids of the continuation alone, and the smallest gap between the two best logits on the way."""
    out, gap = [], math.inf
    for _ in range(count):
        logits = model(input_ids=torch.tensor([ids + out]), use_cache=False).logits[0, -1].double()
        best = logits.topk(2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        out.append(int(best.indices[0]))
        if out[-1] in stop:
            break
    return out, gap


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, help="file to measure the loss on")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--document", choices=["file", "line", "paragraph"], default="file")
    parser.add_argument("--field", help="the text is JSONL; the key that holds a document")
    parser.add_argument("--greedy", nargs=2, metavar=("PROMPT", "N"), help="continue a prompt by N ids")
    parser.add_argument("--ids", type=int, nargs="*", default=[], help="prompt as ids, with --greedy-ids")
    parser.add_argument("--greedy-ids", type=int, metavar="N", help="continue --ids by N ids; needs no tokenizer")
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--bos", action="store_true")
    parser.add_argument("--eos", action="store_true")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if not (args.text or args.greedy or args.greedy_ids):
        parser.error("nothing to do: give --text, --greedy or --greedy-ids")
    return args


def show_greedy(model, tokenizer, prompt, count, args):
    if not prompt:
        sys.exit("the prompt has no ids: give one, or --bos")
    eos = model.config.eos_token_id
    stop = set() if args.ignore_eos else set(eos if isinstance(eos, list) else [eos])
    out, gap = greedy(model, prompt, count, stop)
    print("ids:", *out)
    if tokenizer:
        print("text:", repr(tokenizer.decode(out, skip_special_tokens=False)))
    print(f"smallest gap between the two best logits: {gap:.3e}")


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    model = model.double() if args.double else model
    has_tokenizer = (args.model / "tokenizer.json").exists()
    tokenizer = AutoTokenizer.from_pretrained(args.model) if has_tokenizer else None
    if (args.text or args.greedy) and not tokenizer:
        sys.exit(f"{args.model} has no tokenizer.json: use --ids and --greedy-ids")
    if args.text:
        with open(args.text, encoding="utf-8", newline="") as f:
            texts = documents(f.read(), args.document, args.field)
        total, count = loss(model, [encode(tokenizer, t, args) for t in texts], args.context)
        if count == 0:
            sys.exit(f"{args.text}: no document has two ids")
        print(json.dumps(dict(loss=total / count, tokens=count, perplexity=math.exp(total / count),
                              documents=len(texts))))
    if args.greedy:
        args.eos = False
        show_greedy(model, tokenizer, encode(tokenizer, args.greedy[0], args), int(args.greedy[1]), args)
    if args.greedy_ids:
        show_greedy(model, tokenizer, args.ids, args.greedy_ids, args)


if __name__ == "__main__":
    main()
