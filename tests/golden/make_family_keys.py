#!/usr/bin/env python3
"""Makes family_keys.json: for each family of plugins/model/decoder a small config.json, and what `transformers` computes
when one of its keys is changed or taken away: the logits of a text's last place.

Every field of the family's configuration class is changed at least once, so none that `transformers` reads is missed;
keys of older files stand beside them. Weights follow from their names alone (`weights` below, and the test has the same
in C), so a change of shapes needs no file. A case that is marked `refused` has a value that Weft does not compute; the
test holds that it says so by name, and that it computes all others.

    python make_family_keys.py [--out FILE]
"""

import argparse
import copy
import dataclasses
import json
import pathlib

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HERE = pathlib.Path(__file__).resolve().parent
TEXT = [3, 7, 1, 12, 5, 5, 9, 2, 14, 6, 0, 11, 8, 4, 13, 10, 7, 2]
ABSENT = "absent"  # the key is removed
SIZES = dict(vocab_size=15, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, pad_token_id=None, bos_token_id=None,
             eos_token_id=None, hidden_act="silu", initializer_range=0.02, use_cache=True, tie_word_embeddings=False,
             dtype="float32", attention_dropout=0.0)
GEMMA = dict(head_dim=6, hidden_act="gelu_pytorch_tanh", attention_bias=False)
FAMILIES = {
    "llama": dict(attention_bias=False, mlp_bias=False, pretraining_tp=1, head_dim=4),
    "mistral": dict(head_dim=6, sliding_window=5),
    "qwen2": dict(use_sliding_window=False, sliding_window=4, max_window_layers=1),
    "qwen3": dict(head_dim=6, attention_bias=False, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "smollm3": dict(attention_bias=False, mlp_bias=False, no_rope_layer_interval=2, use_sliding_window=False,
                    sliding_window=None),
    "olmo2": dict(attention_bias=False),
    "gemma": dict(GEMMA),
    "gemma2": dict(GEMMA, query_pre_attn_scalar=9, sliding_window=5, attn_logit_softcapping=3.0,
                   final_logit_softcapping=4.0, hidden_activation="gelu_pytorch_tanh"),
    "gemma3_text": dict(GEMMA, query_pre_attn_scalar=7, sliding_window=5, hidden_activation="gelu_pytorch_tanh",
                        layer_types=["sliding_attention", "full_attention"]),
    "phi3": dict(hidden_size=32, original_max_position_embeddings=64, sliding_window=None, resid_pdrop=0.0,
                 embd_pdrop=0.0),
}
for name in ("gemma2", "gemma3_text"):  # these have hidden_activation instead
    del FAMILIES[name]["hidden_act"]
PLAIN = {"rope_type": "default", "rope_theta": 500.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5, 2.0, 2.5],
        "long_factor": [2.0, 3.0, 4.0, 6.0]}
bare = lambda rope: {k: v for k, v in rope.items() if k != "rope_theta"}  # as in rope_scaling
TYPES = ["full_attention", "sliding_attention"]

# Values of each key; {"refused": value} if Weft does not support it.
no = lambda value: {"refused": value}
EVERYWHERE = {
    "vocab_size": [17], "hidden_size": [24], "intermediate_size": [10, no(0)], "num_hidden_layers": [1],
    "num_attention_heads": [2, no(3)], "num_key_value_heads": [1, 4], "max_position_embeddings": [32],
    "rms_norm_eps": [0.1, ABSENT], "pad_token_id": [2], "bos_token_id": [1, ABSENT], "eos_token_id": [[3, 4], ABSENT],
    "initializer_range": [0.1, ABSENT], "use_cache": [False, ABSENT], "attention_dropout": [no(0.1), ABSENT],
    "architectures": [no(["GPT2LMHeadModel"])], "dtype": ["bfloat16", ABSENT], "chunk_size_feed_forward": [1],
    "id2label": [{"0": "A", "1": "B"}], "label2id": [{"A": 0, "B": 1}], "is_encoder_decoder": [no(True)],
    "output_hidden_states": [True], "problem_type": ["regression"], "return_dict": [True],
    "transformers_version": ["4.31.0"], "rope_theta": [700.0],
}
BIASES = {"attention_bias": [True, ABSENT], "mlp_bias": [True, ABSENT]}
WINDOWS = {"use_sliding_window": [True, False, ABSENT], "sliding_window": [3, 40], "max_window_layers": [0, 2],
           "layer_types": [["full_attention"] * 2]}
ROPE = {"rope_parameters": [PLAIN, LLAMA3, YARN, dict(YARN, attention_factor=1.3), dict(YARN, beta_fast=8, beta_slow=2),
                            dict(YARN, mscale=0.7, mscale_all_dim=0.4), dict(YARN, truncate=False),
                            dict(YARN, factor=None), {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0},
                            {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0},
                            dict(LLAMA3, original_max_position_embeddings=40),
                            no({"rope_type": "proportional", "rope_theta": 500.0})],
        "rope_scaling": [{"type": "linear", "factor": 3.0}, bare(LLAMA3)],
        "partial_rotary_factor": [1.0, no(0.5)]}
SILU = {"hidden_act": ["gelu", "gelu_pytorch_tanh", no("relu"), ABSENT]}
GELU = {"hidden_activation": ["silu", "gelu", ABSENT]}
KEYS = {
    "llama": {**BIASES, **SILU, **ROPE, "head_dim": [8, None, ABSENT], "pretraining_tp": [2],
              "tie_word_embeddings": [True, ABSENT]},
    "mistral": {**SILU, **ROPE, "head_dim": [8, None, ABSENT], "sliding_window": [2, None, ABSENT],
                "tie_word_embeddings": [True, ABSENT]},
    "qwen2": {**SILU, **ROPE, **WINDOWS, "tie_word_embeddings": [True, ABSENT], "head_dim": [6]},
    "qwen3": {"attention_bias": [True, ABSENT], **SILU, **ROPE, **WINDOWS, "head_dim": [8],
              "layer_types": [TYPES, TYPES[::-1], ["full_attention"] * 2, no(["chunked_attention"] * 2)],
              "tie_word_embeddings": [True, ABSENT]},
    "smollm3": {**BIASES, **SILU, **ROPE, "no_rope_layers": [[0, 0], [0, 1], [1, 1]],
                "no_rope_layer_interval": [1, 3, ABSENT], "use_sliding_window": [True, ABSENT], "sliding_window": [4],
                "layer_types": [["full_attention"] * 2], "tie_word_embeddings": [True]},
    "olmo2": {"attention_bias": [True, ABSENT], **SILU, **ROPE, "tie_word_embeddings": [True, ABSENT]},
    "gemma": {"attention_bias": [True, ABSENT], "hidden_act": ["gelu", "silu", ABSENT], "head_dim": [8],
              "tie_word_embeddings": [True], "use_bidirectional_attention": [False, no(True)], **ROPE},
    "gemma2": {"attention_bias": [True, ABSENT], **GELU, "head_dim": [8], "attn_logit_softcapping": [9.0, None, ABSENT],
               "final_logit_softcapping": [9.0, None, ABSENT], "query_pre_attn_scalar": [30, ABSENT],
               "sliding_window": [2, ABSENT], "sliding_window_size": [5, None, no(4)],
               "layer_types": [TYPES, ["full_attention"] * 2],
               "tie_word_embeddings": [True], "use_bidirectional_attention": [False, no(True)], **ROPE},
    "gemma3_text": {"attention_bias": [True, ABSENT], **GELU, "head_dim": [8],
                    "attn_logit_softcapping": [None, no(9.0)], "final_logit_softcapping": [9.0, None],
                    "query_pre_attn_scalar": [30, ABSENT], "sliding_window": [2, ABSENT],
                    "layer_types": [TYPES, ["full_attention"] * 2, ABSENT], "rope_local_base_freq": [90.0],
                    "rope_scaling": [{"rope_type": "linear", "factor": 3.0}],
                    "rope_parameters": [{"full_attention": dict(YARN), "sliding_attention": dict(PLAIN)},
                                        {"full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0},
                                         "sliding_attention": dict(LLAMA3)}],
                    "tie_word_embeddings": [True], "use_bidirectional_attention": [False, no(True)]},
    "phi3": {**SILU, "rope_parameters": [PLAIN, LONG, dict(LONG, factor=5.0), dict(LONG, attention_factor=1.7),
                                         dict(PLAIN, partial_rotary_factor=0.5), no(dict(LLAMA3))],
             "rope_scaling": [bare(LONG)], "partial_rotary_factor": [1.0, 0.5],
             "original_max_position_embeddings": [8], "sliding_window": [4], "resid_pdrop": [no(0.1)],
             "embd_pdrop": [no(0.1)], "num_key_value_heads": [1, 4, None, ABSENT],
             "tie_word_embeddings": [True, ABSENT], "full_attn_mod": [1, None, no(0), no(2)],
             "interpolate_factor": [1, no(0), no(4)], "lm_head_bias": [False, no(True)]},
}
# Rotary embeddings for 8192 positions and heads of 16 elements, and the tested positions.
LATE = dict(rope_theta=500000.0, original_max_position_embeddings=1024, factor=8.0)
ANGLES = [{"rope_type": "default", "rope_theta": 500000.0}, dict(LLAMA3, **LATE), dict(YARN, **LATE),
          dict(YARN, **LATE, truncate=False), {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5},
          {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.5},
          {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 1024,
           "short_factor": [1.0] * 8, "long_factor": [1.1, 1.3, 1.9, 2.6, 4.0, 7.0, 12.0, 20.0]}]
PLACES = [0, 1, 100, 2047, 4096, 8191]
# Further keys, set first, so that the tested one is read.
WITH = {
    ("qwen2", "sliding_window"): dict(use_sliding_window=True), ("qwen2", "max_window_layers"): dict(use_sliding_window=True),
    ("smollm3", "sliding_window"): dict(use_sliding_window=True),
    ("smollm3", "use_sliding_window"): dict(sliding_window=4),
    ("phi3", "original_max_position_embeddings"): dict(rope_scaling=bare(LONG)),
}


def weights(name, shape):
    """Numbers from the name: 1 + 0.3 u in norms, 0.4 u elsewhere, u in [-1, 1) from a hash of name and index."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    with numpy.errstate(over="ignore"):
        x = numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint32) * numpy.uint32(2654435761)
        x += numpy.uint32(seed)
        for shift, factor in ((16, 0x7feb352d), (15, 0x846ca68b)):
            x = (x ^ (x >> numpy.uint32(shift))) * numpy.uint32(factor)
        u = (x ^ (x >> numpy.uint32(16))).astype(numpy.float64) / 2**31 - 1
    return torch.from_numpy((1 + 0.3 * u if "norm" in name else 0.4 * u).astype(numpy.float32)).reshape(shape)


def last_logits(config):
    """What the model of this config.json gives; None: `transformers` takes no such value."""
    cls = CONFIG_MAPPING[config["model_type"]]
    try:
        made = cls.from_dict(copy.deepcopy({k: v for k, v in config.items() if k not in ("dtype", "architectures")}))
        model = AutoModelForCausalLM.from_config(made, attn_implementation="eager").float().eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights(name, p.shape))
            out = model(input_ids=torch.tensor([TEXT]), use_cache=False, return_dict=True).logits
        return [float(f"{x:.6g}") for x in out[0, -1].double().tolist()]
    except Exception as e:  # any error that an invalid value causes first
        print(f"    {type(e).__name__}: {str(e)[:100]!r}")
        return None


def cases_of(family):
    base = {"model_type": family, **SIZES, **FAMILIES[family]}
    if "hidden_activation" in base:
        del base["hidden_act"]
    keys = {**EVERYWHERE, **KEYS[family]}
    fields = {f.name for f in dataclasses.fields(CONFIG_MAPPING[family])}
    missed = fields - set(keys)
    assert not missed, (family, missed)
    plain = last_logits(base)
    assert plain is not None, family
    out = [dict(key="", config=base, logits=plain)]
    for key, values in keys.items():
        for value in values:
            refused = isinstance(value, dict) and set(value) == {"refused"}
            value = value["refused"] if refused else value
            config = {**base, **WITH.get((family, key), {}), key: value}
            if key == "num_hidden_layers" and "layer_types" in config:
                config["layer_types"] = config["layer_types"][:value]
            if value == ABSENT:
                del config[key]
            logits = None if refused else last_logits(config)
            if logits is None and not refused:
                print(f"{family}: transformers takes no {key} = {value}")
                continue
            changes = {k: v for k, v in config.items() if k not in base or base[k] != v}
            changes.update({k: ABSENT for k in base if k not in config})
            out.append(dict(key=key, change=changes, **(dict(refused=True) if refused else dict(logits=logits))))
    same = [c["key"] for c in out[1:] if c.get("logits") == plain]
    print(f"{family}: {len(out)} cases, {sum('refused' in c for c in out)} refused; no difference: {sorted(set(same))}")
    return out


def angles(rope):
    """Cosines and sines of late places, in float32 as transformers makes them."""
    cls = LlamaConfig
    config = cls(hidden_size=32, num_attention_heads=2, max_position_embeddings=8192, rope_parameters=dict(rope))
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.tensor([PLACES]))
    rows = [[[float(f"{x:.9g}") for x in half[0, i, :8].tolist()] for half in (cos, sin)] for i in range(len(PLACES))]
    return dict(rope=rope, rows=rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "family_keys.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(50)
    cases = {family: cases_of(family) for family in FAMILIES}
    lines = ",\n".join(f'  "{family}": [\n' + ",\n".join("    " + json.dumps(c) for c in cs) + "\n  ]"
                       for family, cs in cases.items())
    turned = ",\n".join("    " + json.dumps(angles(rope)) for rope in ANGLES)
    args.out.write_text('{\n  "text": ' + json.dumps(TEXT) + ',\n  "families": {\n' + lines + '\n  },\n  "places": '
                        + json.dumps(PLACES) + ',\n  "angles": [\n' + turned + "\n  ]\n}\n")
    args.out.chmod(0o644)


if __name__ == "__main__":
    main()
