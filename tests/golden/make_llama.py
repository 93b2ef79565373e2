#!/usr/bin/env python3
"""Makes llama-*/: tiny random LLaMA models as Hugging Face directories, each with what a right implementation gets.

The oracle is the model of `transformers` computing in double. Two of its modules fall back to float32 whatever the
model's dtype is (RMSNorm and the rotary tables); `in_double` replaces their forward by the same formula in double.
Nothing here knows how Weft works: packed rows are an explicit additive mask and explicit position ids, and are
compared with the same documents run one by one before anything is written.

    python make_llama.py [--only llama-tied] [--out DIR]
"""

import argparse
import contextlib
import json
import pathlib
import shutil

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

HERE = pathlib.Path(__file__).resolve().parent
ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
CLIP = 0.5
STEPS = 10

# A sequence is a list of documents; a document is (number of inputs, weights of its targets or None for all
# 1). The rest of a sequence is padding: id 0, target 0, weight 0, a document of its own.
MODELS = {
    "llama-tied": dict(
        about="tied, plain multi-head attention, whole rows; config.json as transformers 5 writes it, fp32 file",
        seed=101, std=0.2, dtype="float32", spelling="new", shard=None, context=17,
        config=dict(vocab_size=97, hidden_size=24, intermediate_size=41, num_hidden_layers=3, num_attention_heads=4,
                    num_key_value_heads=4, max_position_embeddings=32, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    rope_theta=10000.0),
        rows=[[(17, None)], [(17, None)], [(17, None)]],
    ),
    "llama-gqa": dict(
        about="untied, 6 heads on 2 key-value heads of a width of their own (10, not 42/6), packed rows with padding; "
              "config.json in the older spelling, fp32 file",
        seed=202, std=0.15, dtype="float32", spelling="old", shard=None, context=21,
        config=dict(vocab_size=131, hidden_size=42, intermediate_size=72, num_hidden_layers=2, num_attention_heads=6,
                    num_key_value_heads=2, head_dim=10, max_position_embeddings=64, rms_norm_eps=1e-5,
                    tie_word_embeddings=False, rope_theta=500000.0),
        rows=[[(8, None), (5, None), (6, None)], [(21, None)], [(1, None), (2, None), (3, None), (4, None)]],
    ),
    "llama-bf16": dict(
        about="untied, bf16 in three files with an index, packed rows, weights of 0, 0.5, 1 and 2; "
              "config.json as transformers 5 writes it",
        seed=303, std=0.2, dtype="bfloat16", spelling="new", shard="20KB", context=16,
        config=dict(vocab_size=89, hidden_size=32, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=48, rms_norm_eps=1e-5, tie_word_embeddings=False,
                    rope_theta=10000.0),
        rows=[[(7, [0, 0, 0.5, 0.5, 1, 1, 2]), (9, [1, 0.5, 1, 0.5, 1, 0, 1, 1, 1])],
              [(12, [0, 0, 0, 0, 1, 1, 1, 1, 0.5, 0.5, 0.5, 2])]],
    ),
    "llama-fp16": dict(
        about="tied, 5 heads on 1 key-value head, fp16 file, longer rows, masked prompts; config.json in the older "
              "spelling, without head_dim",
        seed=404, std=0.2, dtype="float16", spelling="old", shard=None, context=40,
        config=dict(vocab_size=61, hidden_size=30, intermediate_size=51, num_hidden_layers=2, num_attention_heads=5,
                    num_key_value_heads=1, max_position_embeddings=40, rms_norm_eps=1e-6,
                    tie_word_embeddings=True, rope_theta=20000.0),
        rows=[[(40, [0] * 11 + [1] * 29)], [(33, [0] * 5 + [1] * 28)]],
    ),
    "llama-pad": dict(
        about="tied, with a pad_token_id that also occurs in the text: its row learns from the head alone; fp32 file",
        seed=507, std=0.2, dtype="float32", spelling="new", shard=None, context=19,
        config=dict(vocab_size=11, hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2,
                    num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5, tie_word_embeddings=True,
                    rope_theta=10000.0, pad_token_id=3),
        rows=[[(19, None)], [(11, None), (5, None)]],
    ),
}


@contextlib.contextmanager
def in_double():
    """RMSNorm and rotary tables in the dtype of their input instead of float32."""

    def rms_norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotary(self, x, position_ids):
        dim = self.config.head_dim
        power = torch.arange(0, dim, 2, dtype=x.dtype) / dim
        angle = position_ids[..., None].to(x.dtype) / self.config.rope_parameters["rope_theta"] ** power
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()

    norm_class, rotary_class = modeling_llama.LlamaRMSNorm, modeling_llama.LlamaRotaryEmbedding
    kept = norm_class.forward, rotary_class.forward
    norm_class.forward, rotary_class.forward = rms_norm, rotary
    try:
        yield
    finally:
        norm_class.forward, rotary_class.forward = kept


def write_model(spec, where):
    """Random weights, rounded to the file's dtype, saved by save_pretrained; config.json respelled where asked."""
    config = dict(spec["config"])
    theta = config.pop("rope_theta")
    config = LlamaConfig(**config, rope_parameters={"rope_type": "default", "rope_theta": theta},
                         bos_token_id=1, eos_token_id=2, dtype=spec["dtype"])
    model = LlamaForCausalLM(config)
    rng = torch.Generator().manual_seed(spec["seed"])
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=rng)
            p.copy_(1 + 0.2 * noise if p.dim() == 1 else spec["std"] * noise)
        if spec["dtype"] == "float16":  # only in fp16: subnormal numbers, which a reader must convert correctly
            tiny = torch.tensor([2.0**-24, -(2.0**-24), 3 * 2.0**-24, 2.0**-15, -(2.0**-15) * 1.5, 0.0])
            model.model.layers[0].self_attn.q_proj.weight[3, :6] = tiny
    shard = dict(max_shard_size=spec["shard"]) if spec["shard"] else {}
    model.to(getattr(torch, spec["dtype"])).save_pretrained(where, **shard)
    if spec["spelling"] == "old":
        spell_old(where / "config.json", keep_head_dim="head_dim" in spec["config"])
    for file in where.iterdir():
        file.chmod(0o644)


def spell_old(path, keep_head_dim):
    """config.json as transformers 4 wrote it: other names for two keys, and without what came later."""
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    later = ["mlp_bias", "pad_token_id", "transformers_version"] + ([] if keep_head_dim else ["head_dim"])
    for key in later:
        config.pop(key, None)
    path.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def make_batch(spec):
    """ids, targets, weights, starts: each [B, T]; and the documents as (row, begin, end)."""
    rng = torch.Generator().manual_seed(spec["seed"] + 1)
    shape = len(spec["rows"]), spec["context"]
    ids, targets, starts = (torch.zeros(shape, dtype=torch.int32) for _ in range(3))
    weights = torch.zeros(shape, dtype=torch.float32)
    documents = []
    for b, row in enumerate(spec["rows"]):
        at = 0
        for n, w in row:
            doc = torch.randint(0, spec["config"]["vocab_size"], (n + 1,), generator=rng, dtype=torch.int32)
            if n >= 8:  # the same id several times in a document: its embedding gradient is a sum
                doc[2:5] = doc[2]
            span = slice(at, at + n)
            ids[b, span], targets[b, span], starts[b, span] = doc[:-1], doc[1:], at
            weights[b, span] = torch.tensor(w if w else [1.0] * n)
            documents.append((b, at, at + n))
            at += n
        starts[b, at:] = at
    pad = spec["config"].get("pad_token_id")
    assert pad is None or (ids == pad).sum() > 2
    return dict(ids=ids, targets=targets, weights=weights, starts=starts), documents


def logits_packed(model, batch):
    """One forward over packed rows: position t sees keys starts[t]..t, its rotary position is t - starts[t]."""
    starts = batch["starts"].long()
    t = torch.arange(starts.shape[1])
    seen = (t[None, None, :] <= t[None, :, None]) & (t[None, None, :] >= starts[:, :, None])
    mask = torch.zeros(seen.shape, dtype=model.dtype).masked_fill(~seen, torch.finfo(model.dtype).min)
    return model(input_ids=batch["ids"].long(), attention_mask=mask[:, None], position_ids=t[None, :] - starts,
                 use_cache=False).logits


def losses(logits, batch):
    """Cross entropy of each position [B, T], and the sum over targets of weight times that."""
    each = F.cross_entropy(logits.flatten(0, 1), batch["targets"].long().flatten(), reduction="none")
    each = each.view(batch["targets"].shape)
    return each, (each * batch["weights"].to(each.dtype)).sum()


def check_config(loaded, asked):
    """The config.json that was written, in whichever spelling, says what was asked for."""
    for key, value in asked.items():
        found = loaded.rope_parameters[key] if key == "rope_theta" else getattr(loaded, key)
        assert found == value, (key, found, value)
    assert loaded.rope_parameters["rope_type"] == "default"


def check_separate(model, batch, documents, logits):
    """Each document alone, with nothing but transformers' own causal mask, gives the packed logits."""
    worst = 0.0
    for b, begin, end in documents:
        alone = model(input_ids=batch["ids"][b:b + 1, begin:end].long(), use_cache=False).logits[0]
        worst = max(worst, (alone - logits[b, begin:end]).abs().max().item())
    return worst


def run(model, batch, documents, forward=logits_packed):
    """Everything expected of `model` on `batch`, in the model's dtype; changes the model (ten steps)."""
    out = {}
    logits = forward(model, batch)
    each, total = losses(logits, batch)
    out["logits"], out["token_loss"], out["loss_sum"] = logits.detach(), each.detach(), total.detach().reshape(1)
    with torch.no_grad():
        apart = check_separate(model, batch, documents, logits)
    total.backward()
    for name, p in model.named_parameters():  # tied storage occurs once, under the embedding's name
        out["grad." + name] = p.grad.clone()

    count = int((batch["weights"] != 0).sum())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False, **ADAMW)
    kept = {"loss": [], "norm": []}
    for _ in range(STEPS):
        optimizer.zero_grad()
        mean = losses(forward(model, batch), batch)[1] / count
        mean.backward()
        kept["norm"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=False).item())
        kept["loss"].append(mean.item())
        optimizer.step()
    for name, p in model.named_parameters():
        out["adamw10." + name] = p.detach().clone()
    for key, values in kept.items():
        out["adamw10." + key] = torch.tensor(values, dtype=torch.float64)
    return out, count, apart


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-300)).item()


def compare(single, double):
    """How far plain float32 transformers is from the oracle: what a tolerance must leave room for."""
    worst = lambda prefix: max(relative(single[k], double[k]) for k in double if k.startswith(prefix))
    return dict(logits_max_abs=(single["logits"].double() - double["logits"]).abs().max().item(),
                loss_rel=relative(single["loss_sum"], double["loss_sum"]), grad_rel=worst("grad."),
                adamw10_rel=worst("adamw10."))


def make(name, spec, where):
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    write_model(spec, where)
    batch, documents = make_batch(spec)

    load = lambda: LlamaForCausalLM.from_pretrained(where, dtype=torch.float32)
    check_config(load().config, spec["config"])
    plain, _, apart32 = run(load(), batch, documents)
    with in_double():
        model = load().double()
        at_start = {k: v.detach().clone() for k, v in model.named_parameters()}
        expected, count, apart64 = run(model, batch, documents)
    assert apart64 < 1e-12 and apart32 < 2e-5, (apart64, apart32)
    moved = min(relative(expected["adamw10." + k], v) for k, v in at_start.items())
    assert moved > 1e-4, moved

    tensors = dict(batch)
    for key, value in expected.items():
        tensors[key] = value if key in ("loss_sum", "adamw10.loss", "adamw10.norm") else value.float()
    tensors["count"] = torch.tensor([count], dtype=torch.int64)
    exact = "model.layers.0.self_attn.q_proj.weight"
    tensors["start." + exact] = at_start[exact].float()
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, where / "expected.safetensors")
    (where / "expected.safetensors").chmod(0o644)

    meta = dict(
        about=spec["about"], seed=spec["seed"], shape=list(batch["ids"].shape), count=count,
        loss_sum=expected["loss_sum"].item(), loss_mean=expected["loss_sum"].item() / count,
        computed_in="float64", stored_as="float32; loss_sum, adamw10.loss and adamw10.norm float64",
        adamw=dict(lr=ADAMW["lr"], beta1=0.9, beta2=0.999, eps=ADAMW["eps"], weight_decay=ADAMW["weight_decay"],
                   clip=CLIP, steps=STEPS),
        parameters=[k for k, _ in model.named_parameters()],
        torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    (where / "expected.json").write_text(json.dumps(meta, indent=1) + "\n")
    verify(where, tensors)
    size = sum(f.stat().st_size for f in where.iterdir())
    print(f"{name}: {size} bytes, packed against separate {apart64:.1e} (float32 {apart32:.1e}); norm "
          f"{tensors['adamw10.norm'][0]:.3f} to {tensors['adamw10.norm'][-1]:.3f}; loss "
          f"{tensors['adamw10.loss'][0]:.4f} to {tensors['adamw10.loss'][-1]:.4f}; float32 transformers is off by "
          + ", ".join(f"{k} {v:.1e}" for k, v in compare(plain, expected).items()))


def verify(where, tensors):
    """What lies on disk loads back, is finite, and agrees with itself."""
    back = load_file(where / "expected.safetensors")
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[k], tensors[k]) and torch.isfinite(back[k].double()).all() for k in back)
    assert abs((back["token_loss"].double() * back["weights"]).sum() / back["loss_sum"] - 1) < 1e-6
    assert abs(back["adamw10.loss"][0] * back["count"] / back["loss_sum"] - 1) < 1e-12
    squares = sum((v.double() ** 2).sum() for k, v in back.items() if k.startswith("grad."))
    assert abs(squares.sqrt() / back["count"] / back["adamw10.norm"][0] - 1) < 1e-6
    assert all(f.stat().st_size < 400_000 for f in where.iterdir())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name, spec in MODELS.items():
        if args.only in (None, name):
            make(name, spec, args.out / name)


if __name__ == "__main__":
    main()
