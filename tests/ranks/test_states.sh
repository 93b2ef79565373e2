#!/bin/sh
# Optimizer states in bf16 and in 8-bit blocks: same bytes on any number of ranks, memory as planned, the same
# result after a resume on other ranks, losses close to fp32, and a message if a checkpoint has other states.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"
make_run <<'INI'
steps = 6
clip  = 1.0
[eval]
every = none
[optimizer]
plugin = adamw
lr     = 3e-3
[checkpoint]
every = 3
keep  = 99
[device]
threads = 1
INI
train() { # train argument...: a run, with its output in log
    limit "$weft" train run.ini --overwrite "$@" >log 2>&1
}
optimizer_bytes() { # optimizer_bytes argument...: optimizer memory in the plan
    "$weft" plan run.ini "$@" 2>>log | awk '$1 == "optimizer" { gsub(",", "", $(NF - 1)); print $(NF - 1) }'
}

# ---- bytes and numbers, on one rank

train run.out=fp32 || failed "fp32" log
whole=$(optimizer_bytes optimizer.states=fp32)
for states in bf16 8bit; do
    train run.out=$states optimizer.states=$states || failed "$states" log
    losses fp32 >a.txt
    losses $states >b.txt
    paste a.txt b.txt | awk '
        { apart = $1 > $2 ? $1 - $2 : $2 - $1; if (apart > 0.002 * $1) bad = 1; if (apart > 0) other = 1 }
        NR == 1 { first = $1 }
        END { exit bad || !other || NR != 6 || $1 >= first }' ||
        { paste a.txt b.txt >log; failed "losses of states in $states, which are near fp32's and others" log; }
done
[ "$(optimizer_bytes optimizer.states=bf16)" = $((whole / 2)) ] || failed "bf16 states do not take half of $whole bytes" log
# 67,033 numbers on a grid of 256 elements, to which each tensor is padded: 260 bytes per 256 elements, for
# two states.
eight=$(optimizer_bytes optimizer.states=8bit)
[ "$eight" -gt $((whole / 4)) ] && [ "$eight" -lt $((whole * 28 / 100)) ] && [ $((eight / 2 % 64)) = 0 ] ||
    failed "8-bit states take $eight of $whole bytes" log
grep -q '"dtype":"BF16"' bf16/checkpoints/step-6/state/exp_avg.safetensors || failed "a checkpoint's bf16 state is not BF16"
grep -q '"dtype":"U8","shape":\[1,[0-9]*,260\]' 8bit/checkpoints/step-6/state/exp_avg_sq.safetensors ||
    failed "a checkpoint's 8-bit state is not in blocks"

# An optimizer that does not support it.
train run.out=sgd optimizer.plugin=sgd optimizer.momentum=0.9 optimizer.states=8bit || failed "sgd" log
grep -q '"shape":\[1,[0-9]*,260\]' sgd/checkpoints/step-6/state/*.safetensors || failed "sgd's momentum is not in blocks"

# On a device that executes late.
WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_PLUGIN_PATH" train run.out=late optimizer.states=8bit || failed "late" log
same_tensors "the late device has other bits" 8bit late

# A stopped run resumes to the same result.
train run.out=part optimizer.states=8bit train.steps=3 || failed "three steps" log
limit "$weft" train run.ini --resume run.out=part optimizer.states=8bit >log 2>&1 || failed "a resume" log
same_tensors "resumed" 8bit/checkpoints/step-6 part/checkpoints/step-6

# Other states in a checkpoint are reported; plain numbers are rounded if accepted, blocks are not created.
rm -rf other && cp -r fp32 other && rm -rf other/checkpoints/step-6
refused "state exp_avg is bf16, was (none)" "$weft" train run.ini --resume run.out=other optimizer.states=bf16
limit "$weft" train run.ini --resume=inexact run.out=other optimizer.states=bf16 >log 2>&1 || failed "rounded states" log
rm -rf other && cp -r fp32 other && rm -rf other/checkpoints/step-6
refused "has 'model.embed_tokens.weight' in another type than dyn8x256" \
    "$weft" train run.ini --resume=inexact run.out=other optimizer.states=8bit
refused "states = half" "$weft" train run.ini optimizer.states=half

# ---- several ranks

has mpich || exit $((failures > 0))
export MPI=comm.plugin=mpi-mpich
both=$(is_full && echo "bf16 8bit" || echo 8bit)
for states in $both; do
    "$weft" prove run.ini $MPI --ranks 3 --steps 2 optimizer.states=$states >out.txt 2>err.txt || failed "prove $states" out.txt err.txt
    grep -q " equal, 0 not covered, 0 different" out.txt || failed "prove $states" out.txt err.txt
done
for strategy in fsdp $(! is_full || echo mp); do
    "$weft" plan run.ini $MPI optimizer.states=8bit strategy.plugin=$strategy --ranks 3 --json --print-links >plan.json 2>log ||
        failed "plan $strategy" log
    train run.out=three $MPI optimizer.states=8bit strategy.plugin=$strategy --ranks 3 || failed "$strategy" log
    "$WEFT_BUILD/tests/rank_plan" plan.json three/ranks.json >said 2>&1 || failed "plan and run differ: $strategy" said
    same_tensors "$strategy has other bytes than one rank" 8bit three
done
for states in $both; do # four ranks, then two, then one
    fsdp="optimizer.states=$states strategy.plugin=fsdp"
    train run.out=many $MPI $fsdp --ranks 4 train.steps=2 checkpoint.every=1 || failed "4 ranks" log
    limit "$weft" train run.ini --resume run.out=many $MPI $fsdp --ranks 2 train.steps=4 checkpoint.every=1 >log 2>&1 ||
        failed "2 ranks" log
    limit "$weft" train run.ini --resume run.out=many optimizer.states=$states >log 2>&1 || failed "1 rank" log
    same_tensors "other ends after 4, 2 and 1 ranks, $states" $states/checkpoints/step-6 many/checkpoints/step-6
done
exit $((failures > 0))
