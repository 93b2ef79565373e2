#!/bin/sh
# Device algorithms are selected once. Two ranks whose cuBLASLt prefers different algorithms train the bits of one rank.
# A resume on a machine with other preferences continues with the checkpoint's algorithms, and the plan prints them. On
# the CUDA emulator, where WEFT_EMULATOR_WAY changes the preferred algorithm.
set -u
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
WEFT_PLUGIN_PATH=$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins
WEFT_MODEL=$WEFT_SOURCE/configs/chess/base
export WEFT_PLUGIN_PATH

i=0
while [ $i -lt 60 ]; do echo "1. e4 e5 2. f4 exf4 3. Nf3 g5 $i"; i=$((i + 1)); done >text.txt
cat >run.ini <<TEXT
[model]
plugin = llama
path   = $WEFT_MODEL
[tokenizer]
plugin = bpe
[data]
plugin  = text
path    = text.txt
context = 16
[train]
steps        = 3
global_batch = 2
micro_batch  = 1
[optimizer]
plugin = adamw
[device]
plugin    = cuda
workspace = 1Mi
share     = yes
cache     = $WEFT_BUILD/tests/cuda/compiled
[checkpoint]
every = 2
[run]
out = one
TEXT

bits() { # bits OUT: of the run's model
    cksum <"$1/model/model.safetensors"
}

train() { # train OUT ARGUMENT...
    out=$1
    shift
    prints "$weft" train run.ini "run.out=$out" "$@"
}
train one
WEFT_EMULATOR_WAY=1
export WEFT_EMULATOR_WAY
train other
[ "$(bits one)" != "$(bits other)" ] || failed "ways do not differ in bits: the test shows nothing"

# A resume at step 2 on a machine that prefers the algorithm of `other`.
mkdir -p again/checkpoints
cp -r one/checkpoints/step-2 again/checkpoints/
train again --resume
[ "$(bits one)" = "$(bits again)" ] || failed "a resume did not take the ways of its checkpoint"
unset WEFT_EMULATOR_WAY

# The plan prints them, and the checkpoint has the same.
prints "$weft" plan run.ini --json
grep -o '"for": "[^"]*"' printed | sed 's/"for": //' | sort >planned
[ -s planned ] || failed "the plan shows no choices" printed
sed -n '/"choices"/,$p' one/checkpoints/step-2/state/run.json | grep -o '"fp32 to [^"]*"' | sort >kept
cmp -s planned kept || failed "plan and checkpoint have other choices" planned kept
prints "$weft" plan run.ini
grep -q "^chosen  *$(grep -c . planned) choices of the device" printed || failed "the plan does not count them" printed

# An unavailable algorithm is reported by name, and --resume=inexact continues with another.
rm -rf again
mkdir -p again/checkpoints
cp -r one/checkpoints/step-2 again/checkpoints/
record=again/checkpoints/step-2/state/run.json
old=$(sha256sum <$record | cut -d ' ' -f 1)
sed -i -E "s/(\"value\": \")[0-9a-f]{128}/\1$(printf '%0128d' 0)/" $record
sed -i "s/$old/$(sha256sum <$record | cut -d ' ' -f 1)/" again/checkpoints/step-2/manifest.json
refused "cuBLASLt of this machine cannot run a matmul with the selected algorithm" \
    "$weft" train run.ini run.out=again --resume
train again --resume=inexact
grep -qF "kernel algorithms are selected again" printed printed.err || failed "nothing says that ways are chosen anew" printed printed.err

# Two ranks with different preferences.
if has mpich; then
    launcher=$(command -v mpiexec.mpich || command -v mpiexec)
    cat >rank.sh <<'TEXT'
WEFT_EMULATOR_WAY=$PMI_RANK exec "$@"
TEXT
    prints limit "$launcher" -n 2 sh rank.sh "$weft" train run.ini run.out=two comm.plugin=mpi-mpich strategy.plugin=ddp
    [ "$(bits one)" = "$(bits two)" ] || failed "ranks that would choose differently have not trained one rank's bits"
fi
exit "$failures"
