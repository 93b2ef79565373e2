#!/bin/sh
# Complete runs on several ranks: files with the same bytes for any number of ranks; a run that is killed,
# stopped and resumed on fewer ranks; and errors of one rank, reported once. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
has mpich || exit 77
export WEFT_PLUGIN_PATH="$dir/plugins:$WEFT_BUILD/plugins"
build_held_adamw

make_run <<'INI'
steps = 100
clip  = 1.0
[eval]
every = 10
[optimizer]
plugin = adamw
lr     = 1e-3
[checkpoint]
every = 10
keep  = 99
[device]
threads = 1
INI

train() { # train N OUT argument...: on N ranks, into OUT
    n=$1
    out=$2
    shift 2
    if [ "$n" != 1 ]; then set -- --ranks "$n" comm.plugin=mpi-mpich "$@"; fi
    limit "$weft" train run.ini "run.out=$out" "$@" >log 2>&1
}
once() { # once TEXT: exactly one line of the log contains it
    [ "$(grep -cF -- "$1" log)" = 1 ] || failed "not once: $1" log
}

# ---- the same bytes ----

train 1 single || failed "one rank" log
strategies() { # strategies WHAT argument...: equal to one rank with the same arguments; the quick suite takes the first row
    what=$1
    shift
    rm -rf one
    train 1 one train.steps=3 eval.every=none checkpoint.every=3 "$@" || failed "one rank, $what" log
    while read -r n rest; do
        rm -rf many
        # shellcheck disable=SC2086  # words on purpose
        train "$n" many train.steps=3 eval.every=none checkpoint.every=3 $rest "$@" </dev/null || failed "$n ranks, $rest, $what" log
        same_tensors "other bytes: $n ranks, $rest, $what" one many
        is_full || break
    done
}
strategies "fp32" <<'ROWS'
4 strategy.plugin=fsdp
3 strategy.plugin=ddp
4 strategy.plugin=fsdp strategy.shard=hybrid strategy.shard_group=2
4 strategy.plugin=fsdp strategy.root=replicated strategy.prefetch=2
4 strategy.plugin=fsdp strategy.root=replicated strategy.shard=hybrid strategy.shard_group=2
3 strategy.plugin=mp strategy.schedule=1f1b
ROWS
# Masters of all parameters, where frozen ones would lose bits in the saved dtype.
strategies "bf16" checkpoint.dtype=bf16 train.trainable=last:1 <<'ROWS'
4 strategy.plugin=fsdp strategy.shard=optimizer
3 strategy.plugin=fsdp
3 strategy.plugin=fsdp strategy.root=replicated
2 strategy.plugin=mp
ROWS
strategies "computed in bf16" train.precision=bf16 <<'ROWS'
3 strategy.plugin=fsdp strategy.root=replicated
ROWS

# A unit may contain parameters of two dtypes, and frozen and trained ones.
cp -r single/model mixed
rm mixed/model.safetensors
"$WEFT_BUILD/tests/rank_mix" single/model/model.safetensors mixed/model.safetensors 2>log || failed "a model of two types" log
strategies "two types, some frozen" model.path=mixed model.start=weights checkpoint.dtype=fp32 \
    train.trainable='model.layers.*.mlp.*,model.layers.1.self_attn.q_proj.weight,model.norm.weight' <<'ROWS'
3 strategy.plugin=ddp
4 strategy.plugin=fsdp
3 strategy.plugin=fsdp strategy.shard=optimizer
4 strategy.plugin=fsdp strategy.root=replicated
2 strategy.plugin=mp
ROWS

# ---- a run on 4, then 2, then 1 rank, killed and stopped ----

wait_for() { # wait_for PATH: while $process lives
    while [ ! -e "$1" ] && kill -0 "$process" 2>/dev/null; do sleep 0.02; done
    [ -e "$1" ]
}
start() { # start N STEP argument...: starts N ranks with the launcher, which block in STEP; rank R's process is in process.R
    command=$(launcher mpich "$1")
    export HOLD_AT="$2" HOLD_UNTIL="$dir/go"
    shift 2
    rm -f process.*
    # shellcheck disable=SC2016,SC2086  # words on purpose, and for the shell of each rank
    exec timeout 1200 $command sh -c 'echo $$ >process.$PMI_RANK; exec "$@"' sh "$weft" train run.ini \
        run.out=run comm.plugin=mpi-mpich train.steps=400 "$@" >log 2>&1
}

# When one is killed, the launcher may kill the others first.
start 4 12 strategy.plugin=fsdp &
process=$!
wait_for run/checkpoints/step-10 || failed "4 ranks come to step 10" log
for rank in 0 1 2 3; do kill -9 "$(cat "process.$rank")" 2>/dev/null || true; done
! wait $process || failed "ranks that were killed end well" log
[ "$(ls run/checkpoints | grep -v "^best$")" = step-10 ] || failed "4 ranks went on behind step 12" log

start 2 25 strategy.plugin=ddp --resume &
process=$!
wait_for run/checkpoints/step-20 || failed "2 ranks come to step 20" log
kill -TERM "$(cat process.1)"
: >go
status=0
wait $process || status=$?
[ $status = 75 ] || failed "a signal to one rank ends with $status" log
once "stopped by a signal after step"
once "resumed from"
last=$(find run/checkpoints -name 'step-*' | sed 's/.*step-//' | sort -n | tail -n 1)
[ "$last" -lt 100 ] || failed "stopped at $last, behind the end of what it is compared with" log
train 1 run --resume || failed "one rank goes on" log
for name in model checkpoints/step-10 checkpoints/step-20 checkpoints/step-100; do
    same_tensors "not the run that never stopped: $name" single/$name run/$name
done
cut -d' ' -f1-4 single/evaluations.jsonl >a.txt
cut -d' ' -f1-4 run/evaluations.jsonl >b.txt
cmp -s a.txt b.txt || { cat a.txt b.txt >log; failed "other losses of validation" log; }

# A non-deterministic strategy is reported, and recorded in the checkpoint.
train 2 fast strategy.plugin=ddp strategy.reduce=fast train.steps=2 checkpoint.every=2 || failed "reduce = fast" log
once "not covered"
grep -q '"the contract of equal bits": "not covered' fast/checkpoints/step-2/state/run.json || failed "the word is not kept" log
grep -q '"the contract of equal bits": "covered"' run/checkpoints/step-100/state/run.json || failed "the word is not kept" log

# ---- errors ----

refused() { # refused TEXT N OUT argument...: exit status 1, and the message once
    text=$1
    shift
    if train "$@"; then failed "not refused: $text" log; fi
    once "$text"
}
refused "already holds a run" 3 run strategy.plugin=fsdp
refused "was made by a run that differs" 3 run strategy.plugin=fsdp train.global_batch=6 --resume
mkdir locked
(
    flock 9
    refused "is in use by another run" 2 locked strategy.plugin=ddp
    exit $failures
) 9>locked/.lock || failures=$?
mkdir blocked
: >blocked/checkpoints && echo 'weft run' >blocked/.lock
refused "checkpoints/step-10 could not be saved" 2 blocked strategy.plugin=ddp --resume
cp -r run/model part
rm part/model.safetensors
refused "part: has neither model.safetensors" 2 new strategy.plugin=fsdp model.path=part model.start=weights

# A non-finite number: detected by any ranks, reported by one.
refused "the loss is not finite" 3 new strategy.plugin=fsdp optimizer.lr=1e30
rm -rf new
refused "the loss is not finite" 2 new strategy.plugin=mp optimizer.lr=1e30
rm -rf new

# Bytes damaged after the save: the previous checkpoint is used, whichever rank detects it.
rm -rf run/model
printf 'x' | dd of=run/checkpoints/step-100/state/exp_avg.safetensors bs=1 seek=20000 conv=notrunc 2>dd.txt
train 3 run strategy.plugin=fsdp --resume || failed "3 ranks go on" log
once "step-100 is passed over: "
once "is not the one that was saved"
same_tensors "not the run that never stopped" single/model run/model
rm -rf run/model
for left in run/checkpoints/step-*; do rm "$left/state/exp_avg.safetensors"; done
refused "holds no whole checkpoint" 2 run strategy.plugin=ddp --resume

# ---- the run's bits, and memory during a save ----

state() { # state N DIRECTORY STEPS run.ini argument...
    mkdir "$2"
    n=$1
    shift
    set -- "$@" comm.plugin=mpi-mpich
    # shellcheck disable=SC2046  # words on purpose
    limit $(launcher mpich "$n") "$WEFT_BUILD/tests/rank_state" "$@" >log 2>&1
}
alike() { # alike WHAT N DIRECTORY: N ranks have the hash of one rank
    [ "$(cut -d' ' -f1 "$3"/rank.* | sort | uniq -c | sed 's/^ *//')" = "$2 $(cut -d' ' -f1 lone/rank.0)" ] || {
        cat "$3"/rank.* >log
        failed "$1: not the hash of one rank" log
    }
}
mkdir lone
"$WEFT_BUILD/tests/rank_state" lone 2 run.ini >log 2>&1 || failed "the hash of one rank" log
state 4 four 2 run.ini strategy.plugin=fsdp || failed "the hash of 4 ranks" log
alike "fsdp" 4 four
state 3 three 2 run.ini strategy.plugin=ddp || failed "the hash of 3 ranks" log
alike "ddp" 3 three
same_tensors "other bytes" lone/step-2 four/step-2

# Three files of 60 MiB each: a rank that gathered one of them would exceed the permitted growth.
make_model big 384 96 88 3 38000
state 4 wide 0 run.ini model.path=big strategy.plugin=fsdp || failed "a larger model is saved" log
for file in model.safetensors state/exp_avg.safetensors; do
    [ "$(stat -c %s "wide/step-0/$file")" -gt 60000000 ] || failed "$file is smaller than what this is about" log
done
cat wide/rank.* >log
[ "$(wc -l <log)" = 4 ] || failed "not four ranks" log
while read -r _ grown; do [ "$grown" -le 24576 ] || failed "a rank grows by $grown KiB while it saves" log; done <log

[ "$failures" = 0 ] || exit 1
echo "checkpoints of several ranks hold"
