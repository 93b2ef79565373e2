#!/usr/bin/env python3
"""Makes optim/: where PyTorch's own SGD and AdamW, run in double, have brought a few tensors after 100 updates.

The gradients are not stored: `gradient` below is a formula of integers and powers of two, so that a C program gets
the same fp32 values bit for bit. It is written down in optim.json, with values to check against in the tensors.

    python make_optim.py [--out DIR]
"""

import argparse
import json
import math
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 100
WARMUP = 10
CHECKED = [1, 2, 57, 100]  # steps whose gradients are stored

# name -> (shape, scale of the gradient, every 13th element without one). The third tensor's gradients are as
# small as AdamW's eps, so that sqrt(v) + eps and sqrt(v + eps^2) differ.
TENSORS = {
    "embed.weight": ((11, 17), 1.0, False),
    "norm.weight": ((23,), 2.0**-8, False),
    "out.weight": ((7, 5, 3), 2.0**-24, True),
    "single": ((1,), 1.0, False),
}

CASES = {
    "sgd": dict(optimizer="sgd", lr=0.05),
    "sgd_momentum": dict(optimizer="sgd", lr=0.05, momentum=0.9),
    "sgd_nesterov": dict(optimizer="sgd", lr=0.05, momentum=0.9, nesterov=True),
    "sgd_decay": dict(optimizer="sgd", lr=0.05, weight_decay=0.1),
    "sgd_nesterov_decay": dict(optimizer="sgd", lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.01),
    "adamw": dict(optimizer="adamw", lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0),
    "adamw_decay": dict(optimizer="adamw", lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1),
    "adamw_other": dict(optimizer="adamw", lr=3e-3, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.01),
    "adamw_exempt": dict(optimizer="adamw", lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1,
                         no_decay=["norm.weight"]),
}

FORMULA = [
    "all of it in unsigned 32-bit arithmetic, k = number of the tensor (from 0, in the order of `tensors`), "
    "i = row-major index of the element, s = step from 1",
    "x = k * 0x9E3779B1 + i * 0x85EBCA77 + s * 0xC2B2AE3D",
    "x ^= x >> 16; x *= 0x7FEB352D; x ^= x >> 15; x *= 0x846CA68B; x ^= x >> 16",
    "u(k, i, s) = (int32)(x >> 9) - 4194304",
    "gradient = (float)(u(k, i, 0) + u(k, i, s)) * 2^-22 * scale(k): exact in fp32",
    "gradient = 0 where the tensor has holes and i % 13 == 5",
]


def u(k, i, s):
    """A signed 23-bit number from (tensor, element, step); i is an array."""
    word = lambda n: np.uint32(n & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        x = word(k * 0x9E3779B1) + i.astype(np.uint32) * word(0x85EBCA77) + word(s * 0xC2B2AE3D)
        x ^= x >> np.uint32(16)
        x *= word(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x *= word(0x846CA68B)
        x ^= x >> np.uint32(16)
    return (x >> np.uint32(9)).astype(np.int64) - 4194304


def gradient(name, step):
    """fp32 gradient of a tensor at a step: a part that stays and a part that changes."""
    k = list(TENSORS).index(name)
    shape, scale, holes = TENSORS[name]
    i = np.arange(math.prod(shape))
    exact = (u(k, i, 0) + u(k, i, step)) * 2.0**-22 * scale
    if holes:
        exact[i % 13 == 5] = 0
    single = exact.astype(np.float32)
    assert (single.astype(np.float64) == exact).all()
    return torch.from_numpy(single).reshape(shape)


def start(name):
    k = list(TENSORS).index(name)
    shape = TENSORS[name][0]
    return torch.from_numpy((u(k, np.arange(math.prod(shape)), 1 << 20) * 2.0**-22).astype(np.float32)).reshape(shape)


def learning_rate(base, step):
    """Warm-up from 0, then a cosine to 0; the first update therefore has a rate of 0 and still moves the state."""
    s = step - 1
    if s < WARMUP:
        return base * s / WARMUP
    return base * 0.5 * (1 + math.cos(math.pi * (s - WARMUP) / (STEPS - WARMUP)))


def make_optimizer(case, params):
    exempt = case.get("no_decay", [])
    decay = case.get("weight_decay", 0.0)
    groups = [dict(params=[p], weight_decay=0.0 if name in exempt else decay) for name, p in params.items()]
    if case["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=case["lr"], momentum=case.get("momentum", 0.0),
                               nesterov=case.get("nesterov", False), foreach=False)
    return torch.optim.AdamW(groups, lr=case["lr"], betas=(case["beta1"], case["beta2"]), eps=case["eps"],
                             foreach=False)


def run(case, dtype):
    """The tensors and the optimizer's state after STEPS updates, and the rate of each update."""
    params = {name: torch.nn.Parameter(start(name).to(dtype)) for name in TENSORS}
    optimizer = make_optimizer(case, params)
    rates = [learning_rate(case["lr"], step) for step in range(1, STEPS + 1)]
    for step, rate in enumerate(rates, 1):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, p in params.items():
            p.grad = gradient(name, step).to(dtype)
        optimizer.step()
    out = {"lr": torch.tensor(rates, dtype=torch.float64)}
    for name, p in params.items():
        out["final." + name] = p.detach().clone()
        for key, value in optimizer.state[p].items():
            if key != "step" and value is not None:
                out[f"{key}.{name}"] = value.clone()
    return out


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-300)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    where = parser.parse_args().out / "optim"
    where.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)

    tensors = {"start." + name: start(name) for name in TENSORS}
    for name in TENSORS:
        tensors["gradient." + name] = torch.stack([gradient(name, s) for s in CHECKED])
    for label, case in CASES.items():
        exact, single = run(case, torch.float64), run(case, torch.float32)
        for key, value in exact.items():
            tensors[f"{label}.{key}"] = value
        worst = max(relative(single[k], exact[k]) for k in exact if k.startswith("final."))
        moved = [f"{relative(exact['final.' + n], start(n)):.1e}" for n in TENSORS]
        print(f"{label}: moved by {', '.join(moved)}; float32 PyTorch is off by {worst:.1e}")
        assert worst < 2e-6
    path = where / "optim.safetensors"
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, path)
    path.chmod(0o644)
    back = load_file(path)
    assert back.keys() == tensors.keys() and all(torch.equal(back[k], tensors[k]) for k in back)
    assert all(torch.isfinite(v).all() for v in back.values())

    cases = [dict(name=label, **case) for label, case in CASES.items()]
    meta = dict(
        about="PyTorch's own SGD and AdamW in float64, fp32 starts and gradients; decay on all tensors but those in "
              "no_decay. Tensors: start.T (F32), gradient.T (F32, one row per step in gradient_steps), "
              "CASE.lr (F64, the rate of each update), CASE.final.T and CASE.<state>.T (F64)",
        steps=STEPS, gradient=FORMULA, gradient_steps=CHECKED,
        tensors=[dict(name=n, shape=list(shape), scale=scale, holes=holes)
                 for n, (shape, scale, holes) in TENSORS.items()],
        cases=cases, torch=torch.__version__.split("+")[0])
    (where / "optim.json").write_text(json.dumps(meta, indent=1) + "\n")
    print(f"optim: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
