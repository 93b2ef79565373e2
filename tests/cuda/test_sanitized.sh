#!/bin/sh
# The emulator and its device and communicator under ASan and UBSan: a separate build in the build directory, and the
# quick tests of this directory in it. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
[ "${WEFT_SANITIZED:-}" != ON ] || { echo "skipped: this build is under the sanitizers"; exit 77; }
unset WEFT_FULL
own=$WEFT_BUILD/sanitized
cmake -S "$WEFT_SOURCE" -B "$own" -G Ninja -DWEFT_TESTS=ON -DWEFT_SANITIZE=ON -DWEFT_SANITIZE_EMULATOR=ON -DWEFT_CUDA=OFF \
    >log 2>&1 && ninja -C "$own" >>log 2>&1 || { failed "a build under the sanitizers" log; exit 1; }
ctest --test-dir "$own" --output-on-failure -j "$(nproc)" -R '^cuda\.' -LE '^full$' >log 2>&1 ||
    failed "tests under the sanitizers" log
grep -E 'tests passed|Total Test time' log
exit $((failures > 0))
