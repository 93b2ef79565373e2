#!/usr/bin/env python3
"""One side of roof.py: training steps of a LLaMA in PyTorch, timed in a process of their own.

    torch_step.py '{"model": DIR, "ids": FILE, "rows": 8, "context": 256, ...}'

A step is what a user of transformers writes: forward with labels, backward, clipping, fused AdamW. Prints one object:
the seconds of each measured step, the loss of the last one, and the process's peak of resident memory."""

import json
import sys
import time

import torch
import transformers


def batches(path, rows, context):
    """Endless (rows, context) tensors of the ids in a file, one row after the other."""
    with open(path, encoding="ascii") as file:
        ids = torch.tensor([int(word) for word in file.read().split()])
    whole = ids[: len(ids) // (rows * context) * rows * context].view(-1, rows, context)
    at = 0
    while True:
        yield whole[at % len(whole)]
        at += 1


def make_model(job):
    """With fresh weights, the same in every process."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(job["model"])
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.train()
    return model


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def step(model, optimizer, ids, job):
    """One optimizer step; its loss."""
    with torch.autocast("cpu", torch.bfloat16, enabled=job["precision"] == "bf16"):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def resident_peak():
    """VmHWM of this process in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def measure(model, optimizer, stream, job):
    """The steps of a job, as an object; what comes before the first measured one does not count."""
    seconds = []
    loss = 0.0
    for i in range(job["warmup"] + job["steps"]):
        ids = next(stream)
        begin = time.perf_counter()
        loss = step(model, optimizer, ids, job)
        if i >= job["warmup"]:
            seconds.append(time.perf_counter() - begin)
    return {"step_seconds": seconds, "loss": loss, "resident_peak": resident_peak()}


def main():
    job = json.loads(sys.argv[1])
    model = make_model(job)
    optimizer = make_optimizer(model)
    if job["compile"]:
        model = torch.compile(model)
    print(json.dumps(measure(model, optimizer, batches(job["ids"], job["rows"], job["context"]), job)))


if __name__ == "__main__":
    main()
