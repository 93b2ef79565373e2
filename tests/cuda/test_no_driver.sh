#!/bin/sh
# A machine without a driver or without a GPU. The CUDA device is listed with that reason, its keys can be listed and
# validated, and no rule is reported as broken. A run with it stops with the same message. The emulator imitates such
# machines; the test machine is one if it has no driver.
set -u
. "$WEFT_SOURCE/tests/common/shell.sh"
no_driver="there is no NVIDIA driver on this machine"
why=$no_driver

cat >run.ini <<TEXT
[model]
plugin = llama
path   = $WEFT_SOURCE/configs/chess/base
start  = fresh
[tokenizer]
plugin = bpe
[data]
plugin  = text
path    = text.txt
context = 16
[train]
steps        = 1
global_batch = 1
micro_batch  = 1
[optimizer]
plugin = sgd
[device]
plugin = cuda
tf32   = yes
[run]
out = out
TEXT
i=0
while [ $i -lt 40 ]; do echo "1. e4 e5 2. f4 exf4 3. Nf3 g5"; i=$((i + 1)); done >text.txt

unable() { # unable DIRECTORY: the plugin there is unavailable for the reason $why
    WEFT_PLUGIN_PATH=$1
    export WEFT_PLUGIN_PATH
    prints "$weft" plugins list
    grep -A1 "^device  *cuda  *[0-9.]*  *unusable  *$1/weft-device-cuda.so$" printed | grep -qF "$why" ||
        failed "the list does not say why device:cuda is of no use" printed
    prints "$weft" plugins describe device:cuda
    grep -q "^  tf32 *no " printed || failed "its keys are not described" printed
    prints "$weft" config check run.ini
    status=0
    "$weft" plugins check "$1/weft-device-cuda.so" >printed 2>&1 || status=$?
    { [ "$status" = 13 ] && grep -qE "^  R26 +holds" printed && grep -A1 -E "^  R100 +untried" printed | grep -qF "$why" &&
        ! grep -E "^  R[0-9]+ +(broken|crashes|hangs)" printed; } ||
        failed "the check gives status $status, where $why" printed
    refused "$why" "$weft" train run.ini
    refused "$why" "$weft" plan run.ini
    [ ! -e out/model ] || failed "a run without its device has left a model"
}

done=
if [ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ]; then
    WEFT_EMULATOR_DEVICES=-1
    export WEFT_EMULATOR_DEVICES
    unable "$WEFT_BUILD/tests/cuda"
    why="this process may use no NVIDIA card" WEFT_EMULATOR_DEVICES=0
    unable "$WEFT_BUILD/tests/cuda"
    why=$no_driver
    done=yes
fi
if [ -e "$WEFT_BUILD/plugins/weft-device-cuda.so" ] && [ ! -e /proc/driver/nvidia ]; then
    unable "$WEFT_BUILD/plugins"
    if [ -e "$WEFT_BUILD/plugins/weft-comm-nccl.so" ]; then
        prints "$weft" plugins list
        grep -A1 "^comm  *nccl  *[0-9.]*  *unusable " printed | grep -qF "$why" ||
            failed "the list does not say why comm:nccl is of no use" printed
    fi
    done=yes
fi
[ -n "$done" ] || { echo "skipped: there is no CUDA device that has no driver"; exit 77; }
exit "$failures"
