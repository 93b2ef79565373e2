#!/bin/sh
# A disk that becomes full during a save, at each call of the save in turn, loses no data: the run reports the
# failed write, the previous checkpoint is unchanged, no partial file remains, and a resume has the same bits.
# The same for a record, and for an unreadable one. Then a resume with one failing read call, each in turn and
# on each rank, stops or has the bits of an undisturbed run. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # a process cannot be traced two times
fail_calls=$WEFT_BUILD/tests/fail_calls

make_model model 16 4 24 1 512
make_text 40
cat >run.ini <<'INI'
[model]
plugin = llama
path   = model
start  = fresh
[data]
path     = games.txt
document = line
context  = 32
[train]
steps        = 4
global_batch = 4
micro_batch  = 2
[optimizer]
plugin = adamw
[device]
threads = 1
[checkpoint]
every = 2
INI
train() { # train OUT ARGUMENT...
    out=$1
    shift
    "$weft" train run.ini "run.out=$out" --quiet "$@"
}
train whole || failed "the run itself"

# ---- a save: its calls, and the following ones until the final model is written
status=0
"$fail_calls" ENOSPC change counted/ step-4 0 "$weft" train run.ini run.out=counted --quiet || status=$?
[ "$status" != 77 ] || { cat calls.txt 2>/dev/null; exit 77; }
[ "$status" = 0 ] || failed "a run that is watched"
saved=$(grep -n ' rename .*/\.step-4\.tmp$' calls.txt | cut -d: -f1)
[ "$saved" -gt 40 ] || failed "calls of a save are missed" calls.txt
# The quick suite uses the first call of each kind and the rename, the full one all calls.
if is_full; then seq "$((saved + 1))" >chosen
else head -n "$((saved + 1))" calls.txt | awk -v rename="$saved" '!seen[$2]++ || $1 == rename { print $1 }' >chosen
fi

results() { # results FILE: the time-independent fields of each record
    grep -o '^{"step": .*"grad_norm": [^,]*, "tokens": [0-9]*' "$1"
}
survives() { # survives N: the disk becomes full at call N
    rm -rf full
    status=0
    "$fail_calls" ENOSPC change full/ step-4 "$1" "$weft" train run.ini run.out=full --quiet >log 2>&1 || status=$?
    [ "$status" = 1 ] || { echo "exit status $status"; return 1; }
    grep -q 'full/checkpoints/step-4 could not be saved: .*full/.*: No space left on device; \(.*; \)\{0,1\}earlier saves are unchanged$' log || return 1
    # After the rename the checkpoint is complete, also if later calls fail.
    [ "$1" -le "$saved" ] && left=step-2 || left="step-2 step-4"
    [ "$(ls -A full/checkpoints | tr '\n' ' ')" = "$left " ] || { ls -A full/checkpoints; return 1; }
    diff -r whole/checkpoints/step-2 full/checkpoints/step-2 -x config.ini -x run.json -x manifest.json || return 1
    train full --resume >>log 2>&1 || return 1
    cmp whole/model/model.safetensors full/model/model.safetensors || return 1
    results whole/metrics.jsonl >a.txt
    results full/metrics.jsonl >b.txt
    [ "$(wc -l <a.txt)" = "$(wc -l <whole/metrics.jsonl)" ] && cmp a.txt b.txt
}
while read -r n; do
    survives "$n" >differs || failed "a disk that is full at call $n, $(sed -n "${n}p" calls.txt)" differs log
done <chosen
[ "$(wc -l <chosen)" -gt 5 ] || failed "few calls were tried" chosen

# ---- the next save removes files of an interrupted one
rm -rf cut
train cut train.steps=2
mkdir cut/checkpoints/.step-4.tmp cut/checkpoints/.step-9.tmp
echo half >cut/checkpoints/.step-4.tmp/model.safetensors
train cut --resume || failed "a resume beside half a checkpoint"
[ "$(ls -A cut/checkpoints | tr '\n' ' ')" = "step-2 step-4 " ] || failed "half a checkpoint stays"
cmp whole/model/model.safetensors cut/model/model.safetensors || failed "half a checkpoint counts"

# ---- a record: the training state is saved if possible
rm -rf record
status=0
"$fail_calls" ENOSPC change record/metrics.jsonl metrics 5 "$weft" train run.ini run.out=record --quiet >log 2>&1 || status=$?
[ "$status" = 1 ] || failed "a record that cannot be written: exit status $status" log
grep -q 'record/metrics.jsonl cannot be written: No space left on device; step 3 is saved: --resume continues from it$' log ||
    failed "a record that cannot be written" log calls.txt
[ -e record/checkpoints/step-3/manifest.json ] || failed "what was learned is lost" log
train record --resume || failed "a resume after it"
cmp whole/model/model.safetensors record/model/model.safetensors || failed "and its bits"

# ---- an unreadable record file is not treated as short
cp whole/metrics.jsonl before
status=0
"$fail_calls" EIO read whole/metrics.jsonl metrics 1 "$weft" train run.ini run.out=whole train.steps=6 --quiet --resume >log 2>&1 || status=$?
[ "$status" = 1 ] && grep -q 'whole/metrics.jsonl cannot be read: Input/output error$' log || failed "a record that cannot be read" log
cmp whole/metrics.jsonl before || failed "is cut"

# ---- a resume with one failing call that reads, lists or examines a file of the run, its model or its data
mkdir grid && cp -r model games.txt run.ini grid
at=$PWD/grid
numbers() { # numbers OUT: of its newest checkpoint and its model
    (cd "$1" && sha256sum model/*.safetensors checkpoints/step-4/*.safetensors checkpoints/step-4/state/*.safetensors)
}
resume() { # resume N ARGUMENT...: from step 2, with failing call N
    call=$1
    shift
    rm -rf grid/cut && cp -r grid/two grid/cut
    status=0
    limit "$fail_calls" EIO read "$at/" "" "$call" "$weft" train grid/run.ini "run.out=$at/cut" --quiet --resume "$@" >log 2>&1 || status=$?
}
chosen_of() { # chosen_of KIND...: numbers of the calls to test; the quick suite uses the first of each kind in each directory
    if is_full; then awk '{ print $1 }' all
    else awk -v kinds=" $* " 'index(kinds, " " $2 " ") { at = $3; sub("[^/]*$", "", at); if (!seen[$2 at]++) print $1 }' all
    fi >chosen
    [ -s chosen ] || failed "no calls: $*" all
}
each() { # each ARGUMENT...: the chosen calls fail
    while read -r n; do
        resume "=$n" "$@" </dev/null
        if [ "$status" = 0 ]; then numbers grid/cut | cmp -s - right || failed "other bits after call $(sed -n "${n}p" all) failed" log
        elif [ "$status" != 1 ] && [ "$status" != 2 ]; then failed "exit status $status after call $(sed -n "${n}p" all) failed" log
        elif grep -q -- --overwrite log; then failed "--overwrite is advised after call $(sed -n "${n}p" all) failed" log
        fi
    done <chosen
}
train grid/two train.steps=2 || failed "a run to resume"
resume 0
[ "$status" = 0 ] && cp calls.txt all || failed "a resume that is watched" log
numbers grid/cut >right
cut -d' ' -f1 right | grep -qF "$(sha256sum whole/checkpoints/step-2/model.safetensors | cut -d' ' -f1)" && failed "nothing is trained"
chosen_of access getdents64
each
if has mpich; then
    for FAIL_RANK in $(is_full && echo 0) 1; do # rank 0 makes the calls of a single-rank run, too
        export FAIL_RANK
        resume 0 --ranks 2 comm.plugin=mpi-mpich strategy.plugin=ddp
        [ "$status" = 0 ] && cp calls.txt all || failed "a resume of rank $FAIL_RANK that is watched" log
        numbers grid/cut | cmp -s - right || failed "other bits of 2 ranks" log
        chosen_of access
        [ "$FAIL_RANK" = 0 ] || grep -q ' pread64 .*/state/exp_avg.safetensors' all || failed "rank 1 is not watched" all
        each --ranks 2 comm.plugin=mpi-mpich strategy.plugin=ddp
    done
fi

[ "$failures" = 0 ]
