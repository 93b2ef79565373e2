#!/usr/bin/env python3
"""One side of roof.py and adapters.py: training steps of a LLaMA in PyTorch, timed in a process of their own.

    torch_step.py '{"model": DIR, "ids": FILE, "rows": 8, "context": 256, ...}'

A step is what a user of transformers writes: forward with labels, backward, clipping, fused AdamW. Prints one object:
the seconds of each measured step, the loss of the last one, and the process's peak of resident memory. With "write" it
makes weights and leaves them in the model's directory instead, from which later runs, and Weft, start; the object is
empty. With "lora", a rank, PEFT's adapter on all linears is trained and the model is not."""

import json
import pathlib
import sys
import time

import safetensors.torch
import torch
import transformers

NO_TARGET = -100


def batches(path, rows, context):
    """Endless pairs of ids and targets, (rows, context) each, one row after the other: a target is the id that follows.
    A text that fills no batch is one, with places that have no target at its end."""
    with open(path, encoding="ascii") as file:
        ids = torch.tensor([int(word) for word in file.read().split()])
    places = max(1, (len(ids) - 1) // (rows * context)) * rows * context
    lacking = max(0, places - (len(ids) - 1))
    inputs = torch.nn.functional.pad(ids[:-1][:places], (0, lacking), value=0).view(-1, rows, context)
    targets = torch.nn.functional.pad(ids[1:][:places], (0, lacking), value=NO_TARGET).view(-1, rows, context)
    at = 0
    while True:
        yield inputs[at % len(inputs)], targets[at % len(inputs)]
        at += 1


def weights_of(job):
    return pathlib.Path(job["model"]) / "model.safetensors"


def make_model(job):
    """With the weights that lie in its directory, or fresh ones, the same in every process."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(job["model"])
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if weights_of(job).exists():
        safetensors.torch.load_model(model, weights_of(job))
    if job.get("lora"):
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=job["lora"], lora_alpha=job["lora"], task_type="CAUSAL_LM",
                                                           target_modules="all-linear"))
    model.train()
    return model


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def make_optimizer(model):
    return torch.optim.AdamW(trained(model), lr=1e-4, fused=True)


def step(model, optimizer, batch, job):
    """One optimizer step; its loss. Targets are given as they are, so that the last place of a row has one too."""
    ids, targets = batch
    with torch.autocast("cpu", torch.bfloat16, enabled=job["precision"] == "bf16"):
        loss = model(input_ids=ids, labels=targets, shift_labels=targets).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained(model), 1.0)
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
        batch = next(stream)
        begin = time.perf_counter()
        loss = step(model, optimizer, batch, job)
        if i >= job["warmup"]:
            seconds.append(time.perf_counter() - begin)
    return {"step_seconds": seconds, "loss": loss, "resident_peak": resident_peak()}


def main():
    job = json.loads(sys.argv[1])
    model = make_model(job)
    if job.get("write"):
        safetensors.torch.save_model(model, weights_of(job))
        print(json.dumps({}))
        return
    optimizer = make_optimizer(model)
    if job["compile"]:
        model = torch.compile(model)
    print(json.dumps(measure(model, optimizer, batches(job["ids"], job["rows"], job["context"]), job)))


if __name__ == "__main__":
    main()
