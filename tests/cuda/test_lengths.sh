#!/bin/sh
# Steps with micro-batches of several lengths are captured in slices and replayed on the CUDA emulator: nearly all of
# them after each micro-batch has had each length. They have the bits of steps without graphs, on one rank and on
# several over NCCL. A program that cannot be divided reports that it is not replayed. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_EMULATOR_DEVICES=2 WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
cp -r "$WEFT_SOURCE/configs" configs
# Sequences of two lengths: no two documents fit into one.
awk 'length > 200 && n < 64 { n++; print substr($0, 1, n * 7 % 3 == 0 ? 62 : 92) }' configs/chess/train.txt >games.txt
sed '/^\[device\]/,$d' configs/prove.ini >run.part
sed 's/^path *= prove$/path = configs\/prove/; s/^path *= chess/path = configs\/chess/' run.part >run.ini
cuda_sections >>run.ini
micro_batches=8
steps=14
if is_full; then steps=40; fi

train() { # train argument...: captures and replays of all processes together
    rm -f counts
    WEFT_EMULATOR_COUNTS="$PWD/counts" limit "$weft" train run.ini --overwrite run.out=out data.path=games.txt \
        data.lengths=38 train.schedule=constant train.steps=$steps train.global_batch=$micro_batches train.micro_batch=1 "$@" \
        >log 2>&1 || failed "train $*" log
    recorded=$(awk '$2 == "cudaStreamEndCapture" { n += $NF } END { print n + 0 }' counts)
    replayed=$(awk '$2 == "cudaGraphLaunch" { n += $NF } END { print n + 0 }' counts)
    { sha256sum <out/model/model.safetensors; grep -o '"\(loss\|grad_norm\)": *[^,}]*' out/metrics.jsonl; } >bits
    : >sent
    if [ -e out/ranks.json ]; then sed -n '/"sent": {/,/}/p' out/ranks.json >sent; fi
}
instructions() { # instructions argument...: without graphs, instruction by instruction
    train "$@" run.replay=no
    [ "$recorded $replayed" = "0 0" ] || failed "$recorded recordings without any" log
    mv bits bits.instructions
    mv sent sent.instructions
}
sliced() { # sliced LISTS WARM argument...: at most LISTS graphs per slice; replays all steps except WARM
    lists=$1 warm=$2
    shift 2
    train "$@" run.replay=yes
    cmp bits bits.instructions >err || failed "bits with $*" bits bits.instructions
    cmp sent sent.instructions >err || failed "what is sent with $*" sent sent.instructions
    echo "$*: $recorded recordings, $replayed replays"
    [ "$recorded" -gt $micro_batches ] && [ "$recorded" -le $((micro_batches * lists)) ] ||
        failed "$recorded recordings of $micro_batches slices with $lists lists each: $*" log
    [ "$replayed" -ge $((micro_batches * (steps - warm))) ] || failed "$replayed replays in $steps steps: $*" log
}

instructions
sliced 2 8
nccl="--ranks 2 comm.plugin=nccl"
# Each of two ranks has half of the slices, with the micro-batches of both.
# shellcheck disable=SC2086 # words on purpose
{
    instructions $nccl strategy.plugin=ddp
    sliced 4 10 $nccl strategy.plugin=ddp
    is_full || exit "$failures"
    for what in "ddp strategy.reduce=fast strategy.reduce_at=last" "fsdp strategy.prefetch=0" "fsdp strategy.shard=optimizer"; do
        instructions $nccl strategy.plugin=$what
        sliced 4 10 $nccl strategy.plugin=$what
    done
    train $nccl strategy.plugin=mp data.lengths=28,32,36
    says log "steps are not replayed: micro-batches have more lists of lengths than the 16 that the cache has"
}
exit "$failures"
