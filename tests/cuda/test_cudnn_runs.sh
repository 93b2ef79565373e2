#!/bin/sh
# Complete runs with attention = cudnn, on the emulator. Losses match own kernels within bf16's rounding, and bits are
# equal on any number of ranks and after a resume. Also: evaluation and generation, unsupported cases, missing
# libraries, and failing cuDNN calls with their messages. test_cudnn.c fails each call separately. ctest sets WEFT_BUILD
# and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_EMULATOR_DEVICES=4 WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
make_model model 32 8 56 2 512
make_text 40
cat >run.ini <<INI
[run]
out = out
[model]
plugin = llama
path   = $dir/model
start  = fresh
[tokenizer]
plugin = bpe
[data]
plugin   = text
path     = $dir/games.txt
document = line
context  = 32
lengths  = 16
[train]
steps        = 3
global_batch = 8
micro_batch  = 2
precision    = bf16
schedule     = constant
[checkpoint]
every = 1
[optimizer]
plugin = adamw
[device]
plugin    = cuda
workspace = 1Mi
attention = cudnn
cache     = $WEFT_BUILD/tests/cuda/compiled
INI
sed 's/"rms_norm_eps"/"sliding_window": 6, &/; s/LlamaForCausalLM/MistralForCausalLM/; s/"llama"/"mistral"/' \
    model/config.json >windowed.json
cp -r model windowed
mv windowed.json windowed/config.json

train() { # train OUT argument...
    to=$1
    shift
    limit "$weft" train run.ini run.out="$to" "$@" >"$to.log" 2>&1 || failed "train $to $*" "$to.log"
}
losses() { # losses DIRECTORY: of each step
    sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1/metrics.jsonl"
}
near() { # near A B: equally many losses, each within 2e-3, and not identical
    losses "$1" >a.txt
    losses "$2" >b.txt
    paste a.txt b.txt | awk 'NF != 2 { bad = 1 }
        { off = ($2 - $1) / $1; if (off < 0) off = -off; if (off > worst) worst = off }
        END { print NR " losses, at most " worst " apart"; exit bad || !(NR > 0 && worst <= 2e-3 && worst > 0) }' >log ||
        failed "losses of $2 beside those of $1" log
    cat log
}

# ---- numbers ----

for model in llama mistral; do
    of="model.plugin=$model model.path=$dir/model"
    [ $model = llama ] || of="model.plugin=$model model.path=$dir/windowed"
    # shellcheck disable=SC2086  # two words
    {
        train own.$model device.attention=split $of
        WEFT_EMULATOR_COUNTS=$dir/counts train by_cudnn.$model $of
    }
    near own.$model by_cudnn.$model
done
grep -q '^kernel cudnnBackendExecute' counts || failed "cuDNN was not asked" counts
train again train.steps=3
same_tensors "a second run" by_cudnn.llama/model again/model
# A different library is a different device for a resume, and so is a missing one.
refused "cuDNN 9.19.0" "$weft" train run.ini run.out=again train.steps=4 --resume device.attention=split

train ranks train.steps=1 --ranks 4 comm.plugin=nccl strategy.plugin=fsdp
train ranks train.steps=2 --ranks 2 comm.plugin=nccl strategy.plugin=mp strategy.schedule=1f1b --resume
train ranks train.steps=3 --resume
same_tensors "a run of 4, 2 and 1 ranks" by_cudnn.llama/model ranks/model
limit "$weft" prove run.ini --ranks 4 --steps 1 comm.plugin=nccl train.global_batch=4 train.micro_batch=1 >log 2>&1 ||
    failed "prove" log
grep -q ": \([0-9]*\) equal, 0 not covered, 0 different" log || failed "prove: not all are equal" log

prints "$weft" eval by_cudnn.llama # it uses no log-sum-exp
for way in "" --no-cache; do
    # shellcheck disable=SC2086  # no word, or one
    prints "$weft" generate by_cudnn.llama $way --prompt "1 2 3" --tokens 8 --temperature 0
    mv printed "text$way"
done
cmp text text--no-cache || failed "texts differ with a cache, which is for own kernels, and without" text text--no-cache

# ---- unsupported cases ----

refused "attention = cudnn supports only bf16" "$weft" train run.ini run.out=wide train.precision=fp32
sed 's/"head_dim": 8/"head_dim": 12/' model/config.json >odd.json
cp -r model odd
mv odd.json odd/config.json
refused "cuDNN 9.19.0 has no plan for 2 sequences of 32 positions, 4 heads, 2 of keys, of 12 numbers each (it has no engine for it). Fix: set attention = auto." \
    "$weft" train run.ini run.out=odd.run model.path="$dir/odd" data.lengths=

# ---- missing library or function ----

lacks() { # lacks FROM TO TEXT: names of equal length
    mkdir -p broken
    sed "s/$1/$2/g" "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" >broken/weft-device-cuda.so
    rm -rf none
    refused "$3" env WEFT_PLUGIN_PATH="$dir/broken:$WEFT_PLUGIN_PATH" "$weft" train run.ini run.out=none
    [ ! -e none/model ] || failed "$3: there is a model"
    limit env WEFT_PLUGIN_PATH="$dir/broken:$WEFT_PLUGIN_PATH" "$weft" train run.ini run.out=none train.steps=1 \
        device.attention=split >log 2>&1 || failed "own kernels without $1" log
}
lacks 'libcudnn\.so\.9' libcudnn.so.0 \
    "libcudnn.so.0 was not found, and attention = cudnn needs it. Fix: install the Python package nvidia-cudnn"
lacks cudnnGetLastErrorString cudnnGetLastErrorStrinX \
    "libcudnn.so.9 has no function cudnnGetLastErrorStrinX, so it is too old for attention = cudnn"

# ---- failing calls ----

# one.sh RANKS CALL WHICH
cat >one.sh <<'SH'
ranks=$1 call=$2 which=$3
work=run.$ranks.$call.$which
set -- train run.ini run.out="$work" train.steps=1 train.global_batch=4 data.lengths=
if [ "$ranks" != 1 ]; then
    export WEFT_EMULATOR_FAIL_RANK=$((ranks - 1))
    set -- "$@" --ranks "$ranks" comm.plugin=nccl strategy.plugin=fsdp
fi
status=0
WEFT_EMULATOR_FAIL=$call:$which=5000 timeout 1200 "$WEFT_BUILD/weft" "$@" >"$work.txt" 2>&1 || status=$?
wrong=
case $status.$call in
0.*Destroy*) # nothing needs what they give back
    grep -q "weft: error: .*$call on device cuda answered 5000\." "$work.txt" || wrong="is not told"
    ;;
1.*) grep -q "$call.*CUDNN_STATUS_EXECUTION_FAILED" "$work.txt" || wrong="is told in no sentence" ;;
124.*) wrong="hangs" ;;
*) wrong="ends with status $status" ;;
esac
case $call in
*Destroy* | cudnnCreate) ;;
*) grep -q "FORWARD layers.[01].attn micro-batch" "$work.txt" || wrong="is told without its unit" ;;
esac
case $ranks.$call in
1.* | *Destroy*) ;;
*) grep -qE "^\[$((ranks - 1))\] weft.*$call|rank $((ranks - 1)): .*$call" "$work.txt" || wrong="is not told by its rank" ;;
esac
if grep -qE 'not released|cuda emulator:|signal [0-9]' "$work.txt"; then wrong="leaves or breaks something"; fi
[ -n "$wrong" ] || { rm -rf "$work" "$work.txt"; exit 0; }
{
    echo "$call, call $which on one of $ranks ranks, $wrong:"
    sed 's/^/    /' "$work.txt"
} >"$work.wrong"
SH
: >list
for ranks in 1 2; do
    set -- train.steps=1 train.global_batch=4 data.lengths= # makes no plan without use
    [ $ranks = 1 ] || set -- "$@" --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
    rm -f counts
    WEFT_EMULATOR_COUNTS=$dir/counts WEFT_EMULATOR_FAIL_RANK=$([ $ranks = 1 ] || echo 1) train whole.$ranks "$@"
    awk '$1 == "call" && $2 ~ /^cudnn/ { if ($3 > n[$2]) n[$2] = $3 } END { for (c in n) print c, n[c] }' counts >calls
    step=1000000
    if is_full; then step=$((ranks * 10)); fi
    while read -r call n; do
        { seq 1 $step "$n"; [ $ranks = 2 ] || echo "$n"; } | sort -nu | sed "s/^/$ranks $call /" >>list
    done <calls
done
[ "$(wc -l <list)" -ge 20 ] || failed "few calls are counted" list
xargs -P "$(nproc)" -L 1 sh one.sh <list
for file in run.*.wrong; do
    [ ! -e "$file" ] || failed "$(head -n 1 "$file")" "$file"
done
echo "$(wc -l <list) calls failed, one at a time"
exit $((failures > 0))
