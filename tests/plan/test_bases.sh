#!/bin/sh
# Planned memory of low-bit bases: bytes per parameter of LoRA and QLoRA compared to published figures, and
# the memory of LLaMA-2-7B on two ranks, from its config.json only. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"

make_text 20
cat >run.ini <<'INI'
[run]
out = out
[model]
path  = square
start = fresh
[tokenizer]
[data]
path    = games.txt
context = 32
[train]
steps        = 1
global_batch = 2
precision    = bf16
[eval]
every = none
[optimizer]
plugin = adamw
[adapter]
plugin = lora
[adapter.lora]
r = 8
INI
plan() { # plan argument...: output in plan.txt, without spaces
    "$weft" plan run.ini --json "$@" 2>log | tr -d ' \n' >plan.txt || failed "plan $*" log
}
field() { # field NAME: the first number of that name
    grep -oE "\"$1\":[0-9]+" plan.txt | head -n 1 | grep -oE '[0-9]+$'
}
stored() { # stored TYPE: bytes of all parameters in that dtype
    grep -oE "\"type\":\"$1\",\"parameters\":[0-9]+,\"bytes\":[0-9]+" plan.txt | grep -oE '[0-9]+$' | tail -n 1
}
is() { # is WHAT AWK-EXPRESSION TEXT
    said=$(awk "BEGIN { printf \"%.3f\", ($2) }")
    [ "$said" = "$3" ] || failed "$1: $said, not $3" plan.txt
}

# Four layers of seven square matrices, 1,024 wide: rank 8 adds 2 * 8 * 1024 numbers to each, one in 64. A
# trained number has a master, a gradient and two AdamW states, 4 bytes each; publications count 2 for the
# gradient, hence 14.
make_model square 1024 256 1024 4 521
sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": 4/' square/config.json
numbers=$((4 * 7 * 1024 * 1024))
trained=$((numbers / 64))
plan model.base=bf16 train.global_batch=1
[ "$(field trained)" = $trained ] || failed "LoRA trains $(field trained), not $trained" plan.txt
[ "$(field gradients)" = $((4 * trained)) ] && [ "$(field optimizer)" = $((8 * trained)) ] || failed "LoRA's states" plan.txt
is "LoRA's base, bytes a number" "$(stored bf16) / $numbers" 2.000
is "LoRA in all" "($(stored bf16) + 4 * $trained + $(field gradients) + $(field optimizer)) / $numbers" 2.250
is "LoRA as it is counted elsewhere" "($(stored bf16) + 2 * $trained + $(field gradients) + $(field optimizer)) / $numbers" 2.219
plan model.base=nf4x64 train.global_batch=1
[ "$(stored nf4x64)" = $((numbers / 64 * 36)) ] || failed "nf4x64 has $(stored nf4x64) bytes" plan.txt
plan model.base=nf4 train.global_batch=1
[ "$(stored nf4)" = $((numbers / 1024 * 536)) ] || failed "nf4 has $(stored nf4) bytes" plan.txt
[ "$(field gradients)" = $((4 * trained)) ] && [ "$(field optimizer)" = $((8 * trained)) ] || failed "QLoRA's states" plan.txt
is "QLoRA in all" "($(stored nf4) + 4 * $trained + $(field gradients) + $(field optimizer)) / $numbers" 0.773
is "QLoRA without scales, as it is counted elsewhere" \
    "($(stored nf4) * 512 / 536 + 2 * $trained + $(field gradients) + $(field optimizer)) / $numbers" 0.719

# LLaMA-2-7B on two ranks.
make_model 7b 4096 128 11008 32 32000
sed -i 's/"num_attention_heads": 4/"num_attention_heads": 32/; s/"num_key_value_heads": 2/"num_key_value_heads": 32/;
    s/"tie_word_embeddings": true/"tie_word_embeddings": false/' 7b/config.json
has mpich || exit $((failures > 0))
two="comm.plugin=mpi-mpich strategy.plugin=fsdp model.path=7b --ranks 2"
total() { # total argument...: bytes of rank 0
    plan $two "$@"
    field total
}
qlora=$(total model.base=nf4)
linears=6476005376 # 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
[ "$(stored nf4)" = $((linears / 1024 * 536)) ] || failed "nf4 of 7 B is $(stored nf4) bytes" plan.txt
[ "$(field trained)" = 19988480 ] || failed "QLoRA of 7 B trains $(field trained)" plan.txt
lora=$(total model.base=bf16)
[ "$(stored bf16)" = $((linears * 2)) ] || failed "bf16 of 7 B is $(stored bf16) bytes" plan.txt
full=$(total adapter.plugin=none train.trainable=all)
# Half of the difference in storage, except for gathered parts; and 16 bytes per number instead of 2.
is "LoRA beside QLoRA" "$lora - $qlora > 0.47 * ($linears * 2 - $linears / 1024 * 536)" 1.000
is "all beside LoRA" "$full - $lora > 0.47 * 14 * $linears" 1.000

# ---- suggestions of README next to configs/qlora.ini

for base in nf4 nf4x64 fp8; do prints "$weft" plan "$WEFT_SOURCE/configs/qlora.ini" model.base=$base; done
refused "[model] base = int8 cannot store 'model.layers.0.mlp.down_proj.weight': its rows of 344 numbers are not complete blocks of 64" \
    "$weft" plan "$WEFT_SOURCE/configs/qlora.ini" model.base=int8
exit $((failures > 0))
