#!/bin/sh
# `weft prove` on a model of each family: its differences from LLaMA (slices of fused weights, post-norms,
# windows, caps, biases) change no bit between strategies and rank counts, on the CPU and on the CUDA
# emulator. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
if [ ! -e "$WEFT_BUILD/tests/faults/weft-comm-ring.so" ]; then
    echo "skipped: there is no MPI, so no ranks to prove anything on"
    exit 77
fi
fail() { # fail NAME: prints the output of the last run
    failed "$1" out err
}

# The golden model's configuration with the vocabulary size of the tokenizer in configs/prove.ini.
cp -r "$WEFT_SOURCE/configs" configs
prove() { # prove FAMILY arguments...
    golden=$WEFT_SOURCE/tests/golden/family-$1
    plugin=$(sed -n 's/.*"model_type": "\(.*\)".*/\1/p' "$golden/config.json")
    sed 's/"vocab_size": 19/"vocab_size": 521/' "$golden/config.json" >configs/prove/config.json
    shift
    "$weft" prove configs/prove.ini model.plugin="$plugin" "$@" \
        train.trainable="model.embed_tokens.weight, model.layers.0.mlp.*, last:1, model.norm.weight" >out 2>err ||
        fail "weft prove $plugin $*"
    grep -qF " equal, 0 not covered, 0 different" out || fail "$plugin: cells are different, or not covered"
}

families="llama3 mistral qwen2 qwen3 smollm3 olmo2 gemma gemma2 gemma3 phi3"
if is_full; then
    for family in $families; do
        prove "$family" --ranks 4 --steps 3
        prove "$family" --ranks 3 --steps 2 train.precision=bf16
    done
    # and on the CUDA emulator, where the ranks share the GPU
    if [ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ]; then
        export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
        sed -i '/^\[device/,$d' configs/prove.ini
        printf '[device]\nplugin = cuda\n[device.cuda]\nshare = yes\nworkspace = 1Mi\ncache = %s\n' "$PWD/compiled" >>configs/prove.ini
        mkdir compiled
        for family in $families; do
            prove "$family" --ranks 2 --steps 2
            prove "$family" --ranks 2 --steps 1 train.precision=bf16
        done
    fi
else
    prove phi3 --ranks 2 --steps 2
fi
echo "what is proved of LLaMA holds of the families"
