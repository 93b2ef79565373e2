#!/usr/bin/env python3
"""Makes loss_scale.json: what PyTorch's GradScaler does with its scale, and a tiny model trained in fp16 under it.

`cases` are made-up sequences of steps whose gradients are finite ("1") or not ("0"), each run through GradScaler itself
with an optimizer that counts its steps: the scale that each step has, and which steps the optimizer made.

`run` is llama-tied (make_llama.py) under torch.autocast in fp16 with GradScaler, AdamW and a linear schedule that, as
accelerate's, stands still where a step was skipped: losses, rates, which steps were skipped, and the scale of each. The
first scale is so large that some are. Its losses are those of another rounding than Weft's, so they are near and not
alike: float32 stands beside them.

    python make_scale.py [--out DIR]
"""

import argparse
import json
import math
import pathlib
import random

import torch
import transformers
from transformers import LlamaForCausalLM

import make_llama

HERE = pathlib.Path(__file__).resolve().parent
DEFAULTS = dict(init=65536.0, growth=2.0, backoff=0.5, interval=2000)
MODEL, STEPS, WARMUP, FIRST, INTERVAL = "llama-tied", 14, 2, 2.0 ** 20, 3


def made_up(seed, n, rate):
    draw = random.Random(seed)
    return "".join("0" if draw.random() < rate else "1" for _ in range(n))


CASES = [
    dict(DEFAULTS, finite="1" * 5 + "0" + "1" * 4),
    dict(DEFAULTS, finite="0" * 16 + "1" * 3),
    dict(DEFAULTS, finite="1" * 4002),
    dict(DEFAULTS, interval=3, finite=made_up(7, 200, 0.15)),
    dict(DEFAULTS, interval=1, finite=made_up(8, 120, 0.5)),
    dict(init=1000.0, growth=1.5, backoff=0.7, interval=2, finite=made_up(9, 300, 0.3)),
    dict(init=1e30, growth=2.0, backoff=0.5, interval=1, finite="1" * 40),  # the largest scale in fp32
    dict(init=3.3, growth=1.1, backoff=0.9, interval=4, finite=made_up(10, 400, 0.1)),
]


class Counting(torch.optim.SGD):
    made = 0

    def step(self, *args, **kwargs):
        self.made += 1
        return super().step(*args, **kwargs)


def scaler_of(case):
    return torch.amp.GradScaler("cpu", init_scale=case["init"], growth_factor=case["growth"],
                                backoff_factor=case["backoff"], growth_interval=case["interval"])


def follow(case):
    scaler, p = scaler_of(case), torch.nn.Parameter(torch.zeros(3))
    optimizer, scales, made = Counting([p], lr=0.0), [], ""
    for finite in case["finite"]:
        scaler.scale(p.sum() * 0.0)  # creates the scale's tensor
        scales.append(scaler.get_scale())
        p.grad = torch.full((3,), 1.0 if finite == "1" else math.inf)
        before = optimizer.made
        scaler.step(optimizer)
        made += str(optimizer.made - before)
        scaler.update()
    assert made == case["finite"]
    return scales + [scaler.get_scale()], optimizer.made


def changes(scales):
    """[[step from 1, scale], ...]: where it is another one than in the step before; one past the last as well."""
    return [[s, x] for s, x in enumerate(scales, 1) if s == 1 or x != scales[s - 2]]


def train(where, batch, count, half):
    model = LlamaForCausalLM.from_pretrained(where, dtype=torch.float32, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False, **make_llama.ADAMW)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP, STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=FIRST, growth_interval=INTERVAL, enabled=half)
    out = dict(loss=[], rate=[], scale=[], skipped=[])
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            logits = make_llama.logits_packed(model, batch)
        mean = make_llama.losses(logits.float(), batch)[1] / count
        scaler.scale(mean).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), make_llama.CLIP, foreach=False)
        out["loss"].append(mean.item())
        out["rate"].append(float(optimizer.param_groups[0]["lr"]))
        out["scale"].append(scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        out["skipped"].append(half and scaler.get_scale() < out["scale"][-1])
        if not out["skipped"][-1]:
            schedule.step()
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    cases = []
    for case in CASES:
        scales, made = follow(case)
        cases.append(dict(case, made=made, changes=changes(scales)))
    batch, _ = make_llama.make_batch(make_llama.MODELS[MODEL])
    count = int((batch["weights"] != 0).sum())
    half, single = train(HERE / MODEL, batch, count, True), train(HERE / MODEL, batch, count, False)
    assert any(half["skipped"]) and not all(half["skipped"][2:])
    run = dict(model=MODEL, first=FIRST, interval=INTERVAL, warmup=WARMUP, clip=make_llama.CLIP, steps=STEPS,
               lr=make_llama.ADAMW["lr"], fp32_loss=single["loss"], **half)
    head = json.dumps(dict(
        about="finite: a digit a step, 0 where a gradient is infinite; changes: [step from 1, scale it has] where that "
              "changes, after the last step too; made: updates", torch=torch.__version__.split("+")[0],
        transformers=transformers.__version__))
    lines = ",\n".join("  " + json.dumps(c) for c in cases)
    path = args.out / "loss_scale.json"
    path.write_text(head[:-1] + ', "cases": [\n' + lines + '\n], "run":\n  ' + json.dumps(run) + "}\n")
    json.loads(path.read_text())
    print(f"loss_scale: {len(cases)} cases, {path.stat().st_size} bytes; {sum(half['skipped'])} of {STEPS} steps "
          f"skipped, loss {half['loss'][-1]:.4f}, in float32 {single['loss'][-1]:.4f}")


if __name__ == "__main__":
    main()
