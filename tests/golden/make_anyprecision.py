#!/usr/bin/env python3
"""Makes anyprecision.safetensors: where 100 updates of AdamW with Kahan's compensation bring the tensors of make_optim.py.

Written from the formulas of AnyPrecisionAdamW (torchdistX) and of Kahan's sum, in numpy, in fp32 with one rounding for each
operation; what is stored in bf16 is rounded once, when it is stored. So a C program that follows the same formulas gets the
same bits. The exact weights are kept beside them: the same updates in double, without any rounding of what is stored.

    python make_anyprecision.py [--out DIR]
"""

import argparse
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from make_optim import STEPS, TENSORS, gradient, learning_rate, start

HERE = pathlib.Path(__file__).resolve().parent
KEYS = dict(lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1)
# stored: weights, mean, mean square, compensation
CASES = {
    "kahan": dict(KEYS, stored=("bf16", "bf16", "bf16", "bf16")),
    "mixed": dict(KEYS, stored=("bf16", "fp32", "bf16", "fp32"), beta1=0.8, beta2=0.95, eps=1e-6, lr=1e-3),
    "plain": dict(KEYS, stored=("bf16", "bf16", "bf16", None)),
    "wide": dict(KEYS, stored=("fp32", "fp32", "fp32", "fp32")),
}
F32 = np.float32


def keep(x, kind):
    return torch.from_numpy(x).bfloat16().float().numpy() if kind == "bf16" else x


def updates(case, name):
    """Weight, mean, mean square and compensation after all updates, in fp32."""
    weights, mean, square, lost = case["stored"]
    w = keep(start(name).numpy().reshape(-1), weights)
    m, v, c = (np.zeros_like(w) for _ in range(3))
    for t in range(1, STEPS + 1):
        g, lr = gradient(name, t).numpy().reshape(-1), learning_rate(case["lr"], t)
        step, decay = F32(lr / (1 - case["beta1"] ** t)), F32(lr * case["weight_decay"])
        root = F32(1 / np.sqrt(1 - case["beta2"] ** t))
        m = m + F32(1 - case["beta1"]) * (g - m)
        v = v + F32(1 - case["beta2"]) * (g * g - v)
        moved = step * (m / (np.sqrt(v) * root + F32(case["eps"]))) + decay * w
        if lost is None:
            w = keep(w - moved, weights)
        else:
            c = c - moved
            after = keep(w + c, weights)
            c = keep(c + (w - after), lost)
            w = after
        m, v = keep(m, mean), keep(v, square)
        assert all(x.dtype == F32 for x in (w, m, v, c))
    return dict(final=w, exp_avg=m, exp_avg_sq=v, compensation=c)


def exact(case, name):
    w = start(name).numpy().reshape(-1).astype(np.float64)
    w = keep(w.astype(F32), case["stored"][0]).astype(np.float64)
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, STEPS + 1):
        g, lr = gradient(name, t).numpy().reshape(-1).astype(np.float64), learning_rate(case["lr"], t)
        m += (1 - case["beta1"]) * (g - m)
        v += (1 - case["beta2"]) * (g * g - v)
        root = np.sqrt(v / (1 - case["beta2"] ** t))
        w -= lr * (m / (1 - case["beta1"] ** t) / (root + case["eps"]) + case["weight_decay"] * w)
    return w


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    path = parser.parse_args().out / "anyprecision.safetensors"
    tensors = {}
    for label, case in CASES.items():
        tensors[f"{label}.lr"] = torch.tensor([learning_rate(case["lr"], t) for t in range(1, STEPS + 1)],
                                              dtype=torch.float64)
        for name in TENSORS:
            tensors[f"{label}.start.{name}"] = torch.from_numpy(
                keep(start(name).numpy().reshape(-1), case["stored"][0]))
            for key, value in updates(case, name).items():
                tensors[f"{label}.{key}.{name}"] = torch.from_numpy(value)
            tensors[f"{label}.exact.{name}"] = torch.from_numpy(exact(case, name))
    for label in CASES:
        def away(extra):
            off = [tensors[f"{label}.final.{n}"] + extra * tensors[f"{label}.compensation.{n}"]
                   - tensors[f"{label}.exact.{n}"] for n in TENSORS]
            return torch.cat(off).norm().item()
        print(f"{label}: weights are {away(0):.1e} off the exact ones, with what was taken away {away(1):.1e}")
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, path)
    path.chmod(0o644)
    back = load_file(path)
    assert all(torch.equal(back[k], v) and torch.isfinite(v).all() for k, v in tensors.items())
    print(f"anyprecision: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
