#!/bin/sh
# Whole runs on the CUDA double, as [device] plugin = cuda makes them: the same loss as on the CPU within a band, a text
# that is generated, ranks that share the card over MPI and give the bits of one, and a run that is stopped and taken up
# on fewer ranks. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA double"; exit 77; }
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
fail() { # fail WHAT: what the last run said
    failed "$1" out err
    exit 1
}
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
cat >cuda.ini <<INI
[device]
plugin = cuda
[device.cuda]
share     = yes
workspace = 1Mi
cache     = $WEFT_BUILD/tests/cuda/compiled
INI
cp -r "$WEFT_SOURCE/configs" configs
sed '/^\[device\]/,$d' configs/prove.ini >configs/prove.cpu.ini
cat configs/prove.cpu.ini cuda.ini >configs/prove.ini

# ---- beside the CPU ----

losses() { # losses DIRECTORY: of each step
    sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1/metrics.jsonl"
}
near() { # near BAND A B: each of B's losses is within BAND of A's, relative, and there are as many
    losses "$2" >a.txt
    losses "$3" >b.txt
    [ -s a.txt ] || fail "no losses in $2"
    paste a.txt b.txt | awk -v band="$1" '
        NF != 2 { print "line " NR ": " $0; bad = 1; next }
        { off = ($2 - $1) / $1; if (off < 0) off = -off; if (off > worst) worst = off }
        END { print NR " losses, at most " worst " apart"; exit bad || !(worst <= band) }' >out 2>err ||
        fail "losses of $3 beside those of $2"
    cat out
}
train() { # train OUT CONFIG argument...
    to=$1 from=$2
    shift 2
    limit "$weft" train "$from" run.out="$PWD/$to" "$@" >out 2>err || fail "train $to"
}
steps=8
if is_full; then steps=200; fi
train cpu configs/prove.cpu.ini train.steps=$steps
train gpu configs/prove.ini train.steps=$steps
near 2e-6 cpu gpu
steps=3 band=1e-4
if is_full; then steps=200 band=2e-2; fi # where a rounding may fall otherwise, a run in bf16 drifts
train cpu16 configs/prove.cpu.ini train.steps=$steps train.precision=bf16
train gpu16 configs/prove.ini train.steps=$steps train.precision=bf16
near $band cpu16 gpu16

# ---- what it has learnt ----

text() { # text TO argument...: of the run's model
    to=$1
    shift
    limit "$weft" generate "$PWD/gpu" "$@" --prompt "1 2 3" --tokens 12 --temperature 0 >"$to" 2>err || fail "generate $*"
}
text by_gpu
text without_cache --no-cache
text by_cpu device.plugin=cpu
[ -s by_gpu ] && cmp by_gpu without_cache >err && cmp by_gpu by_cpu >>err || fail "the texts differ"

# ---- ranks ----

has mpich || exit $((failures > 0))
prove() { # prove argument...: all cells are equal
    limit "$weft" prove configs/prove.ini "$@" >out 2>err || fail "prove $*"
    grep -q ": \([0-9]*\) equal, 0 not covered, 0 different" out || fail "prove $*"
}
tensors() { # tensors DIRECTORY: hashes of the files of numbers in it
    (cd "$1" && find . -name '*.safetensors' | sort | xargs sha256sum)
}
same() { # same A B: they have the same bits
    tensors "$1" >a.txt
    tensors "$2" >b.txt
    [ -s a.txt ] && cmp -s a.txt b.txt || fail "other bits: $1 $2"
}
ranks() { # ranks N OUT argument...
    n=$1 to=$2
    shift 2
    if [ "$n" != 1 ]; then set -- --ranks "$n" comm.plugin=mpi-mpich "$@"; fi
    train "$to" configs/prove.ini train.schedule=constant checkpoint.every=2 "$@"
}
ranks 1 whole train.steps=6
ranks 4 parts train.steps=2 strategy.plugin=fsdp
ranks 2 parts train.steps=4 strategy.plugin=ddp --resume
ranks 1 parts train.steps=6 --resume
same whole/model parts/model
same whole/checkpoints/step-6 parts/checkpoints/step-6
if is_full; then
    prove --ranks 4 --steps 3
    prove --ranks 4 --steps 2 train.precision=bf16
    prove --ranks 4 --steps 2 strategy.reduce=tree train.global_batch=16
fi
exit $((failures > 0))
