#!/bin/sh
# Checks the code format: .clang-format at the root, and no line over 120 columns.
#   tests/format.sh          lists the differing files
#   tests/format.sh --write  formats them
set -eu
cd "$(dirname "$0")/.."
sh configs/packages.sh format
# Versions format differently; this is the reference.
format=clang-format-14
files=$(git ls-files '*.c' '*.h' '*.cpp' '*.cu' '*.cuh')
# shellcheck disable=SC2086  # a list of words on purpose
if [ "${1:-}" = --write ]; then
    $format -i $files
else
    $format --dry-run --Werror $files || { echo "format.sh: sh tests/format.sh --write lays them out" >&2; exit 1; }
fi
# shellcheck disable=SC2086
awk 'length > 120 { print FILENAME ":" FNR ": longer than 120 columns"; n++ } END { exit n > 0 }' $files
