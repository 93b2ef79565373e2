#!/usr/bin/env python3
"""Makes dynamic8.json: the two maps of 8-bit optimizer states as bitsandbytes has them, two blocks of numbers by their
nearest codes, and what bitsandbytes makes of these. (Its own quantize_blockwise takes another than the nearest one on a
CPU, where it looks numbers up in coarse steps.)

The numbers are a formula of integers and powers of two, which a C program gets bit for bit.

    python make_dynamic8.py [--out DIR]
"""

import argparse
import json
import pathlib

import torch
from bitsandbytes import functional as bnb

HERE = pathlib.Path(__file__).resolve().parent
N = 512  # two blocks


def number(i, signed):
    """Sizes over nine decades."""
    x = (i * 2654435761 + 12345) % 2**32
    x ^= x >> 15
    size = (x % 65521 + 1) * 2.0**-16 * 2.0 ** -(x // 65536 % 29)
    return -size if signed and x & 1 else size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = {}
    for name, signed in (("signed", True), ("unsigned", False)):
        values = bnb.create_dynamic_map(signed=signed)
        x = torch.tensor([number(i, signed) for i in range(N)], dtype=torch.float32)
        scales = x.reshape(-1, 256).abs().amax(1)
        quotient = (x.double().reshape(-1, 256) / scales.double()[:, None]).reshape(-1)
        away, codes = (quotient[:, None] - values.double()[None]).abs().sort(1)
        assert (away[:, 1] - away[:, 0] > 1e-6 * away[:, 1]).all()  # no value on an edge, where the last bit decides
        codes = codes[:, 0].to(torch.uint8)
        back = bnb.dequantize_blockwise(codes, absmax=scales, code=values, blocksize=256)
        out[name] = {
            "map": [float(v) for v in values],
            "scales": [float(v) for v in scales],
            "codes": [int(c) for c in codes],
            "back": [float(v) for v in back],
        }
    (parser.parse_args().out / "dynamic8.json").write_text(json.dumps(out) + "\n")


main()
