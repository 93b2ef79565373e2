#!/usr/bin/env python3
"""Makes published.json: what the config.json of well-known models says, as far as it decides the numbers, and what
`transformers` makes of it: parameters, heads, windows, rotary angles. The models themselves are not needed.

A model that Weft does not compute stands there with the word that its refusal has to have.

    python make_published.py [--out FILE]
"""

import argparse
import copy
import json
import pathlib

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HERE = pathlib.Path(__file__).resolve().parent
PLACES = [1, 1000, 2047]  # 2048 positions are requested


def sizes(width, mlp, layers, heads, kv_heads, vocab, context, eps=1e-5, **more):
    return dict(hidden_size=width, intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, vocab_size=vocab, max_position_embeddings=context, rms_norm_eps=eps,
                tie_word_embeddings=False, initializer_range=0.02, use_cache=True, **more)


def llama3(factor, original=8192):
    return {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": original}


def llama(*args, eps=1e-5, **more):
    return dict(dict(sizes(*args, eps=eps), model_type="llama", architectures=["LlamaForCausalLM"], hidden_act="silu"), **more)


OLD = dict(bos_token_id=1, eos_token_id=2, pretraining_tp=1, rope_scaling=None, torch_dtype="float16")
NEW = dict(bos_token_id=128000, eos_token_id=[128001, 128008, 128009], attention_bias=False, attention_dropout=0.0,
           mlp_bias=False, pretraining_tp=1, rope_theta=500000.0, torch_dtype="bfloat16")


def mistral(*args, **more):
    return dict(dict(sizes(*args), model_type="mistral", architectures=["MistralForCausalLM"], hidden_act="silu",
                     bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16", attention_dropout=0.0), **more)


def qwen2(*args, **more):
    return dict(dict(sizes(*args, eps=1e-6), model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_act="silu",
                     bos_token_id=151643, eos_token_id=151643, attention_dropout=0.0, use_sliding_window=False,
                     rope_theta=1000000.0, torch_dtype="bfloat16"), **more)


def qwen3(*args, **more):
    return dict(dict(sizes(*args, eps=1e-6), model_type="qwen3", architectures=["Qwen3ForCausalLM"], hidden_act="silu",
                     bos_token_id=151643, eos_token_id=151645, attention_dropout=0.0, attention_bias=False, head_dim=128,
                     use_sliding_window=False, sliding_window=None, rope_scaling=None, rope_theta=1000000,
                     torch_dtype="bfloat16"), **more)


def olmo2(*args, **more):
    return dict(dict(sizes(*args, eps=1e-6), model_type="olmo2", architectures=["Olmo2ForCausalLM"], hidden_act="silu",
                     attention_bias=False, attention_dropout=0.0, pad_token_id=100277, eos_token_id=100257,
                     rope_scaling=None, rope_theta=500000, torch_dtype="float32"), **more)


def gemma(family, *args, **more):
    classes = {"gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3"}
    return dict(dict(sizes(*args, eps=1e-6), model_type=family, architectures=[classes[family] + "ForCausalLM"],
                     hidden_activation="gelu_pytorch_tanh", attention_bias=False, attention_dropout=0.0, bos_token_id=2,
                     eos_token_id=1, pad_token_id=0, rope_theta=10000.0, torch_dtype="bfloat16",
                     tie_word_embeddings=True), **more)


CAPS = dict(attn_logit_softcapping=50.0, final_logit_softcapping=30.0, sliding_window=4096, cache_implementation="hybrid",
            hidden_act="gelu_pytorch_tanh")
FAR = dict(attn_logit_softcapping=None, final_logit_softcapping=None, rope_local_base_freq=10000, rope_scaling=None,
           rope_theta=1000000.0, cache_implementation="hybrid")


def phi3(*args, **more):
    return dict(dict(sizes(*args), model_type="phi3", architectures=["Phi3ForCausalLM"], hidden_act="silu",
                     attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0, resid_pdrop=0.0, rope_theta=10000.0,
                     auto_map={"AutoConfig": "configuration_phi3.Phi3Config"}, torch_dtype="bfloat16"), **more)


def long(pairs, **more):
    """A LongRoPE of as many factors as the model has; the published ones are measured numbers of the same sizes."""
    return dict(type="longrope", short_factor=[1.0 + i / pairs for i in range(pairs)],
                long_factor=[1.0 + 60.0 * (i / pairs) ** 2 for i in range(pairs)], **more)


TYPES3 = ["sliding_attention"] * 5 + ["full_attention"]
PUBLISHED = {
    "LLaMA 7B, early": llama(4096, 11008, 32, 32, None, 32000, 2048, eps=1e-6, **OLD, max_sequence_length=2048,
                             architectures=["LLaMAForCausalLM"], pad_token_id=-1),
    "LLaMA 13B": llama(5120, 13824, 40, 40, 40, 32000, 2048, eps=1e-6, **OLD, max_sequence_length=2048, pad_token_id=0),
    "LLaMA 2 7B": llama(4096, 11008, 32, 32, 32, 32000, 4096, **OLD),
    "LLaMA 2 70B": llama(8192, 28672, 80, 64, 8, 32000, 4096, **OLD),
    "Vicuna 16k": llama(4096, 11008, 32, 32, 32, 32000, 4096, **{**OLD, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "CodeLlama 7B": llama(4096, 11008, 32, 32, 32, 32016, 16384, **OLD, rope_theta=1000000),
    "CodeLlama 34B": llama(8192, 22016, 48, 64, 8, 32000, 16384, **OLD, rope_theta=1000000),
    "TinyLlama 1.1B": llama(2048, 5632, 22, 32, 4, 32000, 2048, **OLD, attention_bias=False),
    "Llama 3 8B": llama(4096, 14336, 32, 32, 8, 128256, 8192, **{**NEW, "eos_token_id": 128001}, rope_scaling=None),
    "Llama 3.1 8B": llama(4096, 14336, 32, 32, 8, 128256, 131072, **NEW, rope_scaling=llama3(8.0)),
    "Llama 3.1 405B": llama(16384, 53248, 126, 128, 8, 128256, 131072, **NEW, rope_scaling=llama3(8.0)),
    "Llama 3.2 1B": llama(2048, 8192, 16, 32, 8, 128256, 131072, **NEW, head_dim=64, tie_word_embeddings=True,
                          rope_scaling=llama3(32.0)),
    "Llama 3.2 3B": llama(3072, 8192, 28, 24, 8, 128256, 131072, **NEW, head_dim=128, tie_word_embeddings=True,
                          rope_scaling=llama3(32.0)),
    "Llama 3.3 70B": llama(8192, 28672, 80, 64, 8, 128256, 131072, **NEW, head_dim=128, rope_scaling=llama3(8.0)),
    "SmolLM 135M": llama(576, 1536, 30, 9, 3, 49152, 2048, bos_token_id=0, eos_token_id=0, tie_word_embeddings=True,
                         rope_theta=10000.0, torch_dtype="float32"),
    "SmolLM2 360M": llama(960, 2560, 32, 15, 5, 49152, 8192, bos_token_id=0, eos_token_id=0, tie_word_embeddings=True,
                          is_llama_config=True, rope_interleaved=False, rope_theta=100000, torch_dtype="bfloat16"),
    "SmolLM2 1.7B, instruct": llama(2048, 8192, 24, 32, 32, 49152, 8192, bos_token_id=1, eos_token_id=2, pad_token_id=2,
                                    tie_word_embeddings=True, rope_theta=130000, torch_dtype="bfloat16",
                                    **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}}),
    "SmolLM3 3B": dict(sizes(2048, 11008, 36, 16, 4, 128256, 65536, eps=1e-6), model_type="smollm3",
                       architectures=["SmolLM3ForCausalLM"], hidden_act="silu", tie_word_embeddings=True,
                       bos_token_id=128000, eos_token_id=128012, pad_token_id=128004, attention_bias=False,
                       attention_dropout=0.0, mlp_bias=False, pretraining_tp=2, max_window_layers=28,
                       use_sliding_window=False, sliding_window=None, rope_scaling=None, rope_theta=5000000.0,
                       no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9, layer_types=["full_attention"] * 36),
    "Mistral 7B 0.1": mistral(4096, 14336, 32, 32, 8, 32000, 32768, sliding_window=4096, rope_theta=10000.0),
    "Mistral 7B 0.3": mistral(4096, 14336, 32, 32, 8, 32768, 32768, sliding_window=None, rope_theta=1000000.0),
    "Mistral Nemo": mistral(5120, 14336, 40, 32, 8, 131072, 131072, head_dim=128, sliding_window=None,
                            rope_theta=1000000.0),
    "Mistral Small 24B": mistral(5120, 32768, 40, 32, 8, 131072, 32768, head_dim=128, sliding_window=None,
                                 rope_theta=100000000.0),
    "Qwen2 0.5B": qwen2(896, 4864, 24, 14, 2, 151936, 131072, max_window_layers=24, sliding_window=131072,
                        tie_word_embeddings=True),
    "Qwen2.5 7B": qwen2(3584, 18944, 28, 28, 4, 152064, 131072, max_window_layers=28, sliding_window=131072,
                        use_mrope=False),
    "Qwen2.5 32B, for long texts": qwen2(5120, 27648, 64, 40, 8, 152064, 32768, max_window_layers=70,
                                         sliding_window=131072, rope_scaling={
                                             "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "Qwen3 0.6B": qwen3(1024, 3072, 28, 16, 8, 151936, 40960, max_window_layers=28, tie_word_embeddings=True),
    "Qwen3 8B": qwen3(4096, 12288, 36, 32, 8, 151936, 40960, max_window_layers=36),
    "Qwen3 32B": qwen3(5120, 25600, 64, 64, 8, 151936, 40960, max_window_layers=64),
    "Phi-3 mini 4k": phi3(3072, 8192, 32, 32, 32, 32064, 4096, original_max_position_embeddings=4096, pad_token_id=32000,
                          bos_token_id=1, eos_token_id=32000, rope_scaling=None, sliding_window=2047),
    "Phi-3.5 mini": phi3(3072, 8192, 32, 32, 32, 32064, 131072, original_max_position_embeddings=4096, pad_token_id=32000,
                         bos_token_id=1, eos_token_id=32000, rope_scaling=long(48), sliding_window=262144),
    "Phi-3 medium 4k": phi3(5120, 17920, 40, 40, 10, 32064, 4096, original_max_position_embeddings=4096,
                            pad_token_id=32000, bos_token_id=1, eos_token_id=32000, rope_scaling=None, sliding_window=2047),
    "Phi-4": phi3(5120, 17920, 40, 40, 10, 100352, 16384, original_max_position_embeddings=16384, pad_token_id=100349,
                  bos_token_id=100257, eos_token_id=100257, rope_scaling=None, rope_theta=250000, sliding_window=None),
    "Phi-4 mini": phi3(3072, 8192, 32, 24, 8, 200064, 131072, original_max_position_embeddings=4096, pad_token_id=199999,
                       bos_token_id=199999, eos_token_id=199999, partial_rotary_factor=0.75, rope_scaling=long(48),
                       sliding_window=262144, tie_word_embeddings=True, full_attn_mod=1, interpolate_factor=1,
                       lm_head_bias=False, mlp_bias=False),
    "OLMo 2 1B": olmo2(2048, 8192, 16, 16, 16, 100352, 4096),
    "OLMo 2 7B": olmo2(4096, 11008, 32, 32, 32, 100352, 4096),
    "OLMo 2 32B": olmo2(5120, 27648, 64, 40, 8, 100352, 4096),
    "Gemma 2B": gemma("gemma", 2048, 16384, 18, 8, 1, 256000, 8192, head_dim=256, hidden_act="gelu"),
    "Gemma 7B": gemma("gemma", 3072, 24576, 28, 16, 16, 256000, 8192, head_dim=256, hidden_act="gelu_pytorch_tanh"),
    "Gemma 2 2B": gemma("gemma2", 2304, 9216, 26, 8, 4, 256000, 8192, head_dim=256, query_pre_attn_scalar=256, **CAPS),
    "Gemma 2 9B": gemma("gemma2", 3584, 14336, 42, 16, 8, 256000, 8192, head_dim=256, query_pre_attn_scalar=256,
                        sliding_window_size=4096, **CAPS),
    "Gemma 2 27B": gemma("gemma2", 4608, 36864, 46, 32, 16, 256000, 8192, head_dim=128, query_pre_attn_scalar=144,
                         sliding_window_size=4096, **CAPS),
    "Gemma 3 270M": gemma("gemma3_text", 640, 2048, 18, 4, 1, 262144, 32768, head_dim=256, query_pre_attn_scalar=256,
                          sliding_window=512, _sliding_window_pattern=6, layer_types=TYPES3 * 3,
                          use_bidirectional_attention=False, **{**FAR, "rope_local_base_freq": 10000.0}),
    "Gemma 3 1B": gemma("gemma3_text", 1152, 6912, 26, 4, 1, 262144, 32768, head_dim=256, query_pre_attn_scalar=256,
                        sliding_window=512, sliding_window_pattern=6, **FAR),
    "Gemma 3 27B, its text": gemma("gemma3_text", 5376, 21504, 62, 32, 16, 262208, 131072, head_dim=128,
                                   query_pre_attn_scalar=168, sliding_window=1024, sliding_window_pattern=6,
                                   **{**FAR, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}),
}
# Unsupported models of these families: the word that names the reason.
REFUSED = {
    "Qwen2.5 7B, 1M": ("dual_chunk_attention_config", qwen2(
        3584, 18944, 28, 28, 4, 152064, 1010000, max_window_layers=28, sliding_window=32768, rope_theta=10000000.0,
        dual_chunk_attention_config={"chunk_size": 262144, "local_size": 8192})),
    "Llama 2 7B in 4 bits": ("quantization_config", llama(
        4096, 11008, 32, 32, 32, 32000, 4096, **OLD, quantization_config={"quant_method": "gptq", "bits": 4})),
    "Llama 3.1 8B in fp8": ("quantization_config", llama(
        4096, 14336, 32, 32, 8, 128256, 131072, **NEW, rope_scaling=llama3(8.0),
        quantization_config={"quant_method": "fp8"})),
    "a classifier": ("architectures", llama(4096, 14336, 32, 32, 8, 128256, 8192, **NEW,
                                            **dict(architectures=["LlamaForSequenceClassification"]))),
    "Gemma 2 of two windows": ("sliding_window_size", gemma(
        "gemma2", 2304, 9216, 26, 8, 4, 256000, 8192, head_dim=256, query_pre_attn_scalar=256, sliding_window_size=2048,
        **CAPS)),
    "Gemma 3 4B, as it sees pictures": ("gemma3", dict(model_type="gemma3", text_config={}, vision_config={})),
    "Phi-3 vision": ("phi3_v", phi3(3072, 8192, 32, 32, 32, 32064, 131072, model_type="phi3_v")),
    "Mixtral 8x7B": ("mixtral", mistral(4096, 14336, 32, 32, 8, 32000, 32768, model_type="mixtral", num_local_experts=8)),
}


def made(config):
    """The numbers of `transformers`."""
    c = CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(
        {k: v for k, v in config.items() if k not in ("torch_dtype", "architectures", "auto_map")}))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(c, attn_implementation="eager")
    layers = model.model.layers
    windows = [getattr(layer.self_attn, "sliding_window", None) or 0 for layer in layers]
    if c.model_type in ("mistral", "phi3"):  # of the model, not of a layer
        windows = [c.sliding_window or 0] * len(layers)
    out = dict(parameters=sum(p.numel() for p in model.parameters()), head_dim=layers[0].self_attn.head_dim,
               scale=float(layers[0].self_attn.scaling), eps=float(c.rms_norm_eps), windows=windows,
               turned=[int(getattr(layer.self_attn, "use_rope", 1)) for layer in layers], angles=[])
    rotary = type(model.model.rotary_emb)(c)
    places, x = torch.tensor([PLACES]), torch.zeros(1)
    for kind in ("full_attention", "sliding_attention") if c.model_type == "gemma3_text" else (None,):
        cos, sin = rotary(x, places) if kind is None else rotary(x, places, kind)
        half = cos.shape[-1] // 2
        pairs = [0, half // 2, half - 1]
        out["angles"].append([[float(f"{t[0, p, i]:.7g}") for t in (cos, sin) for i in pairs] for p in range(len(PLACES))])
        out["turned_dim"] = 2 * half
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "published.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(50)
    rows = []
    for name, config in PUBLISHED.items():
        rows.append(dict(name=name, config=config, **made(config)))
        print(f"{name:32} {rows[-1]['parameters']:>15,}")
    rows += [dict(name=name, refused=word, config=config) for name, (word, config) in REFUSED.items()]
    args.out.write_text('{\n  "places": ' + json.dumps(PLACES) + ',\n  "models": [\n'
                        + ",\n".join("    " + json.dumps(row) for row in rows) + "\n  ]\n}\n")
    args.out.chmod(0o644)


if __name__ == "__main__":
    main()
