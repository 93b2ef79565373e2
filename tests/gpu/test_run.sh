#!/bin/sh
# The script for machines with a GPU, tested on the CUDA emulator. Its report has a row for each part; a
# failing part is reported with its last output and exit status, and skipped parts are marked. ctest sets
# WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
run() { # run argument...
    timeout 3600 sh "$WEFT_SOURCE/tests/gpu/run" --emulator "$WEFT_BUILD" "$@" report.md >out 2>err
}
has_row() { # has_row TEXT
    grep -qF -- "$1" report.md || failed "the report has no $1" report.md out err
}
export WEFT_STEPS=3
if is_full; then WEFT_STEPS=200; fi
run --minutes 60 --only machine,beside-the-cpu,same-bits,prove,nccl,bench || failed "a part has failed" report.md out err
has_row '| machine | passed |'
has_row '| beside-the-cpu | passed |'
has_row '| same-bits | passed |'
has_row '| prove | passed |'
has_row '| nccl | passed |'
has_row '- and so have two, a card each, under fsdp'
has_row '| bench | not run: an emulator has no speed |'
has_row '- the emulator of CUDA'
! grep -q '^| golden' report.md || failed "a part that was not asked for" report.md
! WEFT_EMULATOR_FAIL='kernel:40=700' run --minutes 60 --only same-bits || failed "a kernel that fails is not told" report.md
has_row '| same-bits | **failed** ('
has_row 'cudaErrorIllegalAddress'
run --minutes 0 --only machine || failed "no time" report.md
has_row '| machine | not run to its end: the time was over |'
exit $((failures > 0))
