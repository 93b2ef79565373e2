#!/usr/bin/env python3
"""Makes packed.safetensors: matrices, and what bitsandbytes and PyTorch make of their numbers: nf4 with double
quantisation and without, int8 by rows, fp8 e4m3 by blocks.

A scale's code is that of the nearest level, as bitsandbytes' CUDA kernels give it. Its library for CPUs looks levels up
in a table of 65,536 steps, which in one of some 600 scales gives the next one; for fp64 it looks at all levels.

    python make_packed.py [--out DIR]
"""

import argparse
import pathlib

import torch
from bitsandbytes import functional
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
FP8_BLOCK = 128
FP8_MOST = 448.0

# Two groups of 16,384 numbers, the last one partial, with an odd number of numbers; complete blocks; a
# minimal matrix.
SHAPES = {"odd": (57, 291), "even": (6, 192), "small": (1, 5)}


def matrix(seed, rows, columns):
    """Normal, in rows of different sizes, with one large number and a stretch of zeros, as bf16 holds them."""
    numbers = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.02
    numbers *= 2.0 ** (torch.arange(rows) % 5 - 2).unsqueeze(1)
    flat = numbers.view(-1)
    flat[flat.numel() // 3] = 0.25
    if flat.numel() > 400:
        flat[128:256] = 0
    return numbers.to(torch.bfloat16)


def nf4(numbers):
    codes, state = functional.quantize_4bit(numbers.float(), blocksize=64, quant_type="nf4")
    added = state.absmax.mean()
    levels = functional.create_dynamic_map()
    scales, scale = torch.ops.bitsandbytes.quantize_blockwise((state.absmax - added).double(), levels, 256)
    state.absmax = levels[scales.long()] * scale.repeat_interleave(256)[: scales.numel()] + added
    back = functional.dequantize_4bit(codes, state)
    assert back.shape == numbers.shape and (back - numbers.float()).abs().max() < 0.2 * numbers.float().abs().max()
    return {"codes": codes.reshape(-1), "scales": scales, "scale": scale, "added": added.reshape(1),
            "numbers": back}


def nf4x64(numbers):
    codes, state = functional.quantize_4bit(numbers.float(), blocksize=64, quant_type="nf4")
    return {"scales": state.absmax, "numbers": functional.dequantize_4bit(codes, state)}


def int8(numbers):
    codes, largest, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(numbers.float())
    return {"codes": codes.view(torch.uint8), "largest": largest}


def fp8(numbers):
    flat = numbers.reshape(-1).float()
    codes, scales = [], []
    for begin in range(0, flat.numel(), FP8_BLOCK):
        block = flat[begin : begin + FP8_BLOCK]
        scale = block.abs().max() / FP8_MOST
        over = block / scale if scale > 0 else torch.zeros_like(block)
        codes.append(over.clamp(-FP8_MOST, FP8_MOST).to(torch.float8_e4m3fn))
        scales.append(scale.reshape(1))
    codes, scales = torch.cat(codes), torch.cat(scales)
    back = codes.float() * scales.repeat_interleave(FP8_BLOCK)[: flat.numel()]
    return {"codes": codes.view(torch.uint8), "scales": scales, "numbers": back.reshape(numbers.shape)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="another directory, to compare")
    out = parser.parse_args().out / "packed.safetensors"
    torch.set_num_threads(1)
    tensors = {"nf4_levels": functional.get_4bit_type("nf4", device="cpu"),
               "dynamic_levels": functional.create_dynamic_map()}
    for seed, (name, shape) in enumerate(SHAPES.items()):
        numbers = matrix(seed, *shape)
        tensors[name] = numbers
        for kind, pack in {"nf4": nf4, "nf4x64": nf4x64, "int8": int8, "fp8": fp8}.items():
            for part, tensor in pack(numbers).items():
                tensors[f"{name}.{kind}.{part}"] = tensor.contiguous()
    save_file(tensors, out)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in load_file(out).items())
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
