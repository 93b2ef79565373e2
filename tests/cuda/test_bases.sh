#!/bin/sh
# Each built-in adapter on each packed base, on the CUDA emulator: three ranks, one GPU each, have the bits of one rank.
# Tested under fsdp, in the full suite under every strategy, and against the CPU's losses within a tolerance. A separate
# kernel computes DoRA's norms of a packed base. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_EMULATOR_DEVICES=3 WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"

make_model model 64 16 128 2 521
make_text 20
cat >cpu.ini <<'INI'
[run]
out = out
[model]
path  = model
start = fresh
[data]
path       = games.txt
document   = line
context    = 16
validation = 2
[train]
steps        = 6
global_batch = 6
micro_batch  = 1
clip         = 0.5
schedule     = constant
[eval]
every = none
[checkpoint]
every = none
[optimizer]
plugin = adamw
lr     = 1e-2
[device]
threads = 1
INI
sed '/^threads/d' cpu.ini >cuda.ini
cat >>cuda.ini <<INI
plugin = cuda
[device.cuda]
workspace = 1Mi
cache     = $WEFT_BUILD/tests/cuda/compiled
INI

band=1e-5
cell() { # cell BASE ADAPTER [KEY...]: prints its result
    base=$1
    shift
    what="$* on $base"
    name=$1
    shift
    set -- model.base="$base" adapter.plugin="$name" "$@"
    limit "$weft" train cpu.ini --overwrite run.out=cpu "$@" >log 2>&1 || failed "$what on the CPU" log
    limit "$weft" train cuda.ini --overwrite run.out=one "$@" >log 2>&1 || failed "$what" log
    agree "$what: the card and the CPU" $band cpu one
    limit "$weft" train cuda.ini --overwrite run.out=three comm.plugin=nccl strategy.plugin=fsdp --ranks 3 "$@" >log 2>&1 ||
        failed "$what on three ranks" log
    same_tensors "$what: three ranks and one" one/model three/model
    is_full || return 0
    limit "$weft" prove cuda.ini comm.plugin=nccl --ranks 3 --steps 1 "$@" >out.txt 2>err.txt || failed "prove $what" out.txt err.txt
    grep -qF " equal, 0 not covered, 0 different" out.txt || failed "prove $what" out.txt err.txt
}

if is_full; then
    for base in nf4 nf4x64 int8 fp8; do
        band=1e-5
        cell $base lora adapter.r=3
        cell $base lora adapter.r=3 adapter.dora=yes
        cell $base ia3
        cell $base prefix adapter.length=5 adapter.init_std=0.3
        cell $base llama-adapter adapter.length=4
        cell $base mlp-head adapter.width=24
        band=1e-3
        cell $base lora adapter.r=3 adapter.dora=yes adapter.dropout=0.1 train.precision=bf16
    done
else
    cell nf4 lora adapter.r=3 adapter.dora=yes
    cell nf4x64 llama-adapter adapter.length=4
fi
exit $((failures > 0))
