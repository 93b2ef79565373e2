#!/bin/sh
# Several adapters in one run: trained parameters, file locations, reading, resuming, merging and generation
# with the same results, one result on one rank and on three, and errors for invalid lists. ctest sets
# WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"

make_run <<'INI'
steps        = 4
[eval]
every = none
[checkpoint]
every = 2
[optimizer]
plugin = adamw
lr     = 2e-2
[device]
threads = 1
INI
train() { # train argument...: a run, with its output in log
    limit "$weft" train stack.ini --overwrite "$@" >log 2>&1 || failed "train $*" log
}
limit "$weft" train run.ini --overwrite run.out=first train.steps=2 >log 2>&1 || failed "a base" log
mv first/model base
sed 's|^path   = model|path   = base|; s|^start  = fresh|start  = weights|' run.ini >plain.ini
cat plain.ini - >stack.ini <<'INI'
[adapter]
plugin = lora, mlp-head
[adapter.lora]
r       = 4
alpha   = 8
dropout = 0.1
[adapter.mlp-head]
width = 24
[adapter.ia3]
targets     = k_proj, down_proj
feedforward = down_proj
INI

# ---- errors, with their lines

line=$(grep -n '^plugin = lora' stack.ini | cut -d: -f1)
sed 's/^plugin = lora, mlp-head/plugin = lora, mlp-head, lora/' stack.ini >twice.ini
refused "twice.ini:$line: [adapter] plugin = lora, mlp-head, lora names lora twice" "$weft" plan twice.ini
refused "there is no adapter plugin \"mlp-hed\"; did you mean mlp-head?" "$weft" plan stack.ini "adapter.plugin=lora, mlp-hed"
refused "lists none together with other adapters" "$weft" plan stack.ini "adapter.plugin=lora, none"
refused "has no id between two commas" "$weft" plan stack.ini "adapter.plugin=lora,, ia3"
refused "has 'lora ia3', which is not the name of one adapter. Fix: separate adapters by commas" "$weft" plan stack.ini "adapter.plugin=lora ia3"
refused "'model.layers.0.self_attn.q_proj.weight' is trained, and the adapter also changes" \
    "$weft" plan stack.ini "train.trainable=adapter, *q_proj.weight"
refused "is no file, and a list of adapters has ids only" "$weft" plan stack.ini "adapter.plugin=lora, ./other.so"
refused "names more than 4 adapters" "$weft" plan stack.ini adapter.plugin=lora,ia3,prefix,mlp-head,llama-adapter
refused "command line: [adapter] plugin contains ia3, which changes 'model.layers.0.self_attn.k_proj', as lora does" \
    "$weft" plan stack.ini "adapter.plugin=lora, ia3"
refused "command line: [adapter] r = 3 is a key of one adapter, and plugin names several. Fix: move it to [adapter.lora]" \
    "$weft" plan stack.ini adapter.r=3
refused "[adapter.lora] has no key rnk" "$weft" plan stack.ini adapter.lora.rnk=3
refused "[adapter.mlp-head] layers = 65 is outside [1,64]" "$weft" plan stack.ini adapter.mlp-head.layers=65
refused "[adapter.ia3] targets is empty" "$weft" plan stack.ini adapter.plugin=lora,ia3 adapter.ia3.targets=

# ---- trained parameters: of each block q, o (40,40); k, v (20,40); gate, up (88,40); down (40,88); of the
# head (24,40), (40,24)

lora=$((3 * 4 * (2 * 80 + 2 * 60 + 3 * 128)))
head=$((24 * 41 + 40 * 25))
trained() { # trained NUMBER argument...: number of trained elements in a plan
    number=$1
    shift
    "$weft" plan stack.ini --json "$@" >plan.txt 2>log || failed "plan $*" log
    tr -d ' \n' <plan.txt | grep -qF "\"trained\":$number," || failed "plan $*: not $number trained" plan.txt
}
trained $((lora + head))
trained $((lora + head + 7 * 40)) "train.trainable=adapter, *norm.weight"
trained $((head + 3 * (20 + 88))) adapter.plugin=mlp-head,ia3 # down_proj: its inputs
trained $((3 * 4 * (2 * 80 + 60) + 3 * (20 + 88))) adapter.plugin=ia3,lora adapter.lora.targets=q_proj,v_proj,o_proj

# ---- fresh adapters change no value; files of a run

train train.steps=1 adapter.lora.dropout=0
with=$(losses out)
limit "$weft" train plain.ini --overwrite train.steps=1 >log 2>&1 || failed "without" log
[ "$with" = "$(losses out)" ] || failed "fresh adapters change the first loss" log
part="train.trainable=adapter,model.norm.weight"
train $part
for file in adapter_config.json adapter_model.safetensors weft_adapter.json mlp-head/adapter_config.json \
    mlp-head/adapter_model.safetensors mlp-head/weft_adapter.json; do
    [ -s "out/model/$file" ] || failed "no out/model/$file"
    [ -s "out/checkpoints/step-4/$file" ] || failed "no out/checkpoints/step-4/$file"
done
says out/model/adapter_config.json '"peft_type": "LORA"'
says out/model/adapter_config.json '"model.norm"'
! grep -q modules_to_save out/model/mlp-head/adapter_config.json ||
    failed "modules of the base beside the mlp-head" out/model/mlp-head/adapter_config.json
says out/checkpoints/step-4/manifest.json '"mlp-head/adapter_model.safetensors"'
! grep -qF mlp_head out/model/adapter_model.safetensors || failed "PEFT's file has what PEFT does not know"
! grep -qF -e lora -e norm out/model/mlp-head/adapter_model.safetensors || failed "the head's file has what is another's"

# ---- reading, completely and in part

with=$(loss out)
bare=$(loss plain.ini)
[ "$with" != "$bare" ] || failed "two adapters learned nothing"
near "plugins as the directory lists them" 1e-9 "$with" "$(loss plain.ini --adapter out/model)"
near "plugins as the configuration lists them" 1e-9 "$with" "$(loss stack.ini --adapter out/model)"
[ "$(loss plain.ini --adapter out/model/mlp-head)" != "$with" ] || failed "one of two is both"
refused "out/model contains lora, mlp-head, and [adapter] plugin is mlp-head, lora" \
    "$weft" eval stack.ini --adapter out/model adapter.plugin=mlp-head,lora
refused "out/model contains lora, mlp-head, and [adapter] plugin is lora" "$weft" eval plain.ini --adapter out/model adapter.plugin=lora
refused "out/model/mlp-head contains one adapter, and [adapter] plugin is lora, mlp-head" "$weft" eval stack.ini --adapter out/model/mlp-head
refused "out/model/mlp-head/adapter_config.json has width = 24: " \
    "$weft" eval stack.ini --adapter out/model adapter.mlp-head.width=25
train run.out=again train.steps=1 optimizer.lr=0 checkpoint.every=none adapter.from=out/model $part
same_tensors "adapters that were read and saved" out/model again/model
limit "$weft" generate out --prompt e2 --tokens 8 --temperature 0 --json >a.txt 2>log || failed "generate" log
limit "$weft" generate out --prompt e2 --tokens 8 --temperature 0 --json --no-cache >b.txt 2>log || failed "generate again" log
cmp -s a.txt b.txt || failed "with the cache and without" a.txt b.txt

# ---- one adapter continues, and another one starts with it

train run.out=part adapter.plugin=lora checkpoint.every=none $part
still="train.steps=1 optimizer.lr=0 checkpoint.every=none"
cp -r part/model theirs # as saved by PEFT
rm theirs/weft_adapter.json
for from in part/model theirs; do
    train run.out=joined $still adapter.from=$from
    cmp -s part/model/adapter_model.safetensors joined/model/adapter_model.safetensors || failed "lora of $from is another beside a new head"
    [ -s joined/model/mlp-head/adapter_model.safetensors ] || failed "no new head beside lora of $from"
    near "a new head beside lora of $from" 1e-9 "$(loss part)" "$(loss joined)"
    refused "$from contains one adapter, and [adapter] plugin is lora, mlp-head" "$weft" eval stack.ini --adapter $from
done
train run.out=joined $still adapter.from=out/model/mlp-head
cmp -s out/model/mlp-head/adapter_model.safetensors joined/model/mlp-head/adapter_model.safetensors || failed "the head is another beside a new lora"
cp -r out/model/mlp-head nobodys
rm nobodys/weft_adapter.json
refused "nobodys/adapter_config.json: peft_type = " "$weft" plan stack.ini adapter.from=nobodys adapter.plugin=lora
refused "nobodys contains one adapter, and [adapter] plugin is lora, ia3" "$weft" plan stack.ini adapter.from=nobodys adapter.plugin=lora,ia3
train run.out=joined adapter.from=part/model
train run.out=halted adapter.from=part/model train.steps=2
limit "$weft" train stack.ini --resume run.out=halted adapter.from=part/model >log 2>&1 || failed "a resume of one that went on and one that began" log
same_tensors "one that went on and one that began, resumed" joined/model halted/model
[ "$(loss joined)" != "$(loss part)" ] || failed "one that went on and one that began learned nothing"

# ---- a resume, and the files removed by --overwrite

train run.out=parts $part train.steps=2
limit "$weft" train stack.ini --resume run.out=parts $part >log 2>&1 || failed "a resume" log
same_tensors "after a resume" out/model parts/model
limit "$weft" train stack.ini --resume run.out=parts $part train.steps=5 adapter.plugin=lora >log 2>&1 && failed "one of two was resumed"
says log "adapter plugin 2"
echo mine >parts/model/mlp-head/notes
refused "no run wrote $dir/parts/model/mlp-head/notes" "$weft" train stack.ini --overwrite run.out=parts

train run.out=turned adapter.plugin=mlp-head,lora train.steps=1 checkpoint.every=none
grep -q '"peft_type": "LORA"' turned/model/adapter_config.json && [ -s turned/model/mlp-head/adapter_config.json ] ||
    failed "the second one, which PEFT knows, does not lie in front" turned/model/adapter_config.json

# ---- merging: mergeable adapters are merged, the head is copied

limit "$weft" merge base out/model merged >log 2>&1 || failed "merge" log
says log "unmerged   merged/mlp-head, an adapter of the merged model"
near "a merged model with its head" 1e-5 "$with" "$(loss plain.ini model.path=merged adapter.from=merged/mlp-head)"
[ "$(loss plain.ini model.path=merged)" != "$with" ] || failed "a merged model without its head is the same"
refused "was made on other weights than those in" "$weft" eval plain.ini --adapter merged/mlp-head
train run.out=attended adapter.plugin=lora,prefix train.steps=1 checkpoint.every=none
refused "cannot be merged into a model's weights" "$weft" merge base attended/model never
[ ! -e never ] || failed "a refused merge left something"
train run.out=two adapter.plugin=ia3,lora adapter.lora.targets=q_proj,v_proj checkpoint.every=none
limit "$weft" merge base two/model both >log 2>&1 || failed "merge two" log
refused "targets or feedforward select other modules than $dir/two/model/adapter_config.json" \
    "$weft" eval two adapter.ia3.targets=down_proj
near "two that are merged" 1e-5 "$(loss two)" "$(loss plain.ini model.path=both)"

# ---- several ranks

has mpich || exit $((failures > 0))
train run.out=many $part comm.plugin=mpi-mpich strategy.plugin=fsdp policy.plugin=class policy.classes=Linear --ranks 3
same_tensors "on three ranks" out/model many/model
if is_full; then
    limit "$weft" prove stack.ini comm.plugin=mpi-mpich --ranks 3 --steps 2 >out.txt 2>err.txt || failed prove out.txt err.txt
    says out.txt " equal, 0 not covered, 0 different"
fi
exit $((failures > 0))
