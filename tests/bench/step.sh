#!/bin/sh
# Measures a training step of the 24 M model (hidden 288, MLP 768, 6 layers, 6 heads, vocabulary 32000, untied; 8 rows of 256).
#   tests/bench/step.sh [threads] [steps]
# Prints the median seconds of a step and targets per second, from the run's own records of times.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
weft=${WEFT_BUILD_DIR:-$root/build}/weft
threads=${1:-auto}
steps=${2:-12}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
mkdir "$dir/model"
cat >"$dir/model/config.json" <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 288, "intermediate_size": 768,
 "num_hidden_layers": 6, "num_attention_heads": 6, "vocab_size": 32000, "max_position_embeddings": 512,
 "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32"}
JSON
cp "$root"/configs/chess/base/tokenizer*.json "$dir/model/"
cat >"$dir/run.ini" <<INI
[run]
out = out
[model]
plugin = llama
path   = model
start  = fresh
[tokenizer]
padded = yes
[data]
path     = $root/configs/chess/train.txt
context  = 256
[train]
steps        = $steps
global_batch = 8
micro_batch  = 8
clip         = 1.0
[device]
threads = $threads
INI
"$weft" train "$dir/run.ini" | sed -n '/^device/p; /^memory/p; /^step/p; /^trained/,$p'
