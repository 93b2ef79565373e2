#!/bin/sh
# Asynchronous checkpoints through pinned memory, on the CUDA emulator. [checkpoint] beside = auto selects them there.
# They have the bytes of synchronous saves, for one rank and for several over NCCL. Also: the plan, a machine without
# enough memory, and failing calls. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_EMULATOR_DEVICES=4 WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins" ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
make_model model 32 8 56 1 512
make_text 40
cat >run.ini <<INI
[model]
plugin = llama
path   = model
start  = fresh
[data]
path     = games.txt
document = line
context  = 16
[train]
steps        = 5
global_batch = 4
micro_batch  = 1
precision    = bf16
[optimizer]
plugin = adamw
[checkpoint]
every = 2
[device]
plugin    = cuda
workspace = 1Mi
cache     = $WEFT_BUILD/tests/cuda/compiled
INI
train() { # train OUT argument...
    out=$1
    shift
    rm -f counts # they accumulate
    WEFT_EMULATOR_COUNTS=$dir/counts limit "$weft" train run.ini "run.out=$out" --quiet "$@" >log 2>&1
}
same() { # same WHAT A B: compares the number files
    (cd "$2" && find . -name '*.safetensors' | sort | xargs sha256sum) >a.txt
    (cd "$3" && find . -name '*.safetensors' | sort | xargs sha256sum) >b.txt
    [ "$(wc -l <a.txt)" -ge 10 ] && cmp a.txt b.txt >differs || failed "$1" differs log
}
beside() { # beside OUT: its saves of steps 2 and 4 were asynchronous
    [ "$(grep -c '"what": "checkpoint", .*"beside": [0-9.]*[1-9]' "$1/checkpoints.jsonl")" = 2 ] ||
        failed "$1 is saved in place" "$1/checkpoints.jsonl"
}
count() { # count CALL: number of calls in the last run
    awk -v call="$1" '$1 == "call" && $2 == call { n += $3 } END { print n + 0 }' counts
}

# ---- one rank ----

train place checkpoint.async=no || failed "in place" log
pieces=$(count cudaHostAlloc)
for mode in last any soon; do
    WEFT_EMULATOR_MODE=$mode WEFT_EMULATOR_SEED=5 train "auto.$mode" || failed "beside training, $mode" log
    same "other bytes beside training, $mode" place "auto.$mode"
    beside "auto.$mode"
done
kernels=$(count kernel)
[ "$(count pageableCopy)" = 0 ] || failed "copies go through memory that is not pinned" counts
# Only the last step's save and the model's save allocate the buffers that synchronous saves allocate each time.
[ "$(count cudaHostAlloc)" -lt "$pieces" ] || failed "$(count cudaHostAlloc) pieces of pinned memory, $pieces in place" counts

# ---- several ranks ----

ranks() { # ranks OUT argument...
    train "$@" --ranks 4 comm.plugin=nccl strategy.plugin=fsdp
}
ranks place.4 checkpoint.async=no || failed "4 ranks in place" log
ranks beside.4 || failed "4 ranks" log
same "other bytes of 4 ranks" place.4 beside.4
same "other bytes of 4 ranks than of one" place beside.4
beside beside.4
of_a_rank=$(awk '$1 == "call" && $2 == "kernel" && $3 > most { most = $3 } END { print most }' counts)

# Same for an adapter: data stored in a different order than in the model is sent from all ranks to the writer.
for adapter in prefix lora; do
    two() { # two OUT argument...
        train "$@" --ranks 2 comm.plugin=nccl "adapter.plugin=$adapter" train.precision=fp32
    }
    two "place.$adapter" strategy.plugin=ddp checkpoint.async=no || failed "$adapter in place" log
    for strategy in fsdp mp; do
        two "$adapter.$strategy" "strategy.plugin=$strategy" || failed "$adapter under $strategy" log
        same_tensors "other bytes of $adapter under $strategy" "place.$adapter/checkpoints" "$adapter.$strategy/checkpoints"
        beside "$adapter.$strategy"
    done
done

# ---- plan ----

prints "$weft" plan run.ini run.out=said
grep -q '^saving *asynchronous, from a copy of .* in the host.s memory, not included above$' printed || failed "plan" printed
sed -n '/^memory/,/total/p' printed >memory.auto
prints "$weft" plan run.ini run.out=said checkpoint.async=no
sed -n '/^memory/,/total/p' printed >memory.no
cmp memory.auto memory.no || failed "the card's memory is another one" memory.auto
"$weft" plan run.ini run.out=said --json | grep -A4 '"saving"' >object
grep -q '"beside": true' object && grep -q '"of_total": false' object || failed "plan --json" object

# ---- failing calls: an error message, an orderly end, and earlier complete files stay ----

"${CC:-cc}" -O1 -fPIC -shared -D_GNU_SOURCE -o slow_disk.so "$WEFT_SOURCE/tests/checkpoint/slow_disk.c" -ldl
fails() { # fails TEXT FAIL argument...: that call fails while a save of step 2 or 4 is in flight or starts
    text=$1 call=$2
    shift 2
    rm -rf fails
    status=0
    WEFT_EMULATOR_FAIL=$call SLOW_DISK=.tmp/model SLOW_SECONDS=1 LD_PRELOAD=$PWD/slow_disk.so \
        limit "$weft" train run.ini run.out=fails --quiet "$@" >log 2>&1 || status=$?
    [ "$status" = 1 ] || failed "$call $*: exit status $status" log
    grep -q -- "$text" log || failed "$call $*: not $text" log
    if grep -qE 'not released|cuda emulator:|signal [0-9]' log; then failed "$call $*: leaves or breaks something" log; fi
}
# The copy's memory is the first allocation after those of the first step's micro-batches; found by its message.
alloc=0
for n in $(seq "$pieces"); do
    WEFT_EMULATOR_FAIL=cudaHostAlloc:$n=2 limit "$weft" train run.ini run.out=alloc --quiet >log 2>&1 || true
    rm -rf alloc
    if grep -q 'memory for asynchronous saves (\[checkpoint\] async): .*no [0-9]* bytes' log; then alloc=$n; fi
    [ "$alloc" = 0 ] || break
done
[ "$alloc" != 0 ] || failed "no sentence where pinned memory is missing" log
fails 'on device cuda' "kernel:$((kernels * 3 / 5))=700" # in step 3
[ -e fails/checkpoints/step-2/manifest.json ] || failed "the save that was under way when a kernel failed is lost" log
WEFT_EMULATOR_FAIL_RANK=3 fails '\[3\] weft train: .*on device cuda' "kernel:$((of_a_rank * 3 / 5))=700" --ranks 4 comm.plugin=nccl strategy.plugin=fsdp
exit $((failures > 0))
