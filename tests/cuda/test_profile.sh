#!/bin/sh
# `weft profile --roofline` on the CUDA emulator, and NVTX ranges: one around each instruction of the step program, by its
# name, balanced, and none unless they are requested. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
cp -r "$WEFT_SOURCE/configs" configs
{
    sed '/^\[device\]/,$d' configs/prove.ini
    cuda_sections
} >configs/run.ini
small="train.global_batch=4 train.micro_batch=2 train.schedule=constant"

# ---- peak rates ----

# shellcheck disable=SC2086  # words
prints limit "$weft" profile configs/run.ini $small train.precision=bf16 --roofline --steps 1 --warmup 0
grep -Eq '^peak       [0-9.]+ [kMGT]FLOP/s, memory [0-9.]+ [kMGT]B/s; the step reaches [0-9.]+ % of the FLOP/s$' printed ||
    failed "the line of peak rates" printed
grep -q "^memory .* planned, the device's context and libraries use 3[0-9]*.0 MiB more; .* peak on the host was " printed || failed "memory" printed
for row in 'linear forward' 'rms_norm backward' 'attention backward' optimizer; do
    grep -Eq "^$row .* [kMGT](FLOP|B   ) .*[kMGT](FLOP/s|B/s   ) +[0-9.]+ %\$" printed || failed "the share of $row" printed
done
# The columns are aligned: the rates of FLOPs and of bytes end in one column.
[ "$(grep -E '^(linear|optimizer|add|norm) .*%$' printed | awk '{ print length }' | sort -u | wc -l)" = 1 ] || failed "columns" printed

# ---- ranges ----

trained() { # trained OUT key=value...: two steps; ranges of each are in the file ranges
    out=$1
    shift
    rm -f ranges counts
    # shellcheck disable=SC2086  # words
    WEFT_EMULATOR_RANGES=$PWD/ranges WEFT_EMULATOR_COUNTS=$PWD/counts prints limit "$weft" train configs/run.ini \
        run.out="$PWD/$out" $small train.steps=2 "$@"
}
# shellcheck disable=SC2086  # words
prints limit "$weft" plan configs/run.ini $small train.activation_checkpointing=yes --print-program
sed -n 's/^ *[0-9][0-9]*  *[0-9]  \([A-Z].*\)/\1/p' printed | sed 's/   *.*//' >program
grep -q '^BACKWARD layers.0.attn micro-batch 1$' program || failed "the program" program

trained without train.activation_checkpointing=yes run.replay=no
[ ! -e ranges ] && ! grep nvtx counts || failed "ranges that were not requested" counts
trained with train.activation_checkpointing=yes run.replay=no device.cuda.nvtx=yes
same_tensors "ranges change bits" without/model with/model
# The rehearsal of a step, before memory is allocated, has ranges too.
sed -n 's/^begin 0 //p' ranges >names
{ cat program program program; } | cmp -s - names || failed "names of ranges" program names
awk 'NR % 2 != ($1 == "begin") || $2 != 0 { exit 1 } END { exit NR % 2 }' ranges || failed "ranges that are not balanced" ranges
# A failed instruction closes its range.
rm -f ranges
# shellcheck disable=SC2086  # words
WEFT_EMULATOR_RANGES=$PWD/ranges WEFT_EMULATOR_FAIL=cublasLtMatmul:20=14 refused cublasLtMatmul limit "$weft" train \
    configs/run.ini run.out="$PWD/fails" $small train.steps=1 run.replay=no device.cuda.nvtx=yes
awk '{ n[$1]++ } END { exit !(n["begin"] > 0 && n["begin"] == n["end"]) }' ranges || failed "a failed instruction" ranges
# A captured step has ranges once, in its first pass and its capture; a replay has none.
trained replayed device.cuda.nvtx=yes train.steps=4
[ "$(grep -c '^begin 0 STEP' ranges)" = 3 ] || failed "ranges of replayed steps" ranges
exit $((failures > 0))
