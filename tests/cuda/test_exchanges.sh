#!/bin/sh
# The communicator nccl on the emulated NCCL and CUDA: the tests of tests/comm, in each of the emulator's modes, with
# one GPU per rank; and a rank that dies. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
plugin=$WEFT_BUILD/tests/cuda/weft-comm-nccl.so
[ -e "$plugin" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
export WEFT_TEST_DEVICE=cuda WEFT_TEST_DEVICE_FILE="$WEFT_BUILD/tests/cuda/weft-device-cuda.so"
export WEFT_EMULATOR_DEVICES=7 WEFT_TEST_KEYS="workspace=1Mi cache=$WEFT_BUILD/tests/cuda/compiled"

start() { # start N WORD...: N ranks started by the host
    limit "$WEFT_BUILD/tests/ranks" start "$@" "$plugin" >out 2>&1 </dev/null
}
exchanges() { # exchanges N CASES
    start "$1" "$2" || failed "$1 ranks, $WEFT_EMULATOR_MODE: $2" out
    [ ! -s out ] || failed "$1 ranks, $WEFT_EMULATOR_MODE: somebody speaks" out
}
gone() { # gone N: 137 is the status of the killed rank
    status=0
    start "$1" gone || status=$?
    [ $status = 137 ] || failed "$1 ranks, $WEFT_EMULATOR_MODE, of which one dies, end with $status" out
    if grep -q "not released" out; then failed "$1 ranks, of which one dies: the others leave memory on the device" out; fi
}

modes="last any"
if is_full; then modes="last any soon"; fi
for mode in $modes; do
    export WEFT_EMULATOR_MODE=$mode
    exchanges 1 exchanges,several,wrong
    exchanges 2 several,pairs,rounding
    exchanges 3 several,pairs,wrong,crossing
    gone 2
    is_full || continue
    for n in 2 3 4 7; do exchanges $n exchanges,several,pairs,wrong,rounding; done
    exchanges 4 crossing
    exchanges 2 large
    gone 4
done
exit "$failures"
