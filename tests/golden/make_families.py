#!/usr/bin/env python3
"""Makes family-*/: tiny random models of the families that plugins/model/decoder computes, and gpt2/: one of GPT-2, which
sdk/template/model-gpt2 computes; each with what a right implementation gets, as make_llama.py has it for LLaMA, and 40
greedy tokens beside that.

The oracle is the model of `transformers` computing in double, with eager attention; its norms and rotary tables stay in
float32, where it always has them. Packed rows are explicit masks, one for each sort of layer, and explicit position ids;
they are compared with the same documents run one by one under transformers' own masks.

    python make_families.py [--only family-qwen2] [--out DIR]
"""

import argparse
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_llama import ADAMW, CLIP, STEPS, compare, make_batch, relative, run, verify

HERE = pathlib.Path(__file__).resolve().parent
NEW_TOKENS = 40
NOISE = 1e-10  # gradients below it
ROWS = [[(7, None), (11, None)], [(18, [0] * 3 + [0.5] + [1] * 14)], [(3, None), (9, None)]]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 50000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
SIZES = dict(vocab_size=19, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, pad_token_id=None, bos_token_id=None,
             eos_token_id=None)

# GPT-2 has its own names for its sizes; no dropout here.
GPT2 = dict(vocab_size=19, n_embd=16, n_head=2, n_layer=2, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            pad_token_id=None, bos_token_id=None, eos_token_id=None)

# old: config.json in the spelling of transformers 4. sizes: replaces SIZES.
MODELS = {
    "family-llama3": dict(about="LLaMA 3: scaled rotary positions, biases", old=True,
                          config=dict(model_type="llama", rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True,
                                      head_dim=8)),
    "family-mistral": dict(about="Mistral: a window in all layers, heads of a width of their own", old=True,
                           config=dict(model_type="mistral", sliding_window=5, head_dim=6)),
    "family-qwen2": dict(about="Qwen2: biases of q, k and v, tied, a window from the second layer on, YaRN", old=False,
                         config=dict(model_type="qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1,
                                     num_hidden_layers=3, tie_word_embeddings=True, rope_parameters=YARN)),
    "family-qwen3": dict(about="Qwen3: norms of each head, heads of a width of their own", old=True,
                         config=dict(model_type="qwen3", head_dim=6, rope_parameters={"rope_type": "default",
                                                                                      "rope_theta": 1e6})),
    "family-smollm3": dict(about="SmolLM3: a layer without rotary positions, which has a window, tied", old=False,
                           config=dict(model_type="smollm3", no_rope_layer_interval=2, use_sliding_window=True,
                                       sliding_window=6, tie_word_embeddings=True)),
    "family-olmo2": dict(about="OLMo 2: norms after each part and over all heads, a padding id", old=True,
                         config=dict(model_type="olmo2", pad_token_id=1)),
    "family-gemma": dict(about="Gemma: GeGLU, scaled embeddings, norms from one, tied", old=True,
                         config=dict(model_type="gemma", head_dim=6, tie_word_embeddings=True, pad_token_id=0)),
    "family-gemma2": dict(about="Gemma 2: caps of scores and logits, norms around each part, every other layer a window",
                          old=True, config=dict(model_type="gemma2", head_dim=6, tie_word_embeddings=True,
                                                sliding_window=5, query_pre_attn_scalar=9, attn_logit_softcapping=3.0,
                                                final_logit_softcapping=4.0)),
    "family-gemma3": dict(about="Gemma 3: norms of each head, windows with a rotary base of their own, linear scaling of "
                                "the other one", old=False,
                          config=dict(model_type="gemma3_text", head_dim=6, tie_word_embeddings=True, sliding_window=4,
                                      query_pre_attn_scalar=7, num_hidden_layers=3,
                                      layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                                      rope_parameters={
                                          "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                                          "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "family-phi3": dict(about="Phi-3: fused weights, LongRoPE on half of each head, a window", old=True,
                        config=dict(model_type="phi3", hidden_size=32, intermediate_size=10, sliding_window=7,
                                    original_max_position_embeddings=2,
                                    rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0,
                                                     "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.5],
                                                     "long_factor": [2.0, 3.0]})),
    "gpt2": dict(about="GPT-2: learned positions, LayerNorm, GELU by tanh, transposed and fused weights, tied", old=False,
                 sizes=GPT2, config=dict(model_type="gpt2")),
}


def asked_for(spec):
    return dict(spec.get("sizes", SIZES), **spec["config"])


def make_config(spec):
    asked = asked_for(spec)
    return AutoConfig.for_model(asked.pop("model_type"), dtype="float32", **asked)


def write_model(name, spec, where, attempt):
    model = AutoModelForCausalLM.from_config(make_config(spec))
    rng = torch.Generator().manual_seed(sum(name.encode()) + 1000 * attempt)
    with torch.no_grad():
        for key, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=rng)
            gain = "norm" in key or "ln_" in key and key.endswith("weight")
            size = 0.6 if key.endswith(("wte.weight", "wpe.weight")) else 0.2  # makes GPT-2's ids and positions significant
            p.copy_(1 + size * noise if gain else size * noise)
    model.save_pretrained(where)
    if spec["old"]:
        spell_old(where / "config.json")
    for file in where.iterdir():
        file.chmod(0o644)


def spell_old(path):
    """config.json as transformers 4 wrote it: rope_theta and rope_scaling, and torch_dtype."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if "original_max_position_embeddings" in config:
        rope.pop("original_max_position_embeddings", None)
    if config["model_type"] == "phi3":
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    for later in ("transformers_version", "_sliding_window_pattern"):
        config.pop(later, None)
    path.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def load(where):
    return AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, attn_implementation="eager")


def logits_packed(model, batch):
    """As make_llama.py has it, with a mask for each sort of layer."""
    starts = batch["starts"].long()
    t = torch.arange(starts.shape[1])
    seen = (t[None, None, :] <= t[None, :, None]) & (t[None, None, :] >= starts[:, :, None])
    window = getattr(model.config, "sliding_window", None)
    near = seen & (t[None, None, :] > t[None, :, None] - window) if window else seen
    additive = lambda s: torch.zeros(s.shape, dtype=model.dtype).masked_fill(~s, torch.finfo(model.dtype).min)[:, None]
    masks = {"full_attention": additive(seen), "sliding_attention": additive(near)}
    if model.config.model_type in ("mistral", "phi3"):  # one mask for all layers
        masks = masks["sliding_attention"]
    elif model.config.model_type in ("llama", "olmo2", "gemma", "gpt2"):
        masks = masks["full_attention"]
    return model(input_ids=batch["ids"].long(), attention_mask=masks, position_ids=t[None, :] - starts,
                 use_cache=False).logits


def greedy(model, vocabulary):
    """A prompt and what follows it, where each choice is clear. What fills the text up changes nothing but that LongRoPE
    sees its whole length from the beginning, as a run does that is planned for that many places."""
    for seed in range(100):
        text = torch.randint(0, vocabulary, (1, 5), generator=torch.Generator().manual_seed(seed))
        clear = float("inf")
        for _ in range(NEW_TOKENS):
            whole = torch.nn.functional.pad(text, (0, 5 + NEW_TOKENS - text.shape[1]))
            best = model(input_ids=whole, use_cache=False).logits[0, text.shape[1] - 1].topk(2)
            clear = min(clear, (best.values[0] - best.values[1]).item())
            text = torch.cat((text, best.indices[:1][None]), dim=1)
        if clear > 2e-3 and len(set(text[0, 5:].tolist())) > 3:
            return text[0].int(), clear
    return None, 0.0


def pass_noise(plain, expected):
    """Where a gradient is zero but for rounding (the bias of keys that are not turned: scores are shifted alike), AdamW
    makes a step of that rounding, which no two computations have in common: such elements are not compared."""
    for key, gradient in expected.items():
        if key.startswith("grad."):
            noise = (gradient != 0) & (gradient.abs() < NOISE)
            moved = "adamw10." + key[len("grad."):]
            plain[moved] = torch.where(noise, expected[moved].to(plain[moved].dtype), plain[moved])


def make(name, spec, where):
    """With the first weights whose ten steps are no matter of rounding: AdamW divides by gradients that may be small."""
    attempt = 0
    while not try_to_make(name, spec, where, attempt):
        attempt += 1


def try_to_make(name, spec, where, attempt):
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    write_model(name, spec, where, attempt)
    batch, documents = make_batch(dict(config=asked_for(spec), rows=ROWS, context=18,
                                       seed=sum(name.encode())) | {"config": {"vocab_size": SIZES["vocab_size"]}})
    original = make_config(spec).to_dict()
    for key, value in load(where).config.to_dict().items():  # in either spelling it must contain the requested values
        if key == "rope_parameters":
            value.pop("type", None)  # the older name of rope_type, which remains next to it
        assert key not in original or key in ("architectures", "_name_or_path") or value == original[key], (name, key)

    plain, _, apart32 = run(load(where), batch, documents, logits_packed)
    with torch.no_grad():
        text, clear = greedy(load(where).double(), SIZES["vocab_size"])
    if text is None:  # no prompt has a clear continuation
        return False
    model = load(where).double()
    at_start = {k: v.detach().clone() for k, v in model.named_parameters()}
    expected, count, apart64 = run(model, batch, documents, logits_packed)
    pass_noise(plain, expected)
    norms = plain["adamw10.norm"] / expected["adamw10.norm"] - 1
    if compare(plain, expected)["adamw10_rel"] > 3e-5 or norms.abs().max() > 1e-5:
        return False
    assert apart64 < 1e-5 and apart32 < 2e-5, (apart64, apart32)
    moved = min(relative(expected["adamw10." + k], v) for k, v in at_start.items())
    assert moved > 1e-4, moved

    tensors = dict(batch)
    for key, value in expected.items():
        tensors[key] = value if key in ("loss_sum", "adamw10.loss", "adamw10.norm") else value.float()
    tensors["count"] = torch.tensor([count], dtype=torch.int64)
    tensors["greedy"] = text
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, where / "expected.safetensors")
    (where / "expected.safetensors").chmod(0o644)
    meta = dict(about=spec["about"], shape=list(batch["ids"].shape), count=count,
                adamw=dict(lr=ADAMW["lr"], beta1=0.9, beta2=0.999, eps=ADAMW["eps"], weight_decay=ADAMW["weight_decay"],
                           clip=CLIP, steps=STEPS),
                torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    (where / "expected.json").write_text(json.dumps(meta, indent=1) + "\n")
    (where / "generation_config.json").unlink(missing_ok=True)
    verify(where, tensors)
    size = sum(f.stat().st_size for f in where.iterdir())
    print(f"{name}: {size} bytes, packed against separate {apart64:.1e} (float32 {apart32:.1e}); greedy choices clear by "
          f"{clear:.1e}; loss {tensors['adamw10.loss'][0]:.4f} to {tensors['adamw10.loss'][-1]:.4f}; float32 is off by "
          + ", ".join(f"{k} {v:.1e}" for k, v in compare(plain, expected).items()))
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name, spec in MODELS.items():
        if args.only in (None, name):
            make(name, spec, args.out / name)


if __name__ == "__main__":
    main()
