#!/bin/sh
# The teaching demo: builds the model of three weights in teach/chain.c, trains it for some steps (two, or
# `sh configs/teach.sh 3`), and puts each number that Weft computed beside the same number computed by hand here, from
# the formula that stands in the row. Ends with status 1 where two of them differ. Runs from the source tree and from an
# installation; results go to runs/ of the source tree, or of the working directory.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
steps=${1:-2}
if [ -d "$root/sdk" ]; then
    weft=${WEFT_BUILD_DIR:-$root/build}/weft
    include=$root/sdk/include
    map=$root/sdk/cmake/weft-plugin.map
    runs=$root/runs
    plugin=$root/configs/teach/weft-model-chain.so # where teach.ini has it
else # PREFIX/share/weft/configs
    prefix=$(cd "$root/../.." && pwd)
    weft=$prefix/bin/weft
    include=$prefix/include
    map=$(find "$prefix"/lib* -name weft-plugin.map | head -n 1)
    runs=$PWD/runs
    plugin=$runs/weft-model-chain.so
fi
if [ ! -x "$weft" ] || [ ! -e "$include/weft/model.h" ] || [ ! -e "$map" ]; then
    echo "teach.sh: the program $weft, the headers in $include/weft or weft-plugin.map is missing: build Weft, or" \
        "install it again" >&2
    exit 1
fi
log=$runs/teach.log
mkdir -p "$runs"

"${CC:-cc}" -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I"$include" -Wl,--version-script="$map" \
    "$root/configs/teach/chain.c" -o "$plugin"
"$weft" train "$root/configs/teach.ini" model.plugin="$plugin" run.out="$runs/teach" "train.steps=$steps" --overwrite \
    --print-values "$steps" >"$log"

LC_ALL=C awk -F '  +' -v steps="$steps" -f "$root/configs/teach/by_hand.awk" "$log"
