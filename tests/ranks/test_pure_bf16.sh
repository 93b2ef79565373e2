#!/bin/sh
# Weights trained in bf16 without masters: memory as planned. Losses are close to those of a run with masters
# if rounding errors are compensated, and worse if not. Same bytes on any number of ranks, and the same result
# after a resume on others. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"
make_run <<'INI'
steps     = 6
clip      = 1.0
precision = bf16
weights   = bf16
[eval]
every = none
[optimizer]
plugin = anyprecision
lr     = 1e-3
[checkpoint]
every = 3
keep  = 99
[device]
threads = 1
INI
train() { # train argument...: a run, with its output in log
    limit "$weft" train run.ini --overwrite "$@" >log 2>&1
}
last_loss() { # last_loss OUT
    grep -o '"loss": *[0-9.e+-]*' "$1/metrics.jsonl" | tail -n 1 | sed 's/.*: *//'
}

refused "[train] weights = bf16 requires computation in bf16" \
    "$weft" train run.ini train.precision=fp32

# ---- one rank

train run.out=one || failed "one rank" log
"$weft" plan run.ini >plan.txt 2>log || failed "a plan" log
grep -q "67,200 parameters in bf16 (134,400 bytes)" plan.txt || failed "a plan with all parameters in bf16" plan.txt

# Thirty steps with updates mostly below half of a weight's last bit: progress compared to a run that loses
# them.
slow() { # slow OUT argument...
    out=$1
    shift
    train run.out=$out train.steps=30 checkpoint.every=none optimizer.lr=1e-5 optimizer.weight_decay=0 "$@" || failed "$out" log
}
slow kept
slow lossy optimizer.use_kahan_summation=no
slow masters train.weights=fp32 optimizer.plugin=adamw
slow still train.weights=fp32 optimizer.plugin=adamw optimizer.lr=0
echo "$(last_loss still) $(last_loss masters) $(last_loss kept) $(last_loss lossy)" >ends.txt
awk '{ all = $1 - $2; exit !(all > 0 && $1 - $3 > 0.9 * all && $1 - $3 < 1.1 * all && $1 - $4 < 0.5 * all) }' ends.txt ||
    failed "losses without any step, with masters, with compensation, without" ends.txt

# A bf16 checkpoint is complete without a masters file. An fp32 checkpoint has the same numbers.
train run.out=narrow checkpoint.dtype=bf16 || failed "saved in bf16" log
[ ! -e narrow/checkpoints/step-6/state/master.safetensors ] || failed "masters of what has none"
train run.out=again train.steps=1 optimizer.lr=0 model.start=weights model.path=narrow/model || failed "from what was saved" log
same_tensors "a model that was read and saved" narrow/model again/model

# Gains are read in fp32, on a device that executes late.
WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_PLUGIN_PATH" train run.out=late || failed "late" log
same_tensors "the late device has other bits" one late

# With frozen parameters, and with an optimizer that does not support it.
train run.out=head train.trainable=last:1 optimizer.plugin=sgd optimizer.momentum=0.9 optimizer.states=8bit ||
    failed "a part that is trained by sgd" log

# ---- several ranks

has mpich || exit $((failures > 0))
export MPI=comm.plugin=mpi-mpich
"$weft" prove run.ini $MPI --ranks $(is_full && echo 3 || echo 2) --steps 2 train.trainable=last:2 >out.txt 2>err.txt || failed "prove" out.txt err.txt
grep -q " equal, 0 not covered, 0 different" out.txt || failed "prove" out.txt err.txt
for strategy in "fsdp strategy.root=replicated" "fsdp strategy.shard=optimizer" "ddp" "mp"; do
    train run.out=three $MPI --ranks 3 strategy.plugin=$strategy || failed "$strategy" log
    same_tensors "$strategy has other bytes than one rank" one three
    is_full || break
done
"$weft" plan run.ini $MPI strategy.plugin=fsdp --ranks 3 --json --print-links >plan.json 2>log || failed "plan" log
train run.out=three $MPI strategy.plugin=fsdp --ranks 3 || failed "fsdp" log
"$WEFT_BUILD/tests/rank_plan" plan.json three/ranks.json >said 2>&1 || failed "plan and run differ" said
train run.out=many $MPI strategy.plugin=fsdp --ranks 3 train.steps=3 || failed "3 ranks" log
limit "$weft" train run.ini --resume run.out=many $MPI strategy.plugin=fsdp --ranks 2 >log 2>&1 || failed "2 ranks" log
same_tensors "another end after 3 and 2 ranks" one/checkpoints/step-6 many/checkpoints/step-6
exit $((failures > 0))
