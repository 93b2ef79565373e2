#!/bin/sh
# Installs requirements, builds, and runs the tests.
#   tests/run.sh           the quick suite, required for every change
#   tests/run.sh --full    everything: large grids and random draws, every instruction set, the device with oneDNN 3, fuzzing
# Further arguments are passed to ctest. tests/CMakeLists.txt assigns tests to suites. Uses $WEFT_BUILD_DIR,
# or build/.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${WEFT_BUILD_DIR:-$root/build}
suite=quick
if [ "${1:-}" = --full ]; then
    suite=full
    shift
fi
now() { date +%s; }
# ctest's log of each test: name, output, seconds.
log=$build/Testing/Temporary/LastTest.log

slowest() { # slowest N: prints the N slowest tests
    echo "the $1 slowest, in seconds:"
    awk '/^[0-9]+\/[0-9]+ Test: / { name = $3 } /^Test time = / { print $4, name }' "$log" | sort -rn | head -n "$1" |
        awk '{ printf "%9.1f  %s\n", $1, $2 }'
}
skipped() { # a test without an external requirement prints one line that starts with "skipped: "
    echo "skipped checks: $(grep -c '^skipped: ' "$log" || true)"
    sed -n 's/^skipped: /  /p' "$log" | sort | uniq -c
}
run() { # run argument...: runs ctest with these arguments
    ctest --test-dir "$build" --output-on-failure --no-label-summary -j "$(nproc)" "$@" </dev/null
}
sanitized() {
    grep -q '^WEFT_SANITIZE:BOOL=ON' "$build/CMakeCache.txt"
}

cd "$root"
began=$(now)
sh configs/packages.sh tests
sh configs/build.sh -DWEFT_TESTS=ON ${WEFT_CMAKE_ARGS:-}
built=$(now)
status=0
rm -f "$log"
if [ $suite = full ]; then
    export WEFT_FULL=1
    run "$@" || status=$?
else
    unset WEFT_FULL
    run -LE '^full$' "$@" || status=$?
fi
tested=$(now)
if [ -f "$log" ]; then
    skipped
    slowest 10
fi
if [ $suite = full ] && ! sanitized; then # the device's plugin is the same there
    echo "once more on oneDNN 3:"
    sh tests/onednn3.sh || status=$?
    echo "drawn inputs for the parsers:"
    sh tests/fuzz.sh || status=$?
fi
echo "the $suite suite took $(($(now) - began)) s: $((built - began)) to build, $((tested - built)) for ctest's tests, $(($(now) - tested)) for what came behind"
exit "$status"
