#!/bin/sh
# Whole runs on the late device have the CPU device's bits: the small grid of `weft prove` on four ranks, a run that is
# saved beside training and resumed, on one rank and on two, and a text. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
has mpich || exit 77
on_cpu() {
    WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins" limit "$@"
}
on_late() { # in the mode $mode
    WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_BUILD/plugins" WEFT_LATE_MODE="$mode" WEFT_LATE_SEED=7 limit "$@"
}
same() { # same WHAT FILE FILE
    cmp -s "$2" "$3" || failed "$1 differs on the device that is $mode" "$3"
}

# Each cell's hash, and what it was compared with.
prove() { # prove ON FILE key=value...
    on=$1 to=$2
    shift 2
    "$on" "$weft" prove "$WEFT_SOURCE/configs/prove.ini" --ranks 4 --steps 2 "$@" >proof 2>proof.err ||
        failed "prove $*" proof.err
    sed 's/; [0-9.]* s$//' proof >"$to"
}
prove on_cpu cells
grep -q " 38 equal, 0 not covered, 0 different" cells || failed "the grid has other cells" cells
for mode in last ahead; do
    prove on_late cells.late
    same "the grid of prove" cells cells.late
    is_full || break
done
mode=any
prove on_cpu cells train.precision=bf16 strategy.reduce_dtype=bf16
prove on_late cells.late train.precision=bf16 strategy.reduce_dtype=bf16
same "the grid of prove in bf16" cells cells.late

make_run <<'INI'
steps        = 4
[checkpoint]
every        = 2
INI
run() { # run ON FILE key=value...: what was learned, and each step's numbers
    on=$1 to=$2
    shift 2
    # shellcheck disable=SC2086 # words on purpose
    "$on" "$weft" train run.ini $ranks comm.plugin=mpi-mpich "$@" >log 2>&1 || failed "train $*" log
    { sha256sum <out/model/model.safetensors; grep -o '"\(loss\|grad_norm\)": *[^,}]*' out/metrics.jsonl; } >"$to"
}
resumed() { # resumed N key=value...: on N ranks, from the middle; files and states come through the late device
    ranks="--ranks $1"
    [ "$1" != 1 ] || ranks=
    shift
    rm -rf out
    run on_cpu whole "$@"
    rm -rf out
    run on_late first checkpoint.async=yes "$@"
    same "a run of $*" whole first
    rm -rf out/checkpoints/step-4
    run on_late again --resume "$@"
    same "a resumed run of $*" whole again
}
mode=last
resumed 1 strategy.plugin=single
resumed 2 strategy.plugin=fsdp strategy.prefetch=1 train.precision=bf16
mode=any
export WEFT_LATE_INDEX="$dir/index"
resumed 2 strategy.plugin=ddp
[ "$(sort -u index | tr '\n' ' ')" = "0 1 " ] || failed "each rank asks for the device of its place" index
unset WEFT_LATE_INDEX
mode=soon
resumed 2 strategy.plugin=mp

text() { # text ON FILE: by the model that was learned last
    "$1" "$weft" generate run.ini model.path=out/model model.start=weights --prompt "1. e4 e5" --tokens 20 \
        --temperature 0 --ignore-eos >"$2" 2>log || failed "generate" log
}
text on_cpu text
[ -s text ] || failed "there is no text" log
for mode in last ahead soon; do
    text on_late text.late
    same "a text" text text.late
done
[ "$failures" = 0 ]
