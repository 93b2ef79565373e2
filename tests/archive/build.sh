#!/bin/sh
# Builds plugins of every kind with one set of the SDK's headers: small, stripped, and archived permanently
# when that SDK is released (README.md).
#   build.sh SOURCE HEADERS OUT    SOURCE: tree with the plugins' sources; HEADERS: directory that contains weft/; OUT
#                                  receives weft-<kind>-archive.so, and measured.txt of the headers
# CC is the compiler, cc by default.
set -eu
source=$1 headers=$2 out=$3 here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
mkdir -p "$out"

build() { # build KIND ID FILE...
    kind=$1 id=$2
    shift 2
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -Os -fno-math-errno -ffp-contract=off -fvisibility=hidden -fPIC -shared -s \
        -ffunction-sections -fdata-sections -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,noseparate-code \
        "-Wl,--version-script=$source/sdk/cmake/weft-plugin.map" -I"$headers" -I"$source/tests/common" -I"$source" \
        "$@" -o "$out/weft-$kind-$id.so" -lm
}
fill() { # fill KIND ID: the template of `weft plugins new`, filled in the same way
    sed -e "s/weftnew-kind/$1/g; s/weftnew-id/$2/g; s/weftnew/archive/g" "$source/sdk/template/new/$1/weftnew.c" \
        >"$scratch/$2.$1.c"
    build "$1" "$2" "$scratch/$2.$1.c"
}
for kind in model policy strategy optimizer data tokenizer; do fill "$kind" archive; done
# Templates of the other kinds wrap another plugin, which the host provides.
for kind in device comm; do fill "$kind" archive-wrap; done
# Others need no library and no other plugin: the simplest device, communicators for one and for several
# ranks, an adapter.
printf '%s\n' '#include "reference_device.h"' 'WEFT_NO_KEYS(archive_config)' \
    'WEFT_PLUGIN(device, 1, "archive", "0.1.0", "The plainest device.", archive_config, NULL, weft_reference_device)' \
    >"$scratch/device.c"
build device archive "$scratch/device.c" "$source"/tests/common/reference_*.c
build comm archive '-DSOURCE="plugins/comm/self/self.c"' '-DID="archive"' "$source/tests/changed/renamed.c"
build comm archive-files "$here/comm.c"
build adapter archive '-DSOURCE="sdk/template/adapter-core/core.c"' '-DID="archive"' "$source/tests/changed/renamed.c"
sh "$here/measure.sh" "$headers" >"$out/measured.txt"
