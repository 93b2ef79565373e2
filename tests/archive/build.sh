#!/bin/sh
# Plugins of every kind, built by one set of the SDK's headers: small, stripped, and to be kept for ever when that SDK is
# out (README.md).
#   build.sh SOURCE HEADERS OUT    SOURCE: the tree that the plugins' sources are of; HEADERS: the directory that holds
#                                  weft/; OUT gets weft-<kind>-archive.so, and measured.txt of the headers
# CC is the compiler, cc by default.
set -eu
source=$1 headers=$2 out=$3 here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
mkdir -p "$out"

build() { # build KIND FILE...
    kind=$1
    shift
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -Os -fno-math-errno -ffp-contract=off -fvisibility=hidden -fPIC -shared -s \
        -ffunction-sections -fdata-sections -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,noseparate-code \
        "-Wl,--version-script=$source/sdk/cmake/weft-plugin.map" -I"$headers" -I"$source/tests/common" -I"$source" \
        "$@" -o "$out/weft-$kind-archive.so" -lm
}
# Of the templates of `weft plugins new`, as it fills them.
for kind in model policy strategy optimizer data tokenizer; do
    sed -e "s/weftnew-kind/$kind/g; s/weftnew-id/archive/g; s/weftnew/archive/g" \
        "$source/sdk/template/new/$kind/weftnew.c" >"$scratch/$kind.c"
    build "$kind" "$scratch/$kind.c"
done
# Of the other kinds, of what there is that needs no library: the plainest device, a world of one rank, a low-rank adapter.
printf '%s\n' '#include "reference_device.h"' 'WEFT_NO_KEYS(archive_config)' \
    'WEFT_PLUGIN(device, 1, "archive", "0.1.0", "The plainest device.", archive_config, NULL, weft_reference_device)' \
    >"$scratch/device.c"
build device "$scratch/device.c" "$source"/tests/common/reference_*.c
sed 's/"self"/"archive"/' "$source/plugins/comm/self/self.c" >"$scratch/comm.c"
build comm "$scratch/comm.c"
sed 's/"core"/"archive"/' "$source/sdk/template/adapter-core/core.c" >"$scratch/adapter.c"
build adapter "$scratch/adapter.c"
sh "$here/measure.sh" "$headers" >"$out/measured.txt"
