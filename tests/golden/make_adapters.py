#!/usr/bin/env python3
"""Makes adapter-*/: what adapters give on the models of make_llama.py, which must be there.

The oracle is peft's own module on the model of `transformers`, both computing in double, or, for what
peft has not, layers of torch. Adapters begin at random
numbers rather than as they would be fresh, so that nothing of them is zero. Each document runs by itself: what packing
changes is held by make_llama.py.

Prefixes and LLaMA-Adapter have PEFT's own files beside them, of the numbers that they begin at.

    python make_adapters.py [--only adapter-dora] [--out DIR]
"""

import argparse
import copy
import json
import pathlib
import re
import shutil

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from make_llama import ADAMW, CLIP, STEPS, in_double, losses

HERE = pathlib.Path(__file__).resolve().parent
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

ADAPTERS = {
    "adapter-dora": dict(
        base="llama-gqa", seed=11,
        config=lambda: peft.LoraConfig(r=3, lora_alpha=7, target_modules=LINEARS, use_dora=True, task_type="CAUSAL_LM")),
    "adapter-ia3": dict(
        base="llama-gqa", seed=12,
        config=lambda: peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"],
                                      feedforward_modules=["down_proj"], task_type="CAUSAL_LM")),
    "adapter-prefix": dict(
        base="llama-bf16", seed=13, files=True,
        config=lambda: peft.PrefixTuningConfig(num_virtual_tokens=5, task_type="CAUSAL_LM")),
    "adapter-llama-adapter": dict(
        base="llama-bf16", seed=14, files=True,
        config=lambda: peft.AdaptionPromptConfig(adapter_len=4, adapter_layers=1, task_type="CAUSAL_LM")),
    "adapter-vera": dict(
        base="llama-gqa", seed=15,
        config=lambda: peft.VeraConfig(r=5, target_modules=["q_proj", "v_proj", "down_proj"], projection_prng_key=3,
                                       task_type="CAUSAL_LM")),
}


class MlpHead(torch.nn.Module):
    """A head behind fully connected layers, with the names that Weft has for them."""

    def __init__(self, head, layers, width):
        super().__init__()
        n = head.in_features
        self.head = head
        self.fc = torch.nn.ModuleList(torch.nn.Linear(n if i == 0 else width, width) for i in range(layers))
        self.out = torch.nn.Linear(width, n)

    def forward(self, x):
        h = x
        for layer in self.fc:
            h = torch.nn.functional.gelu(layer(h))
        return self.head(x + self.out(h))


def with_mlp_head(layers, width):
    def wrap(model):
        model.requires_grad_(False)
        model.lm_head = MlpHead(model.lm_head, layers, width)
        return model
    return wrap


# PEFT lacks these: the oracle is a torch module around the head.
ADAPTERS["adapter-mlp-head"] = dict(base="llama-gqa", seed=16, wrap=with_mlp_head(2, 13))
ADAPTERS["adapter-mlp-head-tied"] = dict(base="llama-tied", seed=17, wrap=with_mlp_head(1, 24))


def begin(model, seed):
    """Trained numbers that are nowhere zero, and as far from their usual start as a few steps would bring them."""
    rng = torch.Generator().manual_seed(seed)
    noise = lambda p: torch.randn(p.shape, generator=rng)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            if "magnitude" in name:
                p.mul_(1 + 0.1 * noise(p))
            elif "ia3_l" in name:
                p.copy_(1 + 0.3 * noise(p))
            elif "vera_lambda" in name:
                p.copy_(0.5 + 0.2 * noise(p))
            elif "gate" in name:
                p.copy_(0.6 + 0.1 * noise(p))
            elif name.startswith("lm_head"):
                p.copy_(0.1 * noise(p))
            else:
                p.copy_((0.3 if "lora" in name else 0.7) * noise(p))


def weft_tensors(name, tensor, layers):
    """A trained tensor of peft's under the names that Weft has for it, and in its shapes."""
    name = name.removeprefix("base_model.model.").replace(".default", "")
    if "prompt_encoder" in name:  # (positions, layers * 2 * width): keys and values of a layer are adjacent
        parts = tensor.chunk(2 * layers, dim=1)
        return {f"model.layers.{i // 2}.self_attn.prefix_{'kv'[i % 2]}.weight": part for i, part in enumerate(parts)}
    if name.startswith("lm_head."):
        return {re.sub(r"^lm_head\.(fc\.)?", lambda m: "mlp_head.fc_" if m[1] else "mlp_head.", name): tensor}
    name = re.sub(r"\.weight$", "", name) + ".weight"
    if "ia3_l" in name or "adaption_gate" in name:
        tensor = tensor.flatten()
    if "adaption_prompt" in name:
        tensor = tensor[0]
    return {name: tensor}


def frozen(model):
    """VeRA's projections, which begin at random numbers and stay there: B whole, A for each width that reads it."""
    if not hasattr(getattr(model, "base_model", None), "vera_A"):
        return {}
    a, b = (getattr(model.base_model, "vera_" + k)["default"].detach() for k in "AB")
    widths = {m.in_features for m in model.modules() if hasattr(m, "vera_lambda_d")}
    return {"vera.vera_B.weight": b} | {f"vera.vera_A_{n}.weight": a[:, :n] for n in sorted(widths)}


def trained(model, layers, of):
    out = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            out.update(weft_tensors(name, of(p), layers))
    return out


def documents(batch):
    """(row, begin, end) of each that has a target."""
    starts = batch["starts"]
    for b in range(starts.shape[0]):
        for begin_ in starts[b].unique().tolist():
            at = (starts[b] == begin_).nonzero().flatten()
            if batch["weights"][b, at].any():
                yield b, int(at[0]), int(at[-1]) + 1


def logits_apart(model, batch, vocabulary):
    out = torch.zeros(*batch["ids"].shape, vocabulary, dtype=torch.float64)
    for b, begin_, end in documents(batch):
        out[b, begin_:end] = model(input_ids=batch["ids"][b:b + 1, begin_:end].long(), use_cache=False).logits[0]
    return out


def run(model, batch, count, layers):
    out = {"start." + k: v.clone() for k, v in trained(model, layers, lambda p: p.detach()).items()}
    out |= {"start." + k: v.clone() for k, v in frozen(model).items()}
    vocabulary = model.get_input_embeddings().num_embeddings
    logits = logits_apart(model, batch, vocabulary)
    total = losses(logits, batch)[1]
    out["logits"], out["loss_sum"] = logits.detach(), total.detach().reshape(1)
    total.backward()
    out.update({"grad." + k: v.clone() for k, v in trained(model, layers, lambda p: p.grad).items()})
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, foreach=False, **ADAMW)
    kept = {"loss": [], "norm": []}
    for _ in range(STEPS):
        optimizer.zero_grad()
        mean = losses(logits_apart(model, batch, vocabulary), batch)[1] / count
        mean.backward()
        kept["norm"].append(torch.nn.utils.clip_grad_norm_(parameters, CLIP, foreach=False).item())
        kept["loss"].append(mean.item())
        optimizer.step()
    out.update({"adamw10." + k: v.clone() for k, v in trained(model, layers, lambda p: p.detach()).items()})
    for key, values in kept.items():
        out["adamw10." + key] = torch.tensor(values, dtype=torch.float64)
    return out


def write_files(model, where):
    copy.deepcopy(model).float().save_pretrained(where)
    (where / "README.md").unlink()
    path = where / "adapter_config.json"
    config = json.loads(path.read_text()) | {"base_model_name_or_path": "base"}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make(name, spec, where):
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    base = HERE / spec["base"]
    known = load_file(base / "expected.safetensors")
    batch = {k: known[k] for k in ("ids", "targets", "weights", "starts")}
    count = int(known["count"][0])
    with in_double():
        model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
        model = spec["wrap"](model) if "wrap" in spec else peft.get_peft_model(model, spec["config"]())
        model.double()
        model.eval()
        begin(model, spec["seed"])
        if spec.get("files"):
            write_files(model, where)
        layers = model.config.num_hidden_layers
        expected = run(model, batch, count, layers)
    moved = min((v - expected["start." + k[8:]]).norm() for k, v in expected.items()
                if k.startswith("adamw10.") and "start." + k[8:] in expected)
    assert moved > 1e-4, moved
    tensors = dict(batch, count=torch.tensor([count], dtype=torch.int64))
    for key, value in expected.items():
        tensors[key] = value if key in ("loss_sum", "adamw10.loss", "adamw10.norm") else value.float()
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, where / "expected.safetensors")
    meta = dict(base=spec["base"], seed=spec["seed"], count=count, loss_sum=expected["loss_sum"].item(),
                trained=sorted(k[5:] for k in expected if k.startswith("grad.")), peft=peft.__version__,
                torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    (where / "expected.json").write_text(json.dumps(meta, indent=1) + "\n")
    for file in where.iterdir():
        file.chmod(0o644)
    assert all(torch.isfinite(v.double()).all() for v in tensors.values())
    print(f"{name}: loss {tensors['adamw10.loss'][0]:.4f} to {tensors['adamw10.loss'][-1]:.4f}; the base's "
          f"{known['loss_sum'][0] / count:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(ADAPTERS))
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name, spec in ADAPTERS.items():
        if args.only in (None, name):
            make(name, spec, args.out / name)


if __name__ == "__main__":
    main()
