#!/bin/sh
# `weft plan --time` on the CUDA emulator, with its asynchronous streams. NCCL calls are timed until their data has
# arrived, between ranks not connected by a program, and by ranks in lockstep; ranks that share a GPU over MPI are timed
# too. A GPU uses no host processors, so the forecast does not mention them. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
# Much of the time goes into memory that the emulator allocates per message: keep it in the process.
export MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000
make_model model 32 8 56 1 512
make_text 40
cat >run.ini <<INI
[run]
out = out
[model]
plugin = llama
path   = model
start  = fresh
[data]
path     = games.txt
document = line
context  = 16
[train]
steps        = 4
global_batch = 12
micro_batch  = 1
$(cuda_sections)
INI

# No host moves 32 MiB in 0.2 ms, or finishes 33 times as many bytes before it waits for the first.
is_waited_for() { # is_waited_for FILE: each kind of exchange, at its largest size
    awk '/"exchanges": \{/ { on = 1 }
        on && /^ *33554432.0,$/ { getline; n++; if ($1 + 0 < 2e-4) bad = 1 }
        END { exit !(n == 4 && !bad) }' "$1" || failed "exchanges of $2" "$1"
}
is_sound() { # is_sound RANKS FILE WHAT: each rank computes and waits for communication
    awk -v ranks="$1" '
        /"step_seconds"/ { step = $2 + 0 }
        /"compute"/ { n++; if ($2 + 0 <= 0 || $2 + 0 > step * 1.000001) bad = 1 }
        /"exposed"/ { if ($2 + 0 <= 0 || $2 + 0 > step) bad = 1 }
        END { exit !(step > 0 && n == ranks && !bad) }' "$2" || failed "times of $3" "$2"
}
predicts() { # predicts CARDS RANKS section.key=value ...: in time.json
    cards=$1 n=$2
    shift 2
    WEFT_EMULATOR_DEVICES=$cards limit "$weft" plan run.ini "$@" --ranks "$n" --time --json >time.json 2>log ||
        { failed "plan --time --ranks $n $*" log; return; }
    is_sound "$n" time.json "$n ranks: $*"
    is_waited_for time.json "$n ranks: $*"
    says time.json "each rank computes on a device (CUDA emulator sm_90, sm_90), as the $n that were measured"
    if grep -q 'threads"*,$\|processors are enough' time.json; then failed "a card needs the host's processors" time.json; fi
}
predicts 2 2 comm.plugin=nccl strategy.plugin=fsdp
cp time.json two.json
predicts 2 2 comm.plugin=nccl strategy.plugin=mp strategy.schedule=1f1b
if is_full; then
    predicts 2 2 comm.plugin=nccl strategy.plugin=ddp
    predicts 3 3 comm.plugin=nccl strategy.plugin=fsdp
    predicts 4 4 comm.plugin=nccl strategy.plugin=mp
fi
if has mpich; then predicts 1 2 comm.plugin=mpi-mpich device.cuda.share=yes strategy.plugin=fsdp; fi

# ---- rates for more ranks, on a machine of two processors

sed 's/"processors": [0-9]*/"processors": 2/' two.json >few.json
sed 's/"processors": [0-9]*/"processors": 64/' two.json >many.json
for rates in few many; do
    prints "$weft" plan run.ini comm.plugin=nccl strategy.plugin=ddp train.global_batch=64 --ranks 16 --rates $rates.json --json
    grep step_seconds printed >$rates.step
    says printed "16 ranks on a machine slow each other down no more than the 2 that were measured"
    if grep -q 'processors are enough' printed; then failed "16 cards share the host's processors" printed; fi
done
[ -s few.step ] && cmp -s few.step many.step || failed "processors of the host slow its cards down" few.step many.step
sed 's/"own_processors": true/"own_processors": false/' two.json >host.json
refused "computing on the machine's processors" "$weft" plan run.ini comm.plugin=nccl strategy.plugin=ddp \
    --ranks 2 --rates host.json
exit $((failures > 0))
