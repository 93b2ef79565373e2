#!/bin/sh
# Fuzzes every parser of foreign files with clang's libFuzzer, ASan and UBSan, starting from tests/fuzz/seeds.
#   tests/fuzz.sh [SECONDS] [TARGET...]     30 seconds each, all targets; into $WEFT_BUILD_DIR/fuzz, or build/fuzz
#   WEFT_FUZZ_RUNS=1000000 tests/fuzz.sh    number of inputs each, without time limit
# A failing input is kept, and its path is printed: fix the bug, and add the file to seeds/.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${WEFT_BUILD_DIR:-$root/build}"
here=$(cd "${WEFT_BUILD_DIR:-$root/build}" && pwd)/fuzz
seconds=${1:-30}
[ $# -eq 0 ] || shift
sh "$root/configs/packages.sh" fuzz
mkdir -p "$here"
if ! { cmake -S "$root/tests/fuzz" -B "$here" -G Ninja -DCMAKE_C_COMPILER=clang && cmake --build "$here"; } \
    >"$here/build.log" 2>&1 </dev/null; then
    tail -n 60 "$here/build.log" >&2
    echo "fuzz.sh: the targets cannot be built; the whole log is $here/build.log" >&2
    exit 1
fi
if [ $# -eq 0 ]; then
    for seeds in "$root"/tests/fuzz/seeds/*/; do set -- "$@" "$(basename "$seeds")"; done
fi
limit="-max_total_time=$seconds"
[ -z "${WEFT_FUZZ_RUNS:-}" ] || limit="-runs=$WEFT_FUZZ_RUNS"
export WEFT_SOURCE="$root" UBSAN_OPTIONS=print_stacktrace=1 here limit root
# shellcheck disable=SC2016  # the inner shell's $1
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '
    mkdir -p "$here/corpus/$1" "$here/found/$1"
    log=$here/$1.log
    dictionary=
    [ ! -f "$root/tests/fuzz/$1.dict" ] || dictionary="-dict=$root/tests/fuzz/$1.dict"
    if "$here/fuzz_$1" $limit $dictionary -max_len=16384 -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
        -artifact_prefix="$here/found/$1/" "$here/corpus/$1" "$root/tests/fuzz/seeds/$1" >"$log" 2>&1 </dev/null; then
        sed -n "s/^stat::number_of_executed_units: *\([0-9]*\)/$1 \1/p" "$log" |
            awk "{ printf \"%-20s %10d inputs\n\", \$1, \$2 }"
    else
        grep -v "^#" "$log" | tail -n 60
        echo "fuzz.sh: $1 fails; the whole log is $log"
        exit 1
    fi' sh {}
