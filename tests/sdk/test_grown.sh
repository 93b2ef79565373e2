#!/bin/sh
# Plugins with longer structs than the host, and a host with longer structs than its plugins: both have the
# same bits as matching ones. grow.sh makes the longer structs. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
has mpich || exit 77
grown=$WEFT_BUILD/grown

# Builds the complete tree again with the longer structs and the settings of the outer build. Bits do not
# depend on the optimization level, so it compiles fast code for a few steps only; the CUDA device is not used
# here.
build_grown() {
    sh "$WEFT_SOURCE/tests/sdk/grow.sh" "$WEFT_SOURCE/sdk/include" "$grown/include" || return 1
    sed -n 's/^\(CMAKE_C_COMPILER\|CMAKE_C_COMPILER_LAUNCHER\|WEFT_[A-Z]*_CC\|WEFT_DNNL_ROOT\|WEFT_SANITIZE\):[A-Z]*=/-D\1=/p' \
        "$WEFT_BUILD/CMakeCache.txt" >told
    set -- -DWEFT_TESTS=OFF -DWEFT_CUDA=OFF -DWEFT_SDK_INCLUDE="$grown/include" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O1 \
        -DCMAKE_C_FLAGS=-Wno-missing-field-initializers # caused by the longer structs
    while read -r option; do set -- "$@" "$option"; done <told
    [ ! -e "$WEFT_BUILD/build.ninja" ] || set -- "$@" -G Ninja
    cmake -S "$WEFT_SOURCE" -B "$grown/build" "$@" && cmake --build "$grown/build" --parallel 2
}
build_grown >log 2>&1 || { failed "the tree against longer structs" log; exit 1; }

make_run <<'INI'
steps = 4
clip  = 1.0
[eval]
every = 2
[optimizer]
plugin = adamw
lr     = 1e-3
[checkpoint]
every = 2
keep  = 9
[device]
threads = 1
INI

side() { # side SIDE argument...: runs the program of one side or the other
    grows=$1
    shift
    case $grows in
    both) program=$weft plugins=$WEFT_BUILD/plugins ;;
    plugins) program=$weft plugins=$grown/build/plugins ;;
    host) program=$grown/build/weft plugins=$WEFT_BUILD/plugins ;;
    esac
    WEFT_PLUGIN_PATH=$plugins limit "$program" "$@"
}
numbers() { # numbers DIRECTORY: hashes of its weight files
    (cd "$1" && find . -name '*.safetensors' | sort | xargs sha256sum)
}
same() { # same WHAT SIDE: this side's result equals that of the matching pair
    [ -s "both.$1" ] && cmp -s "both.$1" "$2.$1" || failed "other $1 with grown $2" "both.$1" "$2.$1"
}

# Checks that the plugins come from the expected path.
side plugins plugins list >listed || failed "weft plugins list" listed
grep -Eq "^device +cpu .* ok +$grown/build/plugins/" listed || failed "these are not the grown plugins" listed

one_side() { # one_side SIDE: trains, resumes, plans and writes, on one rank and on two
    of=$1
    for ranks in 1 2; do
        out=$of.$ranks
        set --
        [ "$ranks" = 1 ] || set -- --ranks 2 comm.plugin=mpi-mpich strategy.plugin=fsdp policy.plugin=size policy.size=20k
        side "$of" train run.ini "run.out=$out" "$@" >log 2>&1 || failed "training, $out" log
        side "$of" train run.ini "run.out=$out" train.steps=6 train.schedule=constant "$@" --resume >log 2>&1 ||
            failed "going on, $out" log
        numbers "$out" >"$of.numbers.$ranks"
        side "$of" plan run.ini "$@" --print-program >plan 2>log || failed "plan, $out" log
        grep -E '^ +[0-9]+ +[0-3]  [A-Z]' plan >"$of.program.$ranks" # a host with longer structs needs a few more bytes elsewhere
    done
    side "$of" generate run.ini "model.path=$of.1/model" model.start=weights --prompt "1. e4" --tokens 5 --temperature 0 \
        --json >"$of.text" 2>log || failed "generate, $of" log
    side "$of" train run.ini "run.out=$of.mp" train.steps=2 --ranks 2 comm.plugin=mpi-mpich strategy.plugin=mp \
        policy.plugin=class policy.classes=LlamaDecoderLayer >log 2>&1 || failed "mp, $of" log
    numbers "$of.mp" >"$of.numbers.mp"
}
one_side both
for longer in plugins host; do
    one_side "$longer"
    for what in numbers.1 numbers.2 numbers.mp program.1 program.2 text; do same "$what" "$longer"; done
done
exit $((failures > 0))
