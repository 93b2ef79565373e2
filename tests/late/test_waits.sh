#!/bin/sh
# Every wait of a step is necessary. On the late device, which executes only when required, each strategy
# trains the bits of the CPU device. If any wait is skipped (of a stream for another, or of the host for the
# device), it trains other bits or fails: with everything as late as possible, or with the first stream ahead
# of or behind the others. The same holds for captured and replayed steps, where updated inputs must not be
# frozen at capture. The device finds the call sites, and whether there was something to wait for
# (late/sites.c). ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
has mpich || exit 77
cpu=$WEFT_BUILD/plugins
late=$WEFT_BUILD/tests/late:$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins
make_model model 32 8 56 4 512
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
[train]
steps        = 3
global_batch = 4
micro_batch  = 1
[device]
threads = 1
INI

train() { # train PATH key=value...: the bits of the trained weights, and each step's numbers, or "failed"
    export WEFT_PLUGIN_PATH="$1"
    shift
    rm -rf out
    # shellcheck disable=SC2086 # words on purpose
    if limit "$weft" train run.ini $ranks "$@" >log 2>&1; then
        bits
    else
        echo failed
    fi
}
bits() { # of the last run
    find out -name '*.safetensors' | sort | xargs cat | sha256sum
    sed 's/"[a-z_]*\(seconds\|per_second\|bytes\|time\)[a-z_]*": *[^,}]*//g' out/metrics.jsonl | grep -o '"\(loss\|grad_norm\)": *[^,}]*' | sha256sum
}

trains() { # trains MODE key=value...: the bits of the CPU device, on the late one
    export WEFT_LATE_MODE="$1"
    shift
    [ "$(train "$late" run.replay=$replay comm.plugin=$comm "$@")" = "$expected" ]
}
callers() { # callers NUMBER: callers of a site, by name
    for at in $(grep -m1 "$1" sites | cut -d' ' -f4-); do
        addr2line -f -e "${at%+*}" "${at#*+}" 2>/dev/null | head -n 1 | tr '\n' ' '
    done
}

mutants=0
: >missed
: >not_missed
waits() { # waits NAME N key=value...: on N ranks
    name=$1 ranks="--ranks $2"
    [ "$2" != 1 ] || ranks=
    shift 2
    unset WEFT_LATE_DROP WEFT_LATE_SITES
    expected=$(train "$cpu" comm.plugin=mpi-mpich "$@")
    [ "$expected" != failed ] || { failed "$name on the CPU device" log; return; }
    : >sites
    export WEFT_LATE_SITES="$dir/sites"
    for mode in last ahead behind; do
        trains $mode "$@" || failed "$name trains other bits on the device that is $mode" log
    done
    unset WEFT_LATE_SITES
    for site in $(grep "^$kinds" sites | awk '{ print $1 ":" $2 }' | sort -u); do
        export WEFT_LATE_DROP="${site#*:}"
        mutants=$((mutants + 1))
        if trains last "$@" && trains ahead "$@" && trains behind "$@"; then
            echo "$site ${site%:*} of $(callers "${site#*:}")" >>not_missed
        else
            echo "$site" >>missed
        fi
    done
    unset WEFT_LATE_DROP
}
replay=no comm=mpi-mpich kinds=
waits "several micro-batches" 1
waits "fsdp" 2 strategy.plugin=fsdp strategy.prefetch=1
waits "fsdp in bf16" 2 strategy.plugin=fsdp strategy.prefetch=1 train.precision=bf16 strategy.reduce_dtype=bf16
waits "fsdp, optimizer" 2 strategy.plugin=fsdp strategy.shard=optimizer
waits "ddp" 2 strategy.plugin=ddp
waits "mp" 2 strategy.plugin=mp strategy.schedule=1f1b
# Steps have different numbers of targets there. This communicator has its own progress.
replay=yes comm=own kinds=recorded-
waits "several micro-batches, replayed" 1 data.context=100
waits "fsdp, replayed" 2 data.context=100 strategy.plugin=fsdp strategy.prefetch=1
[ "$(sort -u missed | grep -c '^recorded-upload')" -ge 3 ] ||
    failed "micro-batches, COUNT and the optimizer's struct are not all read anew" missed
# One program may not need a wait, because its condition already holds. Each wait must be needed by some
# program, except those that time a matmul before the first step, whose result is not used.
while read -r site what; do
    case $what in *" time_product "*) continue ;; esac
    grep -qxF "$site" missed || failed "nothing shows that this is left out: $what"
done <not_missed
needed=$(sort -u missed | wc -l)
echo "$needed waits are needed: $mutants programs were run with one of theirs left out"
[ "$needed" -ge 10 ] || failed "only $needed waits were found"
[ "$failures" = 0 ]
