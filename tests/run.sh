#!/bin/sh
# All tests, from nothing: installs what is needed, builds, runs. More arguments go to ctest.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${WEFT_BUILD_DIR:-$root/build}
cd "$root"
sh configs/packages.sh tests
sh configs/build.sh -DWEFT_TESTS=ON ${WEFT_CMAKE_ARGS:-}
status=0
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" "$@" </dev/null || status=$?
# A test that lacks something outside the project says so in one line that begins with "skipped: ".
log=$build/Testing/Temporary/LastTest.log
if [ -f "$log" ]; then
    echo "skipped checks: $(grep -c '^skipped: ' "$log" || true)"
    sed -n 's/^skipped: /  /p' "$log" | sort | uniq -c
fi
exit "$status"
