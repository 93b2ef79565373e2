#!/bin/sh
# A run with captured and replayed steps has the bits of one run instruction by instruction: on one rank and
# on several, resumed, evaluated, with micro-batches of one length and of several. Its sent bytes are counted
# equally. The message names the plugin that prevents capture. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
has mpich || exit 77
make_model model 32 8 56 3 512
make_text 60
cat >run.ini <<'INI'
[run]
out = out
[model]
plugin = llama
path   = model
start  = fresh
[data]
plugin     = text
path       = games.txt
document   = line
context    = 32
validation = 10
[train]
steps        = 8
global_batch = 4
micro_batch  = 1
clip         = 0.5
[eval]
every = 4
[checkpoint]
every = 4
[device]
threads = 1
INI
ranks=
on_cpu() { # on_cpu FILE key=value...: the trained weights, and each step's numbers
    to=$1
    shift
    # shellcheck disable=SC2086 # words on purpose
    WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins" limit "$weft" train run.ini --overwrite $ranks "$@" >log 2>&1 ||
        failed "train $*" log
    bits >"$to"
}
on_late() { # on_late MODE FILE argument...
    mode=$1 to=$2
    shift 2
    : >replays
    # shellcheck disable=SC2086 # words on purpose
    WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins" WEFT_LATE_MODE=$mode \
        WEFT_LATE_SEED=7 WEFT_LATE_REPLAYS="$dir/replays" limit "$weft" train run.ini $ranks "$@" >log 2>&1 ||
        failed "train on the late device $*" log
    bits >"$to"
}
bits() {
    sha256sum <out/model/model.safetensors
    grep -o '"\(loss\|grad_norm\)": *[^,}]*' out/metrics.jsonl out/evaluations.jsonl
}
same() { # same WHAT FILE FILE
    cmp -s "$2" "$3" || failed "$1 differs" "$2" "$3"
}
replayed() { # replayed LEAST: a process has replayed at least this number of passes
    [ "$(sort -n replays | tail -n 1)" -ge "$1" ] || failed "there are at least $1 replays" replays
}

# ---- one rank

on_cpu whole
for mode in last any; do
    on_late $mode late --overwrite run.replay=yes
    same "a run that is replayed, $mode," whole late
    replayed 7 # all steps except the first, and evaluations
done
rm -rf out/checkpoints/step-8
on_late ahead late --resume
same "a run that is resumed" whole late
replayed 3
on_late last late --overwrite run.replay=no
same "a run instruction by instruction" whole late
[ "$(cat replays)" = 0 ] || failed "replay = no replays nothing" replays
for what in train.precision=bf16 train.activation_checkpointing=yes "data.context=100 data.lengths=60" \
    train.global_batch=1 data.context=100; do
    # shellcheck disable=SC2086 # words on purpose
    on_cpu whole $what
    # shellcheck disable=SC2086
    on_late last late --overwrite run.replay=yes $what
    same "a run with $what" whole late
    replayed 1
done

# ---- two ranks

sent() { # sent FILE: bytes sent by each rank, by purpose
    sed -n '/"sent": {/,/}/p' out/ranks.json >"$1"
    grep -q '"total": [1-9]' "$1" || failed "out/ranks.json says what was sent" "$1"
}
ranks="--ranks 2"
for what in strategy.plugin=ddp "strategy.plugin=mp strategy.schedule=1f1b" "strategy.plugin=fsdp strategy.prefetch=1" \
    "strategy.plugin=fsdp strategy.shard=optimizer train.precision=bf16 strategy.reduce_dtype=bf16"; do
    # shellcheck disable=SC2086
    on_cpu whole comm.plugin=mpi-mpich $what
    sent sent.cpu
    # shellcheck disable=SC2086
    on_late last late --overwrite comm.plugin=own run.replay=yes $what
    sent sent.late
    same "a run on two ranks with $what" whole late
    same "what is sent with $what" sent.cpu sent.late
    replayed 7
done
rm -rf out/checkpoints/step-8
# shellcheck disable=SC2086
on_late behind late --resume comm.plugin=own $what
same "a run that is resumed on two ranks" whole late
replayed 3

# ---- slices, each by the lengths of both ranks' micro-batches

for what in "strategy.plugin=ddp strategy.reduce=tree" "strategy.plugin=fsdp strategy.prefetch=0"; do
    what="$what train.steps=16 train.global_batch=8 data.context=100 data.lengths=95"
    # shellcheck disable=SC2086
    on_cpu whole comm.plugin=mpi-mpich $what
    sent sent.cpu
    # shellcheck disable=SC2086
    on_late any late --overwrite comm.plugin=own run.replay=yes $what
    sent sent.late
    same "a run on two ranks with $what" whole late
    same "what is sent with $what" sent.cpu sent.late
    replayed 20 # four per step
done

# ---- lists of lengths evicted before reuse

many="train.steps=48 train.global_batch=8 eval.every=none checkpoint.every=none data.context=100 data.lengths=80,90,98 strategy.plugin=mp"
# shellcheck disable=SC2086
on_cpu whole comm.plugin=mpi-mpich $many
# shellcheck disable=SC2086
on_late last late --overwrite comm.plugin=own $many
same "a run of more lists of lengths than are kept" whole late
[ "$(grep -c 'steps are not replayed: micro-batches have more lists of lengths than the 16 that the cache has' log)" = 1 ] ||
    failed "it is told once that steps are not replayed, and why" log
# shellcheck disable=SC2086
WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins" WEFT_LATE_MODE=last refused \
    "[run] replay = yes, and steps are not replayed: micro-batches have more lists of lengths than the 16" \
    "$weft" train run.ini --overwrite $ranks comm.plugin=own run.replay=yes $many

# ---- the small grid of prove on four ranks

prove() { # prove FILE argument...
    to=$1
    shift
    limit "$weft" prove "$WEFT_SOURCE/configs/prove.ini" --ranks 4 --steps 3 "$@" >proof 2>proof.err || failed "prove $*" proof.err
    sed 's/; [0-9.]* s$//' proof >"$to"
}
if is_full; then
    WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins" prove cells comm.plugin=mpi-mpich
    : >replays
    WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins" WEFT_LATE_MODE=last \
        WEFT_LATE_REPLAYS="$dir/replays" prove cells.late comm.plugin=own run.replay=yes
    grep -q " 38 equal, 0 not covered, 0 different" cells || failed "the grid has other cells" cells
    same "the grid of prove" cells cells.late
    replayed 30
fi

# ---- plugins without capture

on_cpu whole comm.plugin=mpi-mpich strategy.plugin=ddp
on_late last late --overwrite comm.plugin=mpi-mpich strategy.plugin=ddp
same "a run whose exchanges the host drives" whole late
[ "$(sort -n replays | tail -n 1)" = 0 ] || failed "exchanges that the host drives are not recorded" replays
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_BUILD/plugins" WEFT_LATE_MODE=last
refused "[run] replay = yes, and the exchanges of comm:mpi-mpich" \
    "$weft" train run.ini --overwrite --ranks 2 comm.plugin=mpi-mpich strategy.plugin=ddp run.replay=yes
WEFT_LATE_FORGETS=1 refused "cannot capture steps: set replay = auto" "$weft" train run.ini --overwrite run.replay=yes
unset WEFT_PLUGIN_PATH
ranks=
on_cpu whole
export WEFT_LATE_CANNOT=1
on_late last late --overwrite
same "a run of which the device cannot record a step" whole late
grep -q "steps are not recorded, and run instruction by instruction: .*The late device cannot record this." log ||
    failed "it is told that nothing is recorded, and why" log
WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_BUILD/plugins" WEFT_LATE_MODE=last refused \
    "[run] replay = yes, and steps are not recorded: " "$weft" train run.ini --overwrite run.replay=yes
[ "$failures" = 0 ]
