#!/bin/sh
# Tests the CPU device with oneDNN 3 on a system that packages oneDNN 2: builds the plugin with the library
# from PyPI, and runs the tests of the device, of operators and of training with it. Everything else is used
# from the existing build.
#   tests/onednn3.sh          after configs/build.sh with tests; $WEFT_BUILD_DIR, or build/
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${WEFT_BUILD_DIR:-$root/build}" && pwd)
version=2023.2.0 # of the packages; they contain library version 3.2.0
here=$build/onednn3
dnnl=$here/$version
plugins=$here/build/plugins

# Downloaded once; an incomplete prefix has another name.
if [ ! -d "$dnnl" ]; then
    sh "$root/configs/packages.sh" python
    rm -rf "$here/wheels" "$here/prefix"
    mkdir -p "$here/wheels" "$here/prefix"
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$here/wheels" \
        "onednn-devel-cpu-gomp==$version" "onednn-cpu-gomp==$version"
    for wheel in "$here"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$here/wheels"; done
    for data in "$here"/wheels/*.data/data; do cp -r "$data/." "$here/prefix"; done
    rm -r "$here/wheels"
    mv "$here/prefix" "$dnnl"
fi

# A directory with the build's plugins and this one in place of its own.
if ! { cmake -S "$root" -B "$here/build" -G Ninja -DWEFT_TESTS=OFF -DWEFT_DNNL_ROOT="$dnnl" &&
       cmake --build "$here/build" --target weft-device-cpu; } >"$here/build.log" 2>&1 </dev/null; then
    tail -n 60 "$here/build.log" >&2
    echo "onednn3.sh: the plugin cannot be built; the whole log is $here/build.log" >&2
    exit 1
fi
for plugin in "$build"/plugins/*.so; do
    [ "${plugin##*/}" = weft-device-cpu.so ] || ln -sf "$plugin" "$plugins"
done
export WEFT_PLUGIN_PATH="$plugins" WEFT_BUILD="$build" WEFT_SOURCE="$root" OMP_WAIT_POLICY=passive
export WEFT_ASSETS="${WEFT_ASSETS:-$root/../shared/assets}"
"$build/weft" profile "$root/configs/chess.ini" --steps 1 --warmup 0 >"$here/profile"
said=$(sed -n 's/^device *//p' "$here/profile")
case $said in
*"oneDNN 3."*) echo "$said" ;;
*) echo "onednn3.sh: the device should run on oneDNN 3, but says: $said" >&2; exit 1 ;;
esac

# One command per line: each test unchanged, and the bit test again on each lesser instruction set, as in
# tests/CMakeLists.txt. The device's instruction-set test does that for its kernels itself.
find "$build/tests" -maxdepth 1 -type f \( -name 'test_device_*' -o -name 'test_tensor_*' -o -name 'test_train_*' \) |
    sort >"$here/tests"
[ -s "$here/tests" ] || { echo "onednn3.sh: $build holds no tests: configs/build.sh -DWEFT_TESTS=ON builds them" >&2; exit 1; }
for isa in AVX2:avx2 AVX512_CORE:avx512; do
    echo "DNNL_MAX_CPU_ISA=${isa%:*} WEFT_TEST_ISA=${isa#*:} CK_RUN_CASE=threads $build/tests/test_train_bits" >>"$here/tests"
done
# shellcheck disable=SC2016  # the inner shell's $@
xargs -P "$(nproc)" -L 1 sh -c '
    log=$(mktemp)
    env "$@" >"$log" 2>&1 </dev/null && status=0 || status=$?
    case $status in
    0) sed -n "/^skipped: /p" "$log"; echo "passed $*" ;;
    77) sed -n "/^skipped: /p" "$log"; echo "skipped $*"; status=0 ;;
    *) cat "$log"; echo "failed $*"; status=1 ;;
    esac
    rm -f "$log"
    exit "$status"' sh <"$here/tests"
