#!/bin/sh
# `weft ab` among ranks with one GPU each, over NCCL: rank 0 collects the results of a step's micro-batches. Strategies
# have equal bits, and for a key that changes bits the first difference is reported. On the CUDA emulator. ctest sets
# WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins" WEFT_EMULATOR_DEVICES=2
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
global_batch = 2
micro_batch  = 1
$(cuda_sections)
[comm]
plugin = nccl
INI

ab() { # ab STATUS argument...: output in said
    wanted=$1
    shift
    status=0
    limit "$weft" ab run.ini --steps 1 --rounds 1 --learn 0 "$@" >said 2>err || status=$?
    [ "$status" = "$wanted" ] || failed "status $status, not $wanted: weft ab $*" said err
    [ ! -e out ] || failed "[run] out is touched: weft ab $*"
}
ab 21 strategy.plugin=fsdp,mp --ranks 2
says said "numbers  B has the bits of A after each of 3 steps"
ab 20 strategy.plugin=fsdp --vary train.precision=fp32,bf16 --ranks 2
says said "numbers  B differs from A at step 1, micro-batch 0: its loss"
exit $((failures > 0))
