#!/bin/sh
# [model] base: frozen linears of the layers stored in nf4, nf4x64, int8 and fp8, packed while they are read,
# with trained lora, norms and embedding. Held, sharded, gathered and saved packed; one result under all
# strategies; planned to the byte; and the losses of the same model with unpacked linears. ctest sets
# WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins"

make_text 60
cat >run.ini <<'INI'
[run]
out = out
[model]
path = model
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
r = 3
[device]
threads = 1
INI
train() { # train argument...: a run, with its output in log
    limit "$weft" train run.ini --overwrite "$@" >log 2>&1
}

# Two unpacked models: one with rows of 40 and 88 numbers, so that blocks cross rows and the last one is
# partial, and one of complete blocks.
still="train.steps=1 optimizer.plugin=sgd optimizer.lr=0"
bare="adapter.plugin=none train.trainable=*norm.weight"
make_model fresh40 40 10 88 3 521
make_model fresh64 64 16 128 3 521
for size in 40 64; do
    train run.out=made model.start=fresh model.path=fresh$size $still $bare ||
        failed "a model of $size" log
    cp -r made/model numbers$size
done

# ---- errors

refused "[model] base = nf5 is not one of: auto,nf4,nf4x64,int8,fp8,bf16,fp16,fp32; did you mean nf4?" \
    "$weft" plan run.ini model.path=numbers40 model.base=nf5
refused "[model] base = nf4 is the storage type of frozen linears, and [train] trainable = all trains every linear" \
    "$weft" plan run.ini model.path=numbers40 model.base=nf4 train.trainable=all
refused "[model] base = int8 cannot store 'model.layers.0.self_attn.q_proj.weight': its rows of 40 numbers are not complete blocks of 64. Fix: nf4, nf4x64 or fp8, which allow rows of any length" \
    "$weft" plan run.ini model.path=numbers40 model.base=int8
refused "[model] base = bf16 is multiplied in bf16 only. Fix: set [train] precision = bf16" \
    "$weft" plan run.ini model.path=numbers40 model.base=bf16
refused "does not multiply weights stored in nf4" "$weft" train run.ini model.path=numbers40 model.base=nf4 device.plugin=plain

# ---- one base: its key, the model, bytes of a block, numbers of a block, minimum accuracy

check_base() { # check_base BASE SIZE TYPE BYTES NUMBERS NEAR
    base="model.base=$1 model.path=numbers$2"
    train run.out=one $base checkpoint.every=3 || failed "$1 on one rank" log
    "$weft" plan run.ini $base --json >plan.json 2>log || failed "a plan of $1" log
    blocks=0
    for numel in $(shapes "$2"); do blocks=$((blocks + (numel + $5 - 1) / $5)); done
    says plan.json "\"type\": \"$3\""
    tr -d ' \n' <plan.json | grep -qE "\"type\":\"$3\",\"parameters\":[0-9]+,\"bytes\":$((blocks * $4))[,}]" ||
        failed "a plan of $1 with $((blocks * $4)) bytes of blocks" plan.json
    train run.out=first $still $bare $base || failed "$1 without an adapter" log
    "$WEFT_BUILD/tests/rank_unpack" first/model/model.safetensors unpacked.safetensors numbers$2/model.safetensors >said 2>&1 ||
        failed "unpack $1" said
    says said "21 packed, $((blocks * $4)) bytes"

    # A saved model is read without a key, and with the same one. Another key is rejected, and so is training
    # the packed weights.
    ready="model.path=first/model"
    train run.out=again $still $bare $ready || failed "$1 from a saved model" log
    same_tensors "$1: a model that was read and saved" first/model again/model
    train run.out=again $still $bare $ready model.base=$1 || failed "$1 from a saved model, asked for" log
    same_tensors "$1: a model that was read and saved, as asked for" first/model again/model
    refused "is stored in $3 there. Fix: remove the line" "$weft" plan run.ini $ready model.base=$([ $1 = fp8 ] && echo nf4 || echo fp8)
    refused "trains 'model.layers.0.self_attn.q_proj.weight', which is stored in $3" \
        "$weft" plan run.ini $ready train.trainable=all
    alone="$ready adapter.plugin=none"
    "$weft" eval run.ini $alone train.trainable=all --json >read.txt 2>log || failed "eval of $1" log
    "$weft" generate run.ini $alone train.trainable=all --prompt e2 --tokens 8 --json >text.txt 2>log || failed "generate $1" log
    "$weft" generate run.ini $alone train.trainable=all --prompt e2 --tokens 8 --json --no-cache >whole.txt 2>log ||
        failed "generate $1 at once" log
    grep -q '"ids"' text.txt && cmp -s text.txt whole.txt || failed "$1: another text without the cache" text.txt whole.txt
    # An unpacked model is evaluated as it would be stored, whichever parameters would be trained.
    "$weft" eval run.ini adapter.plugin=none train.trainable=*norm.weight model.path=numbers$2 model.base=$1 --json >a.txt 2>log || failed "eval of numbers in $1" log
    "$weft" eval run.ini adapter.plugin=none model.path=numbers$2 model.base=$1 train.trainable=all --json >b.txt 2>log || failed "eval in $1" log
    "$weft" eval run.ini adapter.plugin=none train.trainable=*norm.weight model.path=numbers$2 --json >c.txt 2>log || failed "eval" log
    losses_of() { grep -o '"loss": *[0-9.e+-]*' "$1"; }
    [ "$(losses_of a.txt)" = "$(losses_of b.txt)" ] || failed "$1: eval looks at trainable" a.txt b.txt
    [ "$(losses_of a.txt)" != "$(losses_of c.txt)" ] || failed "$1: eval is of the numbers" a.txt c.txt

    # The same with plain linears of the decoded numbers: equal losses within rounding, in every step.
    rm -rf plain
    cp -r first/model plain
    mv unpacked.safetensors plain/model.safetensors
    train run.out=a $ready || failed "$1 from a file" log
    train run.out=b model.path=plain || failed "plain from a file" log
    agree "$1: packed and plain linears" 2e-6 a b
    train run.out=a16 $ready train.precision=bf16 || failed "$1 in bf16" log
    train run.out=b16 model.path=plain train.precision=bf16 || failed "plain in bf16" log
    agree "$1: packed and plain linears in bf16" 1e-3 a16 b16
    train run.out=c model.path=numbers$2 || failed "numbers" log
    agree "$1: packed from numbers, and numbers" $6 one c

    # DoRA: norms of the decoded blocks, from a file and while packing.
    train run.out=a $ready adapter.dora=yes || failed "dora on $1 from a file" log
    train run.out=b model.path=plain adapter.dora=yes || failed "dora on plain linears" log
    agree "$1: dora on packed and plain linears" 2e-6 a b
    train run.out=c $base adapter.dora=yes || failed "dora on $1 that is packed now" log
    same_tensors "$1: dora on what is packed now, and on what was" a c

    # Merging never packs again; with --dtype it uses the decoded numbers.
    refused "is stored in $3: " \
        "$weft" merge first/model a/model merged
    says log "Fix: --dtype bf16, fp16 or fp32"
    [ ! -e merged ] || failed "a refused merge left something"
    limit "$weft" merge first/model a/model merged --dtype fp32 >log 2>&1 || failed "merge $1" log
    "$weft" eval a --json >a.txt 2>log || failed "eval of $1 with its adapter" log
    "$weft" eval run.ini adapter.plugin=none train.trainable=all model.path=merged --json >b.txt 2>log || failed "eval of $1 merged" log
    { losses_of a.txt; losses_of b.txt; } | sed 's/.*: *//' |
        awk 'NR == 1 { a = $1 } END { d = a - $1; exit !(NR == 2 && d < 1e-5 && d > -1e-5) }' || failed "$1: merged is another model" a.txt b.txt
    rm -rf merged

    # On a device that executes late.
    WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_PLUGIN_PATH" train run.out=late $base checkpoint.every=3 || failed "late" log
    same_tensors "$1: the late device has other bits" one late

    # ---- several ranks: packing does not depend on the reading rank, one result, bytes as planned
    [ -n "$MPI" ] || return 0
    "$weft" prove run.ini $base $MPI --ranks 3 --steps 2 >out.txt 2>err.txt || failed "prove $1" out.txt err.txt
    says out.txt "38 equal, 0 not covered, 0 different"
    grep -q "3  fsdp full" out.txt || failed "no fsdp on 3 ranks" out.txt
    if is_full; then
        "$weft" prove run.ini $base adapter.dora=yes $MPI --ranks 3 --steps 2 >out.txt 2>err.txt || failed "prove dora on $1" out.txt err.txt
        says out.txt "38 equal, 0 not covered, 0 different"
    fi
    for strategy in $7; do
        train run.out=three $base $MPI strategy.plugin=$strategy --ranks 3 checkpoint.every=3 || failed "$strategy" log
        same_tensors "$1: $strategy has other bytes than one rank" one three
    done
    # Long sequences, so that the untouched padding of small tensors on the grid is negligible.
    roomy="$base $MPI strategy.plugin=fsdp --ranks 3 data.context=128 train.micro_batch=4 train.steps=2"
    "$weft" plan run.ini $roomy --json --print-links >plan.json 2>log || failed "plan $1" log
    train run.out=three $roomy || failed "$1 with longer rows" log
    "$WEFT_BUILD/tests/rank_plan" plan.json three/ranks.json >said 2>&1 || failed "$1: plan and run differ" said
}
shapes() { # shapes SIZE: number of elements of each linear
    case $1 in
    40) q=1600 k=800 m=3520 ;;
    64) q=4096 k=2048 m=8192 ;;
    esac
    for layer in 0 1 2; do echo $q $k $k $q $m $m $m; done
}

MPI=
has mpich && MPI=comm.plugin=mpi-mpich
check_base nf4 40 nf4 536 1024 0.05 "fsdp $(! is_full || echo ddp mp)"
! is_full || check_base nf4x64 40 nf4x64 36 64 0.05 fsdp # the short form is in adapter/test_bitsandbytes.py
! is_full || check_base fp8 40 fp8x128 132 128 0.02 fsdp
! is_full || check_base int8 64 int8x64 68 64 0.01 fsdp

# ---- resumed on other ranks, but not with another base

if [ -n "$MPI" ]; then
    base="model.base=nf4 model.path=numbers40"
    train run.out=one $base checkpoint.every=3 || failed "nf4 on one rank" log
    train run.out=many $base $MPI strategy.plugin=fsdp --ranks 3 train.steps=3 checkpoint.every=3 || failed "three steps on 3 ranks" log
    refused "[model] base is fp8, was nf4" "$weft" train run.ini --resume run.out=many model.base=fp8 model.path=numbers40
    limit "$weft" train run.ini --resume run.out=many $base $MPI strategy.plugin=fsdp strategy.shard=optimizer --ranks 2 checkpoint.every=3 >log 2>&1 ||
        failed "a resume on 2 ranks" log
    same_tensors "resumed on other ranks" one/model many/model
    same_tensors "resumed on other ranks, its checkpoint" one/checkpoints/step-6 many/checkpoints/step-6
fi

# ---- each linear in its own unit, so that base and adapter are communicated separately

if [ -n "$MPI" ] && is_full; then
    apart="model.base=nf4 model.path=numbers40 train.trainable=adapter policy.plugin=class policy.classes=Linear"
    "$weft" prove run.ini $apart $MPI --ranks 3 --steps 1 >out.txt 2>err.txt || failed "prove units of linears" out.txt err.txt
    says out.txt "38 equal, 0 not covered, 0 different"
    grep -q "fsdp full  *class" out.txt || failed "no fsdp with units of linears" out.txt
    train run.out=one $apart checkpoint.every=3 || failed "units of linears on one rank" log
    train run.out=three $apart $MPI strategy.plugin=fsdp --ranks 3 checkpoint.every=3 || failed "units of linears on 3 ranks" log
    same_tensors "units of linears have other bytes on 3 ranks" one three
fi

# ---- packed while it is read: the peak is the packed model and some chunks, not the unpacked numbers

beside() { # beside OUT: peak memory in bytes in addition to the plan
    peak=$(grep -o '"resident_peak": *[0-9]*' "$1/phases.jsonl" | grep -oE '[0-9]+$' | sort -n | tail -n 1)
    taken=$(tail -n 1 "$1/phases.jsonl" | grep -o '"taken": {[^}]*}' | grep -oE '[0-9]+' | awk '{ n += $1 } END { print n }')
    echo $((peak - taken))
}
make_model fresh512 512 64 2048 6 521 # 20 million numbers in its linears, 82 MB of fp32
train run.out=made model.start=fresh model.path=fresh512 $still $bare || failed "a model of 20 million" log
mv made/model numbers512
few="train.steps=1 train.global_batch=1 checkpoint.every=none $bare"
train run.out=small $few model.path=numbers40 model.base=nf4 || failed "nf4 of a small model" log
for base in nf4 $(! is_full || echo nf4x64 int8 fp8); do
    train run.out=large $few model.path=numbers512 model.base=$base || failed "$base of 20 million" log
    [ $(($(beside large) - $(beside small))) -lt 30000000 ] ||
        failed "$base: $(beside large) bytes beside what was planned, of a small model $(beside small)" log
done

# ---- bf16 and fp32: frozen parameters in that dtype, with or without a master

stored() { # stored TYPE argument...: number of elements of the linears in that dtype
    type=$1
    shift
    "$weft" plan run.ini --json train.precision=bf16 "$@" 2>log | tr -d ' \n' >plan.json
    grep -oE "\"type\":\"$type\",\"parameters\":[0-9]+" plan.json | grep -oE '[0-9]+$' || true
}
linears=$((3 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)))
[ "$(stored bf16 model.path=numbers64 model.base=bf16)" = $linears ] || failed "bf16 of fp32 files" plan.json
[ "$(stored bf16 model.path=numbers64)" = "" ] || failed "bf16 of fp32 files that nobody asked for" plan.json
train run.out=half $still model.path=numbers64 checkpoint.dtype=bf16 $bare || failed "a model in bf16" log
[ "$(stored bf16 model.path=half/model)" -ge $linears ] || failed "bf16 as the files have it" plan.json
[ "$(stored bf16 model.path=half/model model.base=fp32)" = "" ] || failed "fp32 of bf16 files" plan.json
train run.out=a16 model.path=half/model train.precision=bf16 model.base=fp32 || failed "fp32 under bf16" log
train run.out=b16 model.path=half/model train.precision=bf16 model.base=bf16 || failed "bf16 under bf16" log
same_tensors "a base of bf16 with masters and without" a16/model b16/model
exit $((failures > 0))
