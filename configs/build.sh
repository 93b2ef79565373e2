#!/bin/sh
# Builds Weft into build/ (or $WEFT_BUILD_DIR); more arguments go to cmake.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${WEFT_BUILD_DIR:-$root/build}
log=$build/build.log
mkdir -p "$build"
if ! { cmake -S "$root" -B "$build" -G Ninja "$@" && cmake --build "$build"; } >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    echo "build.sh: the build failed; the whole log is $log" >&2
    exit 1
fi
echo "built $build/weft"
