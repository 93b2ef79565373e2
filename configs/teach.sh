#!/bin/sh
# The teaching demo: builds the model of three weights in configs/teach/chain.c, trains it for some steps (two, or
# `sh configs/teach.sh 3`), and puts each number that Weft computed beside the same number computed by hand here, from
# the formula that stands in the row. Ends with status 1 where two of them differ.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
steps=${1:-2}
weft=${WEFT_BUILD_DIR:-$root/build}/weft
plugin=$root/configs/teach/weft-model-chain.so
log=$root/runs/teach.log
mkdir -p "$root/runs"

"${CC:-cc}" -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I"$root/sdk/include" \
    -Wl,--version-script="$root/sdk/cmake/weft-plugin.map" "$root/configs/teach/chain.c" -o "$plugin"
"$weft" train "$root/configs/teach.ini" "train.steps=$steps" --overwrite --print-values "$steps" >"$log"

LC_ALL=C awk -F '  +' -v steps="$steps" -f "$root/configs/teach/by_hand.awk" "$log"
