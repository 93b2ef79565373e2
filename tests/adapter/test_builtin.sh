#!/bin/sh
# Built-in adapters other than lora, and lora's dropout and dora: trained parameters, one result under all
# strategies, and errors. Dropout does not depend on the split into micro-batches, continues after a resume,
# and is off in evaluation. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"

make_run <<'INI'
steps        = 6
clip         = 0.5
schedule     = constant
[eval]
every = none
[optimizer]
plugin = adamw
lr     = 3e-3
[adapter]
plugin = lora
[adapter.lora]
r       = 3
dropout = 0.3
[device]
threads = 1
INI

# ---- errors

refused "dora = yes, and 'model.embed_tokens' is an embedding, which DoRA does not support" \
    "$weft" plan run.ini adapter.lora.dora=yes adapter.lora.targets=embed_tokens
refused "feedforward has 'model.layers.0.mlp.down_proj'" \
    "$weft" plan run.ini adapter.plugin=ia3 adapter.ia3.targets=k_proj
refused "layers is 9, and this model has 3 blocks" "$weft" plan run.ini adapter.plugin=llama-adapter adapter.llama-adapter.layers=9
cp -r model windowed
sed 's/"model_type": *"llama"/"model_type": "mistral", "sliding_window": 8/; s/LlamaForCausalLM/MistralForCausalLM/' \
    model/config.json >windowed/config.json
refused "this model's attention has a window, which prefixes do not support: use another model or adapter" \
    "$weft" plan run.ini model.path=windowed model.plugin=mistral adapter.plugin=prefix
refused "[adapter.mlp-head] layers = 65 is outside [1,64]" "$weft" plan run.ini adapter.plugin=mlp-head adapter.mlp-head.layers=65
refused "[adapter.lora] dropout = 1 is outside [0,1)" "$weft" plan run.ini adapter.lora.dropout=1

# ---- trained parameters: of each block q, o (40,40); k, v (20,40); gate, up (88,40); down (40,88)

trained() { # trained NUMBER argument...: number of trained elements in a plan
    number=$1
    shift
    "$weft" plan run.ini --json "$@" >plan.txt 2>log || failed "plan $*" log
    tr -d ' \n' <plan.txt | grep -qF "\"trained\":$number," || failed "plan $*: not $number trained" plan.txt
}
trained $((3 * (3 * (2 * 80 + 2 * 60 + 3 * 128) + 336))) adapter.lora.dora=yes
trained $((3 * (20 + 20 + 88))) adapter.plugin=ia3
trained $((3 * 2 * 7 * 20)) adapter.plugin=prefix adapter.prefix.length=7
trained $((2 * (4 * 40 + 1))) adapter.plugin=llama-adapter adapter.llama-adapter.length=4 adapter.llama-adapter.layers=2
# (7,40), (7,7) and (40,7), each with a bias; with the norms, two of each block and the final one.
trained $((7 * 41 + 7 * 8 + 40 * 8)) adapter.plugin=mlp-head adapter.mlp-head.layers=2 adapter.mlp-head.width=7
trained $((2 * 40 * 41 + 7 * 40)) adapter.plugin=mlp-head "train.trainable=adapter, *norm.weight"
trained $((2 * 40 * 41 + 7 * 40 + 521 * 40)) adapter.plugin=mlp-head "train.trainable=adapter, head, *norm.weight"

# ---- fresh adapters change no value: the first loss equals the base's

first() { # first argument...: the loss of step 1
    limit "$weft" train run.ini --overwrite train.steps=1 "$@" >log 2>&1 || failed "train $*" log
    losses out
}
bare=$(first adapter.lora.dropout=0)
[ "$(first adapter.lora.dropout=0 adapter.lora.dora=yes | cut -c1-6)" = "$(printf %s "$bare" | cut -c1-6)" ] ||
    failed "dora begins elsewhere" log
[ "$(first adapter.plugin=ia3)" = "$bare" ] || failed "ia3 begins elsewhere" log
[ "$(first adapter.plugin=llama-adapter)" = "$bare" ] || failed "llama-adapter begins elsewhere" log
[ "$(first adapter.plugin=mlp-head)" = "$bare" ] || failed "mlp-head begins elsewhere" log

# ---- prefix positions count as model positions, for rotary angles that depend on the total length

stretched() { # stretched DIRECTORY SHORT LONG: the model, with different angles after 24 positions
    rm -rf "$1" && cp -r model "$1"
    sed 's/^{/{"rope_scaling": {"type": "longrope", "short_factor": ['"$2"'], "long_factor": ['"$3"']},\
        "original_max_position_embeddings": 24,/' model/config.json >"$1/config.json"
}
short=1,1,1,1,1 long=2,3,4,5,6
stretched both $short $long
stretched early $short $short
stretched late $long $long
behind() { # behind LENGTH CONTEXT MODEL: the first loss with a prefix
    first adapter.plugin=prefix adapter.prefix.length="$1" data.context="$2" model.path="$3"
}
[ "$(behind 4 20 both)" = "$(behind 4 20 early)" ] || failed "4 places and 20 are 24" log
[ "$(behind 5 20 both)" = "$(behind 5 20 late)" ] || failed "5 places and 20 are more than 24" log
[ "$(behind 5 20 early)" != "$(behind 5 20 late)" ] || failed "the two are alike" log
most=$(grep -o '"max_position_embeddings": *[0-9]*' model/config.json | sed 's/.*: *//')
left=$((most - 20))
limit "$weft" plan run.ini adapter.plugin=prefix adapter.prefix.length=$left data.context=20 >log 2>&1 || failed "all places" log
refused "command line: [data] context = 20 and the $((left + 1)) positions of the adapter's prefix ([adapter] length) exceed the model's $most positions. Fix: set context to at most 19, or" \
    "$weft" plan run.ini adapter.plugin=prefix adapter.prefix.length=$((left + 1)) data.context=20
refused "train a shorter prefix" "$weft" plan run.ini adapter.plugin=prefix adapter.prefix.length="$most"
limit "$weft" train run.ini --overwrite train.steps=1 adapter.plugin=prefix adapter.prefix.length=$left data.context=20 >log 2>&1 ||
    failed "a long prefix" log
refused "positions after the $left of the adapter's prefix. Allowed: " "$weft" generate out --prompt "a b" --tokens 30 --temperature 0

# ---- dropout

limit "$weft" train run.ini --overwrite >log 2>&1 || failed "train with dropout" log
losses out >whole.txt
limit "$weft" train run.ini --overwrite adapter.lora.dropout=0 >log 2>&1 || failed "train without" log
losses out >without.txt
! cmp -s whole.txt without.txt || failed "nothing was dropped" whole.txt
limit "$weft" train run.ini --overwrite run.seed=2 >log 2>&1 || failed "another seed" log
losses out >other.txt
! cmp -s whole.txt other.txt || failed "another seed drops the same" other.txt
# Other micro-batches with the same sequences; activation checkpointing; a resume.
limit "$weft" train run.ini --overwrite train.activation_checkpointing=yes >log 2>&1 || failed "checkpointing" log
losses out >again.txt
cmp -s whole.txt again.txt || failed "checkpointing drops other elements" whole.txt again.txt
limit "$weft" train run.ini --overwrite train.micro_batch=3 >log 2>&1 || failed "micro-batches of three rows" log
losses out >micro_batches.txt
alike() { # alike FILE FILE: the last losses agree within a millionth
    { tail -n 1 "$1"; tail -n 1 "$2"; } |
        awk 'NR == 1 { a = $1 } END { d = ($1 - a) / a; exit !(d < 1e-6 && d > -1e-6) }'
}
alike whole.txt micro_batches.txt || failed "micro-batches of three rows drop other elements" whole.txt micro_batches.txt
! alike whole.txt without.txt || failed "a millionth tells no dropout" whole.txt without.txt
limit "$weft" train run.ini --overwrite train.steps=3 checkpoint.every=3 >log 2>&1 || failed "half of it" log
limit "$weft" train run.ini --resume >log 2>&1 || failed "resume" log
tail -n 3 whole.txt >three.txt
losses out | tail -n 3 >last.txt
cmp -s three.txt last.txt || failed "a resume drops other elements" three.txt last.txt

# ---- files: a run's adapter is read again, and merged if possible

sed 's|^path   = model|path   = base|; s|^start  = fresh|start  = weights|' run.ini >kept.ini
limit "$weft" train run.ini --overwrite run.out=first train.steps=2 adapter.plugin=none >log 2>&1 || failed "a base" log
mv first/model base
bare=$(loss kept.ini adapter.plugin=none)
for adapter in "lora adapter.lora.dora=yes" ia3 "prefix adapter.prefix.length=7" "llama-adapter adapter.llama-adapter.length=4" \
    "mlp-head adapter.mlp-head.layers=2 adapter.mlp-head.width=24 adapter.mlp-head.activation=silu"; do
    # shellcheck disable=SC2086 # a plugin and its keys
    limit "$weft" train kept.ini --overwrite optimizer.lr=0.03 adapter.plugin=$adapter >log 2>&1 || failed "train $adapter" log
    with=$(loss out)
    [ "$with" != "$bare" ] || failed "$adapter learned nothing"
    [ "$(loss kept.ini --adapter out/model adapter.plugin="${adapter%% *}" adapter.lora.r=auto)" = "$with" ] ||
        failed "$adapter is another one when it is read" log
    rm -rf theirs
    cp -r out/model theirs
    sed '1s/{/{"use_newthing": true,/' out/model/adapter_config.json >theirs/adapter_config.json
    refused "theirs/adapter_config.json: use_newthing = true" "$weft" eval kept.ini --adapter theirs adapter.plugin="${adapter%% *}" adapter.lora.r=auto
    case $adapter in
    ia3) # modules excluded by PEFT's file, by name or expression
        for left_out in '["q_proj"]' '".*\\\\.q_proj"'; do
            rm -rf theirs
            cp -r out/model theirs
            sed "s/\"target_modules\": \\[/\"exclude_modules\": $left_out, &\"q_proj\", /" out/model/adapter_config.json >theirs/adapter_config.json
            says theirs/adapter_config.json '"q_proj", '
            [ "$(loss kept.ini --adapter theirs adapter.plugin=ia3)" = "$with" ] || failed "ia3 without $left_out" log theirs/adapter_config.json
        done
        sed 's/"target_modules": \[/"exclude_modules": {"q_proj": 1}, &/' out/model/adapter_config.json >theirs/adapter_config.json
        refused "theirs/adapter_config.json: exclude_modules = {" \
            "$weft" eval kept.ini --adapter theirs adapter.plugin=ia3
        # All modules with scaled inputs may be excluded.
        limit "$weft" train kept.ini --overwrite run.out=inner adapter.plugin=ia3 adapter.ia3.targets=k_proj,v_proj \
            adapter.ia3.feedforward=none >log 2>&1 || failed "ia3 without feedforward" log
        rm -rf theirs
        cp -r inner/model theirs
        sed 's/"target_modules": \[/"exclude_modules": ["down_proj"], &"down_proj", /; s/"feedforward_modules": \[\]/"feedforward_modules": ["down_proj"]/' \
            inner/model/adapter_config.json >theirs/adapter_config.json
        says theirs/adapter_config.json '"feedforward_modules": ["down_proj"]'
        [ "$(loss kept.ini --adapter theirs adapter.plugin=ia3)" = "$(loss inner)" ] ||
            failed "ia3 whose feedforward is left out" log theirs/adapter_config.json
        ;;
    esac
    case $adapter in
    lora* | ia3)
        limit "$weft" merge base out/model merged >log 2>&1 || failed "merge $adapter" log
        near "$adapter merged" 1e-4 "$with" "$(loss kept.ini adapter.plugin=none model.path=merged)"
        rm -rf merged
        ;;
    mlp-head*)
        refused "cannot be merged into a model's weights" "$weft" merge base out/model merged
        [ ! -e merged ] || failed "what cannot be merged leaves something behind"
        ;;
    esac
done

# If PEFT wraps the attention module, fully trained parameters below it have the wrapper's name.
prompts="adapter.plugin=llama-adapter adapter.llama-adapter.length=4 adapter.llama-adapter.layers=2"
keys="train.trainable=adapter,*k_proj.weight"
# shellcheck disable=SC2086 # a plugin and its keys
limit "$weft" train kept.ini --overwrite run.out=keys optimizer.lr=0.03 $prompts "$keys" >log 2>&1 || failed "prompts beside keys" log
for name in layers.0.self_attn.k_proj layers.1.self_attn.model.k_proj layers.2.self_attn.model.k_proj layers.2.self_attn.adaption_gate; do
    grep -qaF "\"base_model.model.model.$name" keys/model/adapter_model.safetensors || failed "no $name in PEFT's file"
done
near "prompts beside keys, read again" 1e-9 "$(loss keys)" "$(loss kept.ini --adapter keys/model adapter.plugin=llama-adapter)"
limit "$weft" train kept.ini --overwrite run.out=again train.steps=1 optimizer.lr=0 adapter.plugin=llama-adapter adapter.from=keys/model \
    >log 2>&1 || failed "prompts beside keys go on" log
same_tensors "prompts beside keys that go on" keys/model again/model

# out/model is the mlp-head's.
limit "$weft" generate out --prompt the --tokens 8 >text.txt 2>log || failed "generate with an mlp-head" log
limit "$weft" generate kept.ini --prompt the --tokens 8 adapter.plugin=none >other.txt 2>log || failed "generate without" log
! cmp -s text.txt other.txt || failed "an mlp-head changes no text" text.txt
limit "$weft" generate kept.ini --prompt the --tokens 8 --adapter out/model adapter.plugin=mlp-head >other.txt 2>log || failed "generate --adapter" log
cmp -s text.txt other.txt || failed "an mlp-head is another one in generation" text.txt other.txt
refused "out/model/adapter_config.json has silu: " \
    "$weft" eval kept.ini --adapter out/model adapter.plugin=mlp-head adapter.mlp-head.activation=gelu
refused "out/model/adapter_config.json has width = 24: " \
    "$weft" eval kept.ini --adapter out/model adapter.plugin=mlp-head adapter.mlp-head.width=25
limit "$weft" train run.ini --overwrite run.out=second run.seed=9 train.steps=1 adapter.plugin=none >log 2>&1 || failed "another base" log
refused "was made on other weights than those in" "$weft" eval kept.ini --adapter out/model adapter.plugin=mlp-head model.path=second/model
# Parameters of the base are trained with it, and saved with it.
limit "$weft" train kept.ini --overwrite optimizer.lr=0.03 adapter.plugin=mlp-head \
    "train.trainable=adapter, head, *norm.weight" >log 2>&1 || failed "an mlp-head beside head and norms" log
with=$(loss out)
[ "$(loss kept.ini --adapter out/model adapter.plugin=mlp-head)" = "$with" ] || failed "mlp-head, head and norms are others when they are read" log
[ "$with" != "$bare" ] || failed "mlp-head, head and norms learned nothing"

# ---- several ranks

has mpich || exit $((failures > 0))
prove() { # prove argument...: all cells are equal
    limit "$weft" prove run.ini comm.plugin=mpi-mpich --ranks $(is_full && echo 3 || echo 2) --steps 2 "$@" >out.txt 2>err.txt ||
        failed "prove $*" out.txt err.txt
    says out.txt " equal, 0 not covered, 0 different"
}
prove adapter.lora.dora=yes
! is_full || prove adapter.plugin=ia3
! is_full || prove adapter.plugin=prefix adapter.prefix.length=7
# PEFT's table of all layers, divided by columns among the ranks.
for ranks in 1 3; do
    limit "$weft" train run.ini --overwrite run.out=of$ranks train.steps=2 adapter.plugin=prefix comm.plugin=mpi-mpich \
        strategy.plugin=fsdp --ranks $ranks >log 2>&1 || failed "a prefix on $ranks ranks" log
done
same_tensors "a prefix of three ranks has another file" of1 of3
prove adapter.plugin=mlp-head adapter.mlp-head.layers=2 adapter.mlp-head.width=7
if is_full; then
    prove policy.plugin=class policy.classes=Linear,LlamaDecoderLayer train.precision=bf16
    prove adapter.plugin=llama-adapter train.precision=bf16
fi
exit $((failures > 0))
