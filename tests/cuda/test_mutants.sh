#!/bin/sh
# Applies each patch of mutants.patch: compiles the source, links it with the plugin's other objects, and requires the
# named test to fail. MUTANTS=4,7 runs only these. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
command -v ninja >/dev/null || { echo "skipped: there is no ninja, which knows how a source is compiled"; exit 77; }

# A separate build directory, linked to the original except for the emulated plugins.
mkdir -p build/tests/cuda
for file in "$WEFT_BUILD"/*; do [ "$file" = "$WEFT_BUILD/tests" ] || ln -s "$file" build/; done
for file in "$WEFT_BUILD"/tests/*; do [ "$file" = "$WEFT_BUILD/tests/cuda" ] || ln -s "$file" build/tests/; done
for file in "$WEFT_BUILD"/tests/cuda/*; do ln -s "$file" build/tests/cuda/; done
for plugin in device-cuda comm-nccl; do
    ninja -C "$WEFT_BUILD" -t commands "weft-$plugin-emulator" >"commands.$plugin"
done

in_build() { # in_build COMMAND: run as by ninja
    (cd "$WEFT_BUILD" && sh -c "$1") >log 2>&1
}
compile() { # compile PLUGIN FILE: compiles the copy in plugins to mutant.o
    command=$(grep -E -- "-c $WEFT_SOURCE/plugins/$2( |\$)" "commands.$1" | sed "s|-c $WEFT_SOURCE/plugins/|-c $dir/plugins/|
        s|-o [^ ]*\\.o |-o $dir/mutant.o |; s|-MF [^ ]*|-MF $dir/mutant.d|")
    in_build "$command -Wno-error" || failed "$2 with its mistake is not compiled" log
}
link() { # link PLUGIN FILE
    object=$(grep -E -- "-c $WEFT_SOURCE/plugins/$2( |\$)" "commands.$1" | sed 's/.*-o \([^ ]*\.o\) .*/\1/')
    command=$(tail -n 1 "commands.$1" | sed "s|$object|$dir/mutant.o|; s|-o [^ ]*weft-$1\\.so|-o $dir/build/tests/cuda/weft-$1.so|")
    rm -f "build/tests/cuda/weft-$1.so"
    in_build "$command" || failed "$2 with its mistake is not linked" log
}
passes() { # passes TEST [1]: its quick part, or all of it, in this script's build directory
    what=${1#cuda.} keys=
    case $what in device_*_cudnn) what=${what%_cudnn} keys=" attention=cudnn" ;; esac
    if [ -e "$WEFT_SOURCE/tests/cuda/test_$what.sh" ]; then set -- sh "$WEFT_SOURCE/tests/cuda/test_$what.sh"
    elif [ -e "$WEFT_SOURCE/tests/cuda/test_$what.c" ]; then set -- "build/tests/test_cuda_$what"
    else set -- "build/tests/test_$what"
    fi
    env WEFT_FULL="${2:-}" WEFT_BUILD="$dir/build" WEFT_PLUGIN_PATH="$dir/build/tests/cuda:$dir/build/plugins" WEFT_TEST_DEVICE=cuda \
        WEFT_TEST_KEYS="share=yes workspace=1Mi cache=$WEFT_BUILD/tests/cuda/compiled$keys" CK_TIMEOUT_MULTIPLIER=10 \
        timeout 900 "$@" >log 2>&1
}

# The quick parts of the tests suffice for most.
n=0 tried=0
: >right
csplit -s -z -n 3 -b '%03d.patch' -f mutant "$WEFT_SOURCE/tests/cuda/mutants.patch" '/^=== /' '{*}'
for change in mutant*.patch; do
    read -r mark file changed name <"$change"
    [ "$mark" = === ] || continue
    n=$((n + 1))
    case ",${MUTANTS:-$n}," in *",$n,"*) ;; *) continue ;; esac
    case $file in device/*) plugin=device-cuda ;; *) plugin=comm-nccl ;; esac
    rm -rf plugins build/tests/cuda/weft-*.so
    cp -r "$WEFT_SOURCE/plugins" plugins
    for id in device-cuda comm-nccl; do ln -s "$WEFT_BUILD/tests/cuda/weft-$id.so" build/tests/cuda/; done
    if ! grep -qx "$name" right; then
        passes "$name" || failed "$name fails without any mistake" log
        echo "$name" >>right
    fi
    before=$failures
    if ! patch -s -F0 "plugins/$changed" "$change" >log 2>&1; then
        failed "mutant $n does not fit plugins/$changed" log "$change"
        continue
    fi
    compile $plugin "$file"
    [ "$failures" != "$before" ] || link $plugin "$file"
    [ "$failures" = "$before" ] || continue
    tried=$((tried + 1))
    if passes "$name" && passes "$name" 1; then failed "mutant $n is not noticed by $name: $changed" "$change"
    else echo "$n, $file: noticed by $name"; fi
done
echo "$((tried - failures)) of $tried mistakes are noticed"
[ $tried -gt 0 ] || failed "no mistake was tried"
exit $((failures > 0))
