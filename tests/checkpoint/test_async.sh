#!/bin/sh
# Asynchronous checkpoints, on a disk that blocks a save until the test releases it: same bytes as synchronous
# ones, steps during a save, a kill and a signal in the middle, a full disk, and the same with four ranks.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
fail_calls=$WEFT_BUILD/tests/fail_calls
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0:detect_leaks=0" # a process cannot be traced two times

make_model model 16 4 24 1 512
make_text 40
cat >run.ini <<'INI'
[model]
plugin = llama
path   = model
start  = fresh
[data]
path       = games.txt
document   = line
context    = 32
validation = 4
[train]
steps        = 10
global_batch = 4
micro_batch  = 1
[eval]
every = 2
[optimizer]
plugin = adamw
[device]
threads = 1
[checkpoint]
every = 4
keep  = 9
INI
train() { # train OUT argument...
    out=$1
    shift
    limit "$weft" train run.ini "run.out=$out" --quiet "$@" >log 2>&1
}
numbers() { # numbers DIRECTORY: hashes of its checkpoint and model files that do not depend on the run
    (cd "$1" && find checkpoints model -type f ! -name config.ini ! -name run.json ! -name manifest.json | sort |
        xargs sha256sum)
    # manifest entries of tensors, and state entries except keys and times
    (cd "$1" && for step in 4 8 10; do
        grep -o '"[^"]*": *"[0-9a-f]\{64\}"' "checkpoints/step-$step/manifest.json" | grep -v '^"sha256"'
        grep -o '^  "\(step\|updates\|tokens\|eval_loss\|best_loss\|best_step\|masters\)": *[^,]*' "checkpoints/step-$step/state/run.json"
    done)
}
losses() { # losses DIRECTORY: values of its steps and evaluations
    grep -ho '^{"step": .*"tokens": [0-9]*' "$1/metrics.jsonl" "$1/evaluations.jsonl"
}
same() { # same WHAT A B
    numbers "$2" >a.txt && losses "$2" >>a.txt
    numbers "$3" >b.txt && losses "$3" >>b.txt
    [ "$(wc -l <a.txt)" -gt 40 ] && diff a.txt b.txt >differs || failed "$1" differs log
}

# ---- weights in several files: same run, resume and model ----

train one || failed "a run of one file" log
train many checkpoint.max_shard=0.00001 train.steps=8 || failed "a run of several files" log
limit "$weft" train run.ini --resume run.out=many checkpoint.max_shard=0.00001 --quiet >log 2>&1 || failed "a resume from several files" log
[ ! -e one/model/model.safetensors.index.json ] || failed "an index of one file"
n=$(ls many/model/model-*-of-*.safetensors | wc -l)
[ "$n" -gt 1 ] && [ -e "many/model/model-0000$n-of-0000$n.safetensors" ] && [ ! -e many/model/model.safetensors ] || failed "shards of another number"
for file in many/model/model-*; do
    [ "$(wc -c <"$file")" -lt 40000 ] || failed "$file is larger than a shard and a table"
    says many/model/model.safetensors.index.json "${file##*/}"
done
near "a model of several files" 1e-12 "$(loss one)" "$(loss many)"
losses one >a.txt
losses many | tail -n "$(grep -c . a.txt)" >b.txt
diff a.txt b.txt >differs || failed "steps of a resume from several files" differs
refused "[checkpoint] max_shard" "$weft" train run.ini run.out=never checkpoint.max_shard=0

# ---- same bytes, and messages ----

train place checkpoint.async=no || failed "in place" log
train beside checkpoint.async=yes || failed "beside training" log
same "other bytes beside training" place beside
train place.bf16 checkpoint.async=no checkpoint.dtype=bf16 train.trainable=last:1 || failed "in place, in bf16" log
train beside.bf16 checkpoint.async=yes checkpoint.dtype=bf16 train.trainable=last:1 || failed "beside, in bf16" log
same "other bytes beside training, in bf16" place.bf16 beside.bf16
[ -e beside.bf16/checkpoints/step-4/state/master.safetensors ] || failed "no masters"
mixed='optimizer.plugin=anyprecision optimizer.momentum_dtype=fp32 optimizer.variance_dtype=bf16' # of two sizes
train place.mixed checkpoint.async=no $mixed || failed "in place, states of two types" log
train beside.mixed checkpoint.async=yes $mixed || failed "beside, states of two types" log
same "other bytes beside training, states of two types" place.mixed beside.mixed

field() { # field NAME LINE: of checkpoints.jsonl in beside
    sed -n "${2}s/.*\"$1\": \([^,}]*\).*/\1/p" beside/checkpoints.jsonl
}
[ "$(grep -c . beside/checkpoints.jsonl)" = 4 ] || failed "saves are not recorded" beside/checkpoints.jsonl
for line in 1 2; do
    awk "BEGIN { exit !($(field beside $line) > 0 && $(field took $line) > 0) }" || failed "no time beside" beside/checkpoints.jsonl
done
for line in 3 4; do # the last step's, and the model
    awk "BEGIN { exit !($(field beside $line) == 0 && $(field took $line) > 0) }" || failed "what ends a run is beside nothing" beside/checkpoints.jsonl
done

said() { # said TEXT argument...: the plan's text about saving
    text=$1
    shift
    prints "$weft" plan run.ini run.out=said "$@"
    grep '^saving' printed | grep -qF "$text" || failed "plan $*: not $text" printed
}
said "synchronous, because the device computes in the machine's memory"
said "synchronous: training waits" checkpoint.async=no
said "asynchronous, from a copy of" checkpoint.async=yes
prints "$weft" plan run.ini run.out=said checkpoint.async=yes checkpoint.every=10
! grep -q '^saving' printed || failed "a save beside nothing" printed
# Planned memory is exact: three numbers per trained parameter.
planned() { # planned argument...: total
    "$weft" plan run.ini run.out=said --json "$@" >planned.json
    sed -n '/^  "memory"/,/}/s/.*"total": \([0-9]*\).*/\1/p' planned.json
}
more=$(($(planned checkpoint.async=yes) - $(planned checkpoint.async=no)))
copy=$(planned checkpoint.async=yes >/dev/null; sed -n '/^  "saving"/,/}/s/.*"bytes": \([0-9]*\).*/\1/p' planned.json)
trained=$(sed -n 's/^  "trained": \([0-9]*\).*/\1/p' planned.json)
[ "$more" = "$copy" ] && [ "$more" -ge $((12 * trained)) ] && [ "$more" -lt $((13 * trained + 2048)) ] ||
    failed "the copy has $copy bytes, the plan $more more, of $trained parameters" planned.json
grep -q "\"snapshot\": $copy" beside/phases.jsonl || failed "another copy is taken" beside/phases.jsonl

prints "$weft" plan run.ini run.out=said checkpoint.async=yes --fit "$(planned checkpoint.async=no)B"
grep -q ' checkpoint.async=no$' printed || failed "what would fit without the copy is not told" printed

# ---- a blocked disk ----

"${CC:-cc}" -O1 -fPIC -shared -D_GNU_SOURCE -o slow_disk.so "$WEFT_SOURCE/tests/checkpoint/slow_disk.c" -ldl
start() { # start OUT WHERE argument...: in the background; fsync of paths with WHERE waits for the file go
    rm -rf go "$1"
    out=$1 where=$2
    shift 2
    SLOW_DISK=$where SLOW_UNTIL=$PWD/go LD_PRELOAD=$PWD/slow_disk.so timeout 1200 "$weft" train run.ini "run.out=$out" \
        checkpoint.async=yes --verbose "$@" >log 2>&1 &
    pid=$!
}
until_step() { # until_step OUT N: waits for N recorded steps
    for _ in $(seq 3000); do
        [ -e "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ] && return 0
        sleep 0.05
    done
    failed "step $2 is not made while a save waits" log
}
weft_of() { # weft_of PID: the program started by timeout
    cat "/proc/$1/task/$1/children"
}
goes_on() { # goes_on OUT: it has reached step 8, at which the next save is due, and step 4 is not complete yet
    until_step "$1" 8
    [ -d "$1/checkpoints/.step-4.tmp" ] && [ ! -e "$1/checkpoints/step-4" ] || failed "step 4 is whole" log
}
ends() { # ends STATUS
    touch go
    status=0
    wait "$pid" || status=$?
    [ "$status" = "$1" ] || failed "exit status $status" log
}
start waits .step-4.tmp/
goes_on waits
[ "$(wc -l <waits/metrics.jsonl)" = 8 ] || failed "two saves at once" log
ends 0
same "other bytes where a save waits" place waits
grep -q '^step 4 is saved: .* s asynchronously' log || failed "nobody says so" log

# A kill in the middle: complete checkpoints remain complete, and no other counts.
start killed .step-8.tmp/ train.steps=20 checkpoint.every=4
until_step killed 11
kill -KILL $(weft_of "$pid")
ends 137
[ "$(ls -A killed/checkpoints | tr '\n' ' ')" = ".step-8.tmp best step-4 " ] || failed "$(ls -A killed/checkpoints)"
train killed --resume checkpoint.async=yes || failed "a resume after a kill" log
same "other bytes after a kill" place killed
[ ! -e killed/checkpoints/.step-8.tmp ] || failed "half a checkpoint stays"

# A signal: the save in flight is completed, and so is the step.
start stopped .step-4.tmp/
until_step stopped 6
kill -TERM $(weft_of "$pid")
sleep 0.2
kill -0 "$pid" || failed "it does not wait for the save" log
ends 75
last=$(wc -l <stopped/metrics.jsonl)
grep -q "stopped by a signal after step $last, which is saved" log || failed "a signal" log
[ -e stopped/checkpoints/step-4/manifest.json ] && [ -e "stopped/checkpoints/step-$last/manifest.json" ] || failed "it is not saved" log
train stopped --resume || failed "a resume after a signal" log
[ "$last" = 8 ] || rm -r "stopped/checkpoints/step-$last"
same "other bytes after a signal" place stopped

# ---- a full disk ----

status=0
"$fail_calls" ENOSPC change counted/ .step-4 0 "$weft" train run.ini run.out=counted checkpoint.async=yes train.steps=7 --quiet || status=$?
if [ "$status" != 77 ]; then
    [ "$status" = 0 ] || failed "a run that is watched: exit status $status"
    # Of the calls on the checkpoint: the first of each kind for each file.
    grep '/\.step-4\.tmp' calls.txt | grep -v config.ini | awk '!seen[$2 $3]++ { print $1 }' >chosen
    if ! is_full; then sed -n '1p;4p;7p;$p' chosen >some && mv some chosen; fi
    while read -r n; do
        rm -rf full
        status=0
        "$fail_calls" ENOSPC change full/ .step-4 "$n" "$weft" train run.ini run.out=full checkpoint.every=2 \
            checkpoint.async=yes --quiet >log 2>&1 || status=$?
        [ "$status" = 1 ] || failed "a full disk at call $n: exit status $status" log
        grep -q 'full/checkpoints/step-4 could not be saved: .*No space left on device; \(.*; \)\{0,1\}earlier saves are unchanged$' log ||
            grep -q 'full/.*cannot be \(written\|synced\): No space left on device' log || failed "a full disk at call $n" log
        [ -e full/checkpoints/step-2/manifest.json ] && [ ! -e full/checkpoints/.step-4.tmp ] || failed "call $n: $(ls -A full/checkpoints)" log
        train full --resume || failed "a resume after a full disk" log
        cmp place/model/model.safetensors full/model/model.safetensors || failed "other bytes after a full disk"
    done <chosen
fi

# ---- four ranks ----

if has mpich; then
    for strategy in $(if is_full; then echo ddp fsdp mp; else echo fsdp; fi); do
        train "place.$strategy" checkpoint.async=no "strategy.plugin=$strategy" --ranks 4 comm.plugin=mpi-mpich train.steps=10 ||
            failed "4 ranks, $strategy, in place" log
        train "many.$strategy" checkpoint.async=yes "strategy.plugin=$strategy" --ranks 4 comm.plugin=mpi-mpich train.steps=10 ||
            failed "4 ranks, $strategy" log
        same "other bytes of 4 ranks, $strategy" "place.$strategy" "many.$strategy"
        same "other bytes of 4 ranks than of one, $strategy" place "many.$strategy"
    done
    start many .step-4.tmp/ strategy.plugin=fsdp --ranks 4 comm.plugin=mpi-mpich
    goes_on many
    ends 0
    same "other bytes of 4 ranks where a save waits" place many
    # A failure on one of them is reported once, by rank 0.
    start lost .step-4.tmp/ strategy.plugin=fsdp --ranks 4 comm.plugin=mpi-mpich
    until_step lost 6
    rm -rf lost/checkpoints/.step-4.tmp
    ends 1
    [ "$(grep -c 'lost/checkpoints/step-4 could not be saved: ' log)" = 1 ] || failed "a directory that is gone" log
fi
[ "$failures" = 0 ]
