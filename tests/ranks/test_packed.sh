#!/bin/sh
# A model with frozen linears in 8-bit blocks, and trained norms, embedding and adapter. It is held, sharded,
# gathered and saved packed, has one result under all strategies, is planned to the byte, resumes on other
# ranks, and computes the same as with unpacked linears. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins"

make_model model 64 16 128 3 521
make_text 60
cat >run.ini <<'INI'
[run]
out = out
[model]
plugin = packed
path   = model
start  = fresh
[tokenizer]
[data]
path       = games.txt
document   = line
context    = 32
validation = 5
[train]
steps        = 6
global_batch = 12
micro_batch  = 1
clip         = 0.5
trainable    = model.embed_tokens.weight, *norm.weight, adapter
[eval]
every = none
[optimizer]
plugin = adamw
lr     = 3e-3
[adapter]
plugin = lora
[adapter.lora]
r       = 4
targets = q_proj, down_proj
[device]
threads = 1
INI
train() { # train argument...: a run, with its output in log
    limit "$weft" train run.ini --overwrite "$@" >log 2>&1
}

# ---- errors

refused "[train] trainable = all trains 'model.layers.0.self_attn.q_proj.weight', which is stored in int8x64" \
    "$weft" train run.ini train.trainable=all
refused "cannot be trained. Fix: name others" "$weft" plan run.ini train.trainable=last:1
refused "[device] plugin = plain does not multiply weights stored in int8x64, as 'model.layers.0.self_attn.q_proj.weight' is" \
    "$weft" train run.ini device.plugin=plain
sed 's/"intermediate_size": 128/"intermediate_size": 96/' model/config.json >config.json
cp -r model odd
mv config.json odd/config.json
refused "'model.layers.0.mlp.down_proj' with the storage int8x64 and rows of 96 elements. Allowed: a multiple of its blocks of 64" \
    "$weft" plan run.ini model.path=odd

# ---- packed on one rank: memory, printing, saving, reading

train run.out=one checkpoint.every=3 || failed "one rank" log
"$weft" plan run.ini --json >plan.json 2>log || failed "a plan" log
linears=$((3 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)))
bytes=$((linears / 64 * 68))
says plan.json '"type": "int8x64"'
tr -d ' \n' <plan.json | grep -qF "\"type\":\"int8x64\",\"parameters\":$linears,\"bytes\":$bytes" ||
    failed "a plan with $linears packed parameters in $bytes bytes" plan.json
prints "$weft" plan run.ini
says printed "int8x64"
"$WEFT_BUILD/tests/rank_unpack" one/model/model.safetensors unpacked.safetensors >said 2>&1 || failed "unpack" said
says said "21 packed, $bytes bytes"
grep -qE 'q_proj.weight":\{"dtype":"U8","shape":\[64,1,68\]' one/model/model.safetensors ||
    failed "the linears of a saved model are not packed"

# A model is evaluated and generates without a message about training, position by position and in one pass.
ready="train.trainable=all model.path=one/model model.start=weights"
"$weft" eval run.ini $ready >log 2>&1 || failed "eval" log
"$weft" generate run.ini $ready --prompt e2 --tokens 8 --json >text.txt 2>log || failed "generate" log
"$weft" generate run.ini $ready --prompt e2 --tokens 8 --json --no-cache >whole.txt 2>log || failed "generate at once" log
grep -q '"ids"' text.txt && cmp -s text.txt whole.txt || failed "another text without the cache" text.txt whole.txt

# The next run starts with exactly the saved weights.
still="train.steps=1 optimizer.plugin=sgd optimizer.lr=0 model.start=weights adapter.plugin=none
    train.trainable=model.embed_tokens.weight,*norm.weight"
train run.out=again $still model.path=one/model || failed "from a saved model" log
cmp -s one/model/model.safetensors again/model/model.safetensors || failed "a model that was read and saved is another"

# ---- the same with plain linears of the decoded numbers: equal losses within rounding, in every step

cp -r one/model plain
mv unpacked.safetensors plain/model.safetensors
train run.out=a model.path=one/model model.start=weights || failed "packed from a file" log
train run.out=b model.plugin=plain model.path=plain model.start=weights || failed "plain from a file" log
agree "packed and plain linears" 2e-6 a b
train run.out=a16 model.path=one/model model.start=weights train.precision=bf16 || failed "packed in bf16" log
train run.out=b16 model.plugin=plain model.path=plain model.start=weights train.precision=bf16 || failed "plain in bf16" log
agree "packed and plain linears in bf16" 1e-3 a16 b16
agree "packed linears in bf16 and in fp32" 1e-2 a16 a
train run.out=c model.path=plain model.start=weights || failed "packed from numbers" log
agree "packed from what was packed" 1e-4 c a

# On a device that executes late.
WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_PLUGIN_PATH" train run.out=late checkpoint.every=3 || failed "late" log
same_tensors "the late device has other bits" one late

# ---- several ranks

has mpich || exit $((failures > 0))
export MPI=comm.plugin=mpi-mpich
prove() { # prove CELLS argument...: this number of cells, all equal
    cells=$1
    shift
    "$weft" prove run.ini $MPI --ranks 3 --steps 2 "$@" >out.txt 2>err.txt || failed "prove $*" out.txt err.txt
    says out.txt "$cells equal, 0 not covered, 0 different"
}
prove 38
grep -q "3  fsdp full" out.txt || failed "no fsdp on 3 ranks" out.txt
! is_full || prove 38 model.path=plain model.start=weights train.precision=bf16 train.trainable=adapter

for strategy in fsdp $(! is_full || echo ddp mp); do
    "$weft" plan run.ini $MPI strategy.plugin=$strategy --ranks 3 --json --print-links >plan.json 2>log || failed "plan $strategy" log
    train run.out=three $MPI strategy.plugin=$strategy --ranks 3 checkpoint.every=3 || failed "$strategy" log
    "$WEFT_BUILD/tests/rank_plan" plan.json three/ranks.json >said 2>&1 || failed "plan and run differ: $strategy" said
    same_tensors "$strategy has other bytes than one rank" one three
done

# Packing does not depend on the reading rank.
train run.out=again $still model.path=plain || failed "from numbers" log
train run.out=three $still model.path=plain $MPI strategy.plugin=fsdp --ranks 3 || failed "from numbers, on 3 ranks" log
same_tensors "numbers packed by three ranks" again/model three/model

# Three ranks, then two: the same result.
train run.out=many $MPI strategy.plugin=fsdp --ranks 3 train.steps=3 checkpoint.every=3 || failed "three steps on 3 ranks" log
limit "$weft" train run.ini --resume run.out=many $MPI strategy.plugin=fsdp strategy.shard=optimizer --ranks 2 checkpoint.every=3 >log 2>&1 ||
    failed "a resume on 2 ranks" log
same_tensors "resumed on other ranks" one/model many/model
same_tensors "resumed on other ranks, its checkpoint" one/checkpoints/step-6 many/checkpoints/step-6
exit $((failures > 0))
