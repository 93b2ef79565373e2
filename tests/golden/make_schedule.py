#!/usr/bin/env python3
"""Makes schedule.json: the learning rate that update s (from 1) uses, by the schedules of transformers and PyTorch.

Each case is run through the library's own scheduler on an optimizer, and the rate read just before each step.

    python make_schedule.py [--out DIR]
"""

import argparse
import json
import math
import pathlib

import torch
import transformers
from torch.optim.lr_scheduler import LambdaLR, SequentialLR, StepLR

HERE = pathlib.Path(__file__).resolve().parent

CASES = [
    dict(schedule="constant", lr=1e-3, steps=12, warmup=0),
    dict(schedule="constant", lr=3e-4, steps=12, warmup=5),
    dict(schedule="constant", lr=1e-3, steps=5, warmup=8),
    dict(schedule="linear", lr=1e-3, steps=10, warmup=0),
    dict(schedule="linear", lr=2e-5, steps=100, warmup=7),
    dict(schedule="linear", lr=1e-3, steps=6, warmup=6),
    dict(schedule="linear", lr=1e-3, steps=1, warmup=0),
    dict(schedule="linear", lr=1e-3, steps=1, warmup=1),
    dict(schedule="cosine", lr=1e-3, steps=10, warmup=0),
    dict(schedule="cosine", lr=1e-5, steps=90, warmup=0.03),
    dict(schedule="cosine", lr=5e-4, steps=1000, warmup=100),
    dict(schedule="cosine", lr=5e-4, steps=4, warmup=6),
    dict(schedule="step", lr=1e-3, steps=25, warmup=0, gamma=0.85, every=5),
    dict(schedule="step", lr=1e-3, steps=20, warmup=4, gamma=0.5, every=3),
    dict(schedule="step", lr=2e-3, steps=12, warmup=0, gamma=0.1, every=1),
    # A ratio is a fraction of the steps, rounded up, in double: 0.07 * 100 is 7.000000000000001 there, hence
    # 8.
    dict(schedule="linear", lr=1e-3, steps=33, warmup=0.1),
    dict(schedule="linear", lr=1e-3, steps=30, warmup=0.1),
    dict(schedule="cosine", lr=1e-3, steps=100, warmup=0.07),
    dict(schedule="constant", lr=1e-3, steps=7, warmup=0.001),
    dict(schedule="step", lr=1e-3, steps=30, warmup=0.05, gamma=0.3, every=10),
]


def warmup_steps(case):
    return math.ceil(case["steps"] * case["warmup"]) if 0 < case["warmup"] < 1 else case["warmup"]


def make_scheduler(optimizer, case, warm):
    if case["schedule"] == "constant":
        return transformers.get_constant_schedule_with_warmup(optimizer, warm)
    if case["schedule"] == "linear":
        return transformers.get_linear_schedule_with_warmup(optimizer, warm, case["steps"])
    if case["schedule"] == "cosine":
        return transformers.get_cosine_schedule_with_warmup(optimizer, warm, case["steps"])
    if warm == 0:
        return StepLR(optimizer, case["every"], case["gamma"])
    # PyTorch's way to combine a warm-up with StepLR: the second schedule counts from its own start.
    rise = LambdaLR(optimizer, lambda s: s / warm)
    return SequentialLR(optimizer, [rise, StepLR(optimizer, case["every"], case["gamma"])], [warm])


def formula(case, warm, update):
    """The same in one place, for whoever reads this; main() holds it against the libraries."""
    s, n = update - 1, case["steps"]
    if s < warm:
        return case["lr"] * (s / warm)
    left = max(1, n - warm)
    factor = {
        "constant": lambda: 1.0,
        "linear": lambda: max(0.0, (n - s) / left),
        "cosine": lambda: max(0.0, 0.5 * (1 + math.cos(math.pi * (s - warm) / left))),
        "step": lambda: case["gamma"] ** ((s - warm) // case["every"]),
    }
    return case["lr"] * factor[case["schedule"]]()


def rates(case, warm):
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=case["lr"])
    scheduler = make_scheduler(optimizer, case, warm)
    p.grad = torch.zeros(1)
    for update in range(1, case["steps"] + 1):
        yield update, float(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


def keep(update, steps, warm):
    """All updates of a short run; of a long one the ends, the turn, and one in 13."""
    return steps <= 40 or update in (1, 2, steps - 1, steps) or abs(update - warm - 1) <= 1 or update % 13 == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    out = []
    for case in CASES:
        warm = warmup_steps(case)
        at = list(rates(case, warm))
        for update, rate in at:
            wanted = formula(case, warm, update)
            assert abs(rate - wanted) <= 1e-14 * case["lr"], (case, update, rate, wanted)
        out.append(dict(case, warmup_steps=warm, at=[[u, r] for u, r in at if keep(u, case["steps"], warm)]))
    lines = ",\n".join("  " + json.dumps(c) for c in out)
    head = json.dumps(dict(
        about="learning rate used by update s, s from 1: [[s, rate], ...]; warm-up from 0 over warmup_steps updates; a "
              "warm-up between 0 and 1 is a fraction of steps, rounded up; linear, cosine and step count from the end "
              "of the warm-up; step multiplies by gamma every `every` updates",
        torch=torch.__version__.split("+")[0], transformers=transformers.__version__))
    path = args.out / "schedule.json"
    path.write_text(head[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    assert len(json.loads(path.read_text())["cases"]) == len(CASES)
    print(f"schedule: {len(CASES)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
