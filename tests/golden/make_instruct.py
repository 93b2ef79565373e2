#!/usr/bin/env python3
"""Makes tests/golden/instruct: conversations, a template with generation blocks, and the loss that transformers gives for them
with the model configs/chess/base: the ids of its chat template, and as labels those of the answers' mask alone. Of gsm8k,
where ../shared/assets has it, the loss of the first 200 questions alone is kept, and of none of its text.

    python tests/golden/make_instruct.py
"""

import json
import os
import random

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = os.path.join(HERE, "..", "..", "configs", "chess", "base")
GSM8K = os.path.join(HERE, "..", "..", "..", "shared", "assets", "data", "gsm8k_test.jsonl")
EXPECTED = os.path.join(HERE, "instruct", "expected.txt")
CONTEXT = 512
TEMPLATE = """{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- bos_token }}{% generation %}{{ message.content | trim }}{{ eos_token }}{% endgeneration %}
    {%- else %}
        {{- '<' + message.role + '> ' + message.content + '\\n' }}
    {%- endif %}
{%- endfor %}"""
MOVES = ["e4 e5", "d4 d5", "Nf3 Nf6", "c4", "f4 exf4", "Bb5 a6", "O-O", "0-1 </s>", "è", "1/2-1/2"]


def losses_of(conversations, tokenizer, model):
    """(mean loss, targets) of all answers and of the last one of each conversation; those past CONTEXT are left out."""
    total, targets, last_total, last_targets = 0.0, 0, 0.0, 0
    for c in conversations:
        made = tokenizer.apply_chat_template(c["messages"], chat_template=TEMPLATE, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = torch.tensor(made["input_ids"]), torch.tensor(made["assistant_masks"])
        if len(ids) - 1 > CONTEXT:
            continue
        with torch.no_grad():
            logits = model(ids[None]).logits[0].double()
        losses = torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="none")
        total += float((losses * mask[1:]).sum())
        targets += int(mask[1:].sum())
        first = len(mask) - 1
        while first > 0 and mask[first - 1]:
            first -= 1
        last_total += float(losses[first - 1:].sum())
        last_targets += len(mask) - first
    yield total / targets, targets
    yield last_total / last_targets, last_targets


def main():
    r = random.Random(3)
    conversations = []
    for _ in range(40):
        messages = [{"role": "system", "content": "Play."}] if r.random() < 0.4 else []
        for _ in range(r.randint(1, 3)):
            messages.append({"role": "user", "content": " ".join(r.choice(MOVES) for _ in range(r.randint(1, 5)))})
            messages.append({"role": "assistant", "content": " ".join(r.choice(MOVES[:7]) for _ in range(r.randint(1, 6)))})
        conversations.append({"messages": messages})
    os.makedirs(os.path.join(HERE, "instruct"), exist_ok=True)
    with open(os.path.join(HERE, "instruct", "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    with open(os.path.join(HERE, "instruct", "conversations.jsonl"), "w", encoding="utf-8") as f:
        for c in conversations:
            f.write(json.dumps(c, ensure_ascii=False) + "\n")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(BASE, "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).eval()
    lines = ["answers %.9f %d", "last %.9f %d"]
    lines = [line % loss for line, loss in zip(lines, losses_of(conversations, tokenizer, model))]
    if os.path.exists(GSM8K):
        with open(GSM8K, encoding="utf-8") as f:
            records = [json.loads(line) for line, _ in zip(f, range(200))]
        asked = [{"messages": [{"role": "user", "content": r["question"]}, {"role": "assistant", "content": r["answer"]}]}
                 for r in records]
        lines.append("gsm8k %.9f %d" % next(losses_of(asked, tokenizer, model)))
    else:
        with open(EXPECTED, encoding="ascii") as f:
            lines += [line.strip() for line in f if line.startswith("gsm8k ")]
    with open(EXPECTED, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
