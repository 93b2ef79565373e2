#!/usr/bin/env python3
"""Makes bitsandbytes-*/: small random LLaMA models that transformers has packed with bitsandbytes and saved, each with
the logits that it gets from the directory when it reads it again, computing in fp32.

The logits are those of the numbers that the codes stand for. bitsandbytes itself rounds these to the type that the model
had before it was packed, or, of int8, what they are multiplied with to int8; that its own logits are near is looked at.

    python make_bitsandbytes.py [--only bitsandbytes-nf4] [--out DIR]
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

import bitsandbytes
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from make_llama import logits_packed, losses, make_batch, write_model  # noqa: E402

NF4 = dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
           bnb_4bit_compute_dtype=torch.float32)
ROWS = [[(8, None), (5, None)], [(16, None)]]


def spec(seed, hidden, head, intermediate, layers):
    """With the vocabulary of the tokenizer in configs/chess, so that the models can be trained and spoken with."""
    return dict(seed=seed, std=0.15, dtype="bfloat16", spelling="new", shard=None, context=16, rows=ROWS,
                config=dict(vocab_size=521, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=head, max_position_embeddings=128,
                            rms_norm_eps=1e-5, tie_word_embeddings=True, rope_theta=10000.0))


# A matrix of two groups of 16,384 numbers, with an unpacked linear; scales without double quantization;
# matrices with partial blocks, codes in 16-bit elements, several files; int8.
MODELS = {
    "bitsandbytes-nf4": dict(spec(31, 64, 16, 272, 1), shards=None,
                             packed=dict(NF4, llm_int8_skip_modules=["lm_head", "o_proj"])),
    "bitsandbytes-nf4x64": dict(spec(34, 40, 10, 72, 2), shards=None,
                                packed=dict(NF4, bnb_4bit_use_double_quant=False, llm_int8_skip_modules=["lm_head"])),
    "bitsandbytes-storage": dict(spec(32, 40, 10, 72, 2), shards="20KB",
                                 packed=dict(NF4, bnb_4bit_quant_storage=torch.bfloat16)),
    "bitsandbytes-int8": dict(spec(33, 64, 16, 128, 1), shards=None, packed=dict(load_in_8bit=True)),
}


def read(where):
    """Without a layout of processors with AVX512-BF16, which takes rows of whole blocks alone."""
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, device_map="cpu")
    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            module.support_avx512bf16_for_cpu = False
    return model


def stands_for(module):
    """The numbers of 32 bits that a packed linear's codes stand for."""
    if isinstance(module, bitsandbytes.nn.Linear4bit):
        module.weight.quant_state.dtype = torch.float32
        return bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
    return module.weight.CB.float() * (module.weight.SCB / 127)[:, None]


def in_numbers(numbers, packed):
    """The model of numbers, computing in fp32, with what codes stand for in place of its linears."""
    model = AutoModelForCausalLM.from_pretrained(numbers, dtype=torch.float32)
    plain = dict(model.named_modules())
    for name, module in packed.named_modules():
        if isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)):
            plain[name].weight.data = stands_for(module)
    return model


def make(name, where):
    what = MODELS[name]
    batch, _ = make_batch(what)
    numbers = pathlib.Path(tempfile.mkdtemp())
    write_model(what, numbers)
    shutil.rmtree(where, ignore_errors=True)
    packed = AutoModelForCausalLM.from_pretrained(numbers, quantization_config=BitsAndBytesConfig(**what["packed"]),
                                                  dtype=getattr(torch, what["dtype"]), device_map="cpu")
    packed.save_pretrained(where, **(dict(max_shard_size=what["shards"]) if what["shards"] else {}))
    with torch.no_grad():
        plain = in_numbers(numbers, read(where))
        own, logits = logits_packed(read(where), batch), logits_packed(plain, batch)
        apart = (own - logits)[batch["weights"] > 0].norm() / logits[batch["weights"] > 0].norm()
        print(f"{name}: logits of bitsandbytes' own products are {apart:.1e} of their norm apart")
        assert apart < 0.03
    _, total = losses(logits.double(), batch)
    count = (batch["weights"] > 0).sum().reshape(1)
    save_file(dict(batch, count=count, logits=logits.float().contiguous(), loss=total.reshape(1)),
              where / "expected.safetensors")
    for file in where.iterdir():
        file.chmod(0o644)
    shutil.rmtree(numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="another directory, to compare")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in [args.only] if args.only else MODELS:
        make(name, args.out / name)


if __name__ == "__main__":
    main()
