#!/bin/sh
# The SDK's example of a model plugin, GPT-2: built in another directory against an installed tree, with only
# its headers, and compared to transformers' GPT2LMHeadModel (tests/golden/gpt2) like the built-in families:
# logits, loss, gradients, ten steps, forty tokens with the cache. Strategies and resuming keep its bits.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
golden=$WEFT_SOURCE/tests/golden/gpt2
{
    cmake --install "$WEFT_BUILD" --prefix "$dir/installed" && cp -r installed/share/weft/template/model-gpt2 family &&
        cmake -S family -B family/build -DCMAKE_PREFIX_PATH="$dir/installed" && cmake --build family/build
} >log 2>&1 || failed "the example cannot be built" log
if grep -h '#include' family/*.[ch] | grep -vE '<(weft/[a-z]+|math|stdlib)\.h>|"config\.h"'; then
    failed "the example includes other headers than the SDK's and C's"
fi
plugin=$dir/family/build/weft-model-gpt2.so
WEFT_GOLDEN=gpt2 WEFT_PLUGIN_PATH=$dir/family/build:$WEFT_BUILD/plugins "$WEFT_BUILD/tests/test_train_golden" >log 2>&1 ||
    failed "it does not give what transformers gives" log
if is_full && [ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ]; then
    WEFT_GOLDEN=gpt2 WEFT_PLUGIN_PATH=$dir/family/build:$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins WEFT_TEST_DEVICE=cuda \
        WEFT_TEST_KEYS="share=yes workspace=1Mi" "$WEFT_BUILD/tests/test_train_golden" >log 2>&1 ||
        failed "it does not give that on the CUDA emulator" log
fi

# Saved files equal the original ones, in shapes and order, except for trained values.
make_run <<'INI'
steps = 4
trainable = transformer.h.1.*, transformer.wpe.weight
[optimizer]
lr = 1e-3
[checkpoint]
every = 2
INI
config() { # config SED: the golden model's, with the tokenizer's vocabulary size and this change
    sed -e 's/"vocab_size": 19/"vocab_size": 521/' -e "$1" "$golden/config.json" >model/config.json
}
config ''
prints "$weft" train run.ini model.plugin="$plugin"
mv out whole
prints "$weft" train run.ini model.plugin="$plugin" train.steps=2
prints "$weft" train run.ini model.plugin="$plugin" --resume
cmp -s whole/model/model.safetensors out/model/model.safetensors || failed "resuming gives other bits"
grep -q '"transformer.h.0.attn.c_attn.weight":{"dtype":"F32","shape":\[16,48\]' out/model/model.safetensors ||
    failed "c_attn is not saved as (in, out)"
prints "$weft" generate out --prompt "1. e4" --tokens 4
prints "$weft" eval out

# Dropout and unknown keys are not ignored.
config 's/"resid_pdrop": 0.0/"resid_pdrop": 0.1/'
refused 'resid_pdrop is 0.1, and this plugin has no dropout' "$weft" plan run.ini model.plugin="$plugin"
prints "$weft" plan run.ini model.plugin="$plugin" model.dropout=off
config 's/"n_layer": 2/"n_layer": 2, "qk_norm": true/'
refused 'the key qk_norm (true) is unknown' "$weft" plan run.ini model.plugin="$plugin"
config 's/"gelu_new"/"relu"/'
refused 'activation_function is "relu"; allowed is "gelu_new"' "$weft" plan run.ini model.plugin="$plugin"
config 's/"n_head": 2/"n_head": 3/'
refused 'n_embd 16 is no multiple of n_head 3' "$weft" plan run.ini model.plugin="$plugin"

if [ -e "$WEFT_BUILD/tests/faults/weft-comm-ring.so" ]; then
    cp -r "$WEFT_SOURCE/configs" configs
    sed 's/"vocab_size": 19/"vocab_size": 521/' "$golden/config.json" >configs/prove/config.json
    prove() { # prove arguments...
        "$weft" prove configs/prove.ini model.plugin="$plugin" "$@" \
            train.trainable="transformer.wte.weight, transformer.wpe.weight, transformer.h.0.mlp.*, last:1" >log 2>&1 ||
            failed "weft prove $*" log
        grep -qF " equal, 0 not covered, 0 different" log || failed "weft prove $*: not all cells are equal" log
    }
    if is_full; then
        prove --ranks 4 --steps 3
        prove --ranks 3 --steps 2 train.precision=bf16
    else
        prove --ranks 2 --steps 2
    fi
fi
[ "$failures" = 0 ]
