#!/bin/sh
# fp16 with a loss scale: memory as planned, losses close to fp32. Skipped steps are counted, change no state
# and delay the schedule, on any number of ranks and after a resume on others. A scale at its minimum stops
# the run. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"
make_run <<'INI'
steps     = 8
clip      = 1.0
precision = fp16
schedule  = linear
warmup    = 2
[eval]
every = none
[checkpoint]
every = 2
keep  = 99
[device]
threads = 1
INI
train() { # train argument...: a run, with its output in log
    limit "$weft" train run.ini --overwrite "$@" >log 2>&1
}
field() { # field NAME OUT: values of all records
    grep -o "\"$1\": *[^,}]*" "$2/metrics.jsonl" | sed 's/.*: *//' | tr '\n' ' '
}

# ---- errors

refused "[train] loss_scale = 8 is not used: losses are only scaled with precision = fp16" \
    "$weft" train run.ini train.precision=bf16 train.loss_scale=8
refused "[train] loss_scale = 0.25 is below scale_floor = 1" "$weft" train run.ini train.loss_scale=0.25
refused "[strategy] reduce_dtype = fp16 rounds gradients to a type" \
    "$weft" train run.ini train.precision=fp32 strategy.reduce_dtype=fp16
refused "[train] weights = bf16 requires computation in bf16" \
    "$weft" train run.ini train.weights=bf16
refused "[model] base = fp16 is multiplied in fp16 only" "$weft" train run.ini train.precision=bf16 model.base=fp16

# ---- one rank

train run.out=one || failed "one rank" log
grep -q "^loss scale 65536 at the end; 0 steps skipped, 8 updates made" log || failed "no word of the scale" log
train run.out=wide train.precision=fp32 || failed "fp32" log
[ "$(field skipped_steps wide)" = "" ] || failed "fp32 has a scale"
echo "$(field loss one)$(field loss wide)" >losses.txt
awk '{ n = NF / 2; for (i = 1; i <= n; i++) { d = $i / $(n + i) - 1; if (d < 0) d = -d; if (d > worst) worst = d } exit !(worst > 0 && worst < 2e-3) }' \
    losses.txt || failed "losses of fp16 and of fp32" losses.txt
"$weft" plan run.ini >plan.txt 2>log || failed "a plan" log
total=$(grep -o 'total .* bytes' plan.txt | grep -o '[0-9,]* bytes')
bf16=$("$weft" plan run.ini train.precision=bf16 2>log | grep -o 'total .* bytes' | grep -o '[0-9,]* bytes')
wide=$("$weft" plan run.ini train.precision=fp32 2>log | grep -o 'total .* bytes' | grep -o '[0-9,]* bytes')
[ "$total" != "" ] && [ "$total" != "$wide" ] || failed "a plan of $total, in bf16 $bf16, in fp32 $wide"

# Skipped at the start, and again after the scale has grown: the schedule is delayed, as the records show.
skips="train.loss_scale=1.7e10 train.scale_backoff=0.00006103515625 train.scale_growth=16384 train.scale_every=3"
train run.out=skips $skips run.tensorboard=yes || failed "skipped steps" log
[ "$(field skipped skips)" = "true false false false true false false false " ] || failed "skipped: $(field skipped skips)" log
[ "$(field skipped_steps skips)" = "1 1 1 1 2 2 2 2 " ] || failed "counted: $(field skipped_steps skips)" log
set -- $(field lr one)
set -- "$1" "$1" "$2" "$3" "$4" "$4" "$5" "$6"
[ "$(field lr skips)" = "$* " ] || failed "rates: $(field lr skips), and not $*"
set -- $(field grad_norm skips)
[ "$1 $5" = "null null" ] && [ "$2" != null ] || failed "norms: $*"
grep -q "step 1 is skipped: gradients are not finite at loss scale 1.7e+10, which falls to" log || failed "nothing said" log
grep -q "^loss scale .* at the end; 2 steps skipped, 6 updates made" log || failed "no count at the end" log
grep -q '"skipped": 2' skips/checkpoints/step-8/state/run.json || failed "no count in the checkpoint"

# Resumed in the middle: the scale, its count of good steps and the skipped steps continue.
for from in $(is_full && echo 2 4 6 || echo 4); do
    train run.out=cut $skips train.steps=$from train.schedule=linear || failed "cut at $from" log
    limit "$weft" train run.ini --resume run.out=cut $skips >log 2>&1 || failed "resumed at $from" log
    [ "$(field skipped cut)" = "$(field skipped skips)" ] || failed "resumed at $from: skipped $(field skipped cut)"
    [ "$(field loss_scale cut)" = "$(field loss_scale skips)" ] || failed "resumed at $from: $(field loss_scale cut)"
done

# Only skipped steps, down to the minimum.
refused "the loss scale has fallen to" "$weft" train run.ini --overwrite run.out=floor train.loss_scale=1.7e10 \
    train.scale_floor=1e10

# A device that executes late, with replayed steps.
WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_PLUGIN_PATH" train run.out=late $skips run.replay=yes || failed "late" log
same_tensors "the late device has other bits" skips late
[ "$(field skipped late)" = "$(field skipped skips)" ] || failed "the late device skips $(field skipped late)"

# ---- several ranks

has mpich || exit $((failures > 0))
export MPI=comm.plugin=mpi-mpich
"$weft" prove run.ini $MPI --ranks $(is_full && echo 3 || echo 2) --steps 6 $skips >out.txt 2>err.txt || failed "prove" out.txt err.txt
grep -q " equal, 0 not covered, 0 different" out.txt || failed "prove" out.txt err.txt
if is_full; then
    "$weft" prove run.ini $MPI --ranks 2 --steps 2 strategy.reduce_dtype=fp16 >out.txt 2>err.txt || failed "prove, reduced in fp16" out.txt err.txt
    grep -q " equal, 0 not covered, 0 different" out.txt || failed "prove, reduced in fp16" out.txt err.txt
fi
for strategy in "fsdp strategy.root=replicated" "fsdp strategy.shard=optimizer" "ddp" "mp"; do
    train run.out=three $MPI --ranks 3 strategy.plugin=$strategy $skips || failed "$strategy" log
    same_tensors "$strategy has other bytes than one rank" skips three
    [ "$(field skipped three)" = "$(field skipped skips)" ] || failed "$strategy skips $(field skipped three)"
    is_full || break
done
"$weft" plan run.ini $MPI strategy.plugin=fsdp --ranks 3 --json --print-links >plan.json 2>log || failed "plan" log
train run.out=three $MPI strategy.plugin=fsdp --ranks 3 || failed "fsdp" log
"$WEFT_BUILD/tests/rank_plan" plan.json three/ranks.json >said 2>&1 || failed "plan and run differ" said
train run.out=fast $MPI strategy.plugin=ddp --ranks 2 strategy.reduce=fast strategy.reduce_dtype=fp16 || failed "fast" log
train run.out=many $MPI strategy.plugin=fsdp --ranks 3 $skips train.steps=4 || failed "3 ranks" log
limit "$weft" train run.ini --resume run.out=many $MPI strategy.plugin=fsdp --ranks 2 $skips >log 2>&1 || failed "2 ranks" log
same_tensors "another end after 3 and 2 ranks" skips/checkpoints/step-8 many/checkpoints/step-8
exit $((failures > 0))
