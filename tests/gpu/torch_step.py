#!/usr/bin/env python3
"""The other side of the bench of tests/gpu/first: training steps of a LLaMA in PyTorch, eager, with its fastest attention,
fused AdamW, fp32 masters and bf16 arithmetic.

    torch_step.py DIRECTORY ROWS CONTEXT [DEVICE]

Prints "places a second, GiB": the median of steps behind the first three, and the most that was taken."""

import statistics
import sys
import time

import torch
import transformers

STEPS = 15


def main():
    path, rows, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    device = torch.device(sys.argv[4] if len(sys.argv) > 4 else "cuda")
    config = transformers.AutoConfig.from_pretrained(path, attn_implementation="sdpa")
    config.use_cache = False
    with device:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, config.vocab_size, (rows, context), device=device)
    seconds = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    most = torch.cuda.max_memory_reserved() / 2**30 if device.type == "cuda" else 0.0
    print(f"{rows * context / statistics.median(seconds[3:]):.0f}, {most:.1f}")


main()
