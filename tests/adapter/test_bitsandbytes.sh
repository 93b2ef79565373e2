#!/bin/sh
# Directories saved by transformers with bitsandbytes: nf4, nf4 in several files of 16-bit elements, nf4 with
# unquantized scales, int8. An adapter is trained on them under any strategy, used for generation and merged.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins"

make_run <<'INI'
steps = 6
[eval]
every = none
[optimizer]
plugin = adamw
lr     = 1e-2
[adapter]
plugin = lora
[adapter.lora]
r = 4
[device]
threads = 1
INI
sed -i 's/^path   = model/path   = base/; s/^start  = fresh/start  = weights/' run.ini
take() { # take NAME: copies it to base
    rm -rf base
    cp -r "$WEFT_SOURCE/tests/golden/bitsandbytes-$1" base
    rm base/expected.safetensors
    cp "$WEFT_SOURCE"/configs/chess/base/tokenizer*.json base/
}

for name in nf4 storage nf4x64 int8; do
    take $name
    base=$([ $name = storage ] && echo nf4 || echo $name)
    other=$([ $name = int8 ] && echo nf4 || echo fp8)
    limit "$weft" train run.ini run.out=$name >log 2>&1 || failed "lora on $name" log
    losses $name | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 6 && last < first) }' ||
        failed "lora on $name learns nothing" $name/metrics.jsonl
    limit "$weft" train run.ini run.out=$name-asked model.base=$base >log 2>&1 || failed "$name, asked for" log
    # The directory nf4 has an unpacked linear, which model.base packs.
    [ $name = nf4 ] || same_tensors "$name, asked for" $name/model $name-asked/model
    refused "is stored in" "$weft" plan run.ini model.base=$other
    refused "packed parameters cannot be trained" "$weft" plan run.ini train.trainable=all adapter.plugin=none
    prints "$weft" generate run.ini --adapter $name/model --prompt e2 --tokens 6

    # Unpacked, as needed for merging, it has the same loss.
    with=$(loss run.ini adapter.from=$name/model adapter.plugin=lora)
    refused "--dtype" "$weft" merge base $name/model merged
    # Also if the merged matrix is not packed: o_proj of nf4 is unpacked.
    limit "$weft" train run.ini run.out=$name-plain train.steps=1 adapter.lora.targets=o_proj >log 2>&1 ||
        failed "lora on o_proj of $name" log
    refused "--dtype" "$weft" merge base $name-plain/model merged
    limit "$weft" merge base $name/model merged --dtype fp32 >log 2>&1 || failed "merge $name" log
    grep -q quantization_config merged/config.json && failed "$name: merged numbers are said to be packed" merged/config.json
    near "$name: merged" 1e-4 "$with" "$(loss run.ini model.path=merged adapter.plugin=none)"
    rm -rf merged
done

# A 4-bit head is rejected with a hint. Here a layer's matrix is renamed to it.
take nf4x64
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' base/config.json
pad=$(printf '%24s' '')
LC_ALL=C sed -i "s/\"model.layers.0.self_attn.q_proj.weight\([^\"]*\)\":/\"lm_head.weight\1\":$pad/g" base/model.safetensors
refused "$dir/base: 'lm_head.weight' is stored in nf4x64" "$weft" plan run.ini
says log 'llm_int8_skip_modules = ["lm_head"]'

# The first configuration of a packed model has an adapter, because no other parameter can be trained.
take nf4
prints "$weft" init base games.txt -o first.ini
grep -A1 '^\[adapter\]' first.ini | grep -q '^plugin *= lora' || failed "init of a packed model has no adapter" first.ini
limit "$weft" train first.ini --overwrite train.steps=2 >log 2>&1 || failed "train what init wrote" log

# Same result for all strategies.
if [ -e "$WEFT_BUILD/tests/faults/weft-comm-ring.so" ]; then
    for name in nf4 nf4x64 int8; do
        take $name
        prints "$weft" prove run.ini --ranks 3 --steps 2
        grep -qF " equal, 0 not covered, 0 different" printed || failed "prove on $name" printed
    done
fi

# config.json must agree with the files.
take nf4
refused "begins without any" "$weft" plan run.ini model.start=fresh
sed 's/"quant_method": "bitsandbytes"/"quant_method": "awq"/' "$WEFT_SOURCE/tests/golden/bitsandbytes-nf4/config.json" >base/config.json
refused "quantization_config is {" "$weft" plan run.ini
