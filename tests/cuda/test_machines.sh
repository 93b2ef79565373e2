#!/bin/sh
# Missing requirements of a machine, in complete runs with [device] plugin = cuda: each stops with one message before
# anything is written. Without a driver: test_no_driver.sh. The emulator imitates such machines. ctest sets WEFT_BUILD
# and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
make_model model 32 8 56 1 512
make_text 40
cat >run.ini <<INI
[run]
out = out
[model]
plugin = llama
path   = model
start  = fresh
[tokenizer]
plugin = bpe
[data]
plugin   = text
path     = games.txt
document = line
context  = 16
[train]
steps        = 1
global_batch = 6
micro_batch  = 1
[optimizer]
plugin = adamw
$(cuda_sections)
INI

stops() { # stops TEXT [VARIABLE=VALUE]... WORD...: weft train stops with that message and has created nothing
    text=$1
    shift
    refused "$text" env "$@"
    [ ! -e out/model ] || failed "$*: there is a model"
    if grep -qE "not released|signal" log; then failed "$*: ends badly" log; fi
    rm -rf out
}
train="$weft train run.ini"
# shellcheck disable=SC2086  # words on purpose
{
    stops "the NVIDIA driver is too old: it runs CUDA up to 12.4, and this plugin was built with 13.0. Install a driver" \
        WEFT_EMULATOR_DRIVER=12040 $train
    stops "this process may use no NVIDIA card" WEFT_EMULATOR_DEVICES=0 $train
    stops "Card 0, CUDA emulator sm_75, has compute capability 7.5; 8.0 (Ampere) is the least" \
        WEFT_EMULATOR_CAPABILITY=75 $train

    # The memory of the context, cuBLASLt and NCCL is not planned: it is measured, listed separately, and absent in a
    # plan.
    apart="fits        a device's 15.7 GiB; largest: .*
apart       the device's other 332.0 MiB are its context's and its libraries'"
    $weft plan run.ini >log 2>&1 || failed "plan" log
    tr '\n' '~' <log | grep -q "$(echo "$apart" | tr '\n' '~')" || failed "plan does not show what is taken apart" log
    grep -q '"apart": 348127232' <<JSON || failed "nor as JSON" log
$($weft plan run.ini --json)
JSON
    # The line of a GPU has no threads.
    for command in train profile; do
        limit $weft $command run.ini >log 2>&1 || failed "$command" log
        grep -q "^device  *CUDA emulator sm_90, sm_90, cuBLASLt [0-9.]*, rounded attention$" log || failed "the device's line of $command" log
        rm -rf out
    done
    # The plan equals the run's memory to the byte: with that and the separate part it runs, with a byte less it does
    # not.
    planned=$($weft plan run.ini --json | sed -n '/"fit": {/,/}/s/.*"planned": \([0-9]*\).*/\1/p')
    limit env WEFT_EMULATOR_MEMORY=$((planned + 348127232)) $train >log 2>&1 || failed "just enough memory" log
    libraries='[0-9.]* MiB'
    [ "${WEFT_SANITIZED:-}" != ON ] || libraries='0 B' # the C library does not count a sanitizer's allocations
    grep -q "; libraries $libraries, and 332.0 MiB of the device with its context\$" log || failed "train does not tell what is apart" log
    rm -rf out
    stops "in addition to the 332.0 MiB of its context and libraries: nothing was started" \
        WEFT_EMULATOR_MEMORY=$((planned + 348127231)) $train
    stops "has no memory for a buffer of" WEFT_EMULATOR_MEMORY=$((planned + 348127231)) $train --no-fit
    # Same for several ranks with one GPU each: a rank's planned memory and its separate part, including groups and
    # channels of the communicator, suffice. With a byte less on the fuller rank nothing starts.
    exact() { # exact RANKS RANK argument...: the rank that needs most
        ranks=$1 fullest=$2
        shift 2
        "$weft" plan run.ini --ranks "$ranks" --json --print-links "$@" >plan.json 2>log || failed "plan $*" log
        limit env WEFT_EMULATOR_DEVICES="$ranks" $train --ranks "$ranks" "$@" >log 2>&1 || failed "$ranks ranks: $*" log
        "$WEFT_BUILD/tests/rank_plan" plan.json out/ranks.json >said 2>&1 || failed "plan and run differ: $*" said
        sed -n 's/ *"apart": \([0-9]*\),.*/\1/p' out/ranks.json >aparts
        rm -rf needed
        tr -d ' ,' <out/ranks.json | awk -F: '$1 == "\"planned\"" { planned = $2 } $1 == "\"apart\"" { print planned + $2 }' >needed
        rm -rf out
        [ "$(wc -l <needed)" = "$ranks" ] || failed "$ranks ranks need" needed
        most=$(sort -n needed | tail -n 1)
        [ "$(sed -n "$((fullest + 1))p" needed)" = "$most" ] || failed "rank $fullest takes most: $*" needed
        limit env WEFT_EMULATOR_DEVICES="$ranks" WEFT_EMULATOR_MEMORY="$most" $train --ranks "$ranks" "$@" >log 2>&1 ||
            failed "just enough memory: $*" log
        rm -rf out
        stops ", and rank $fullest's device has " WEFT_EMULATOR_DEVICES="$ranks" WEFT_EMULATOR_MEMORY=$((most - 1)) $train --ranks "$ranks" "$@"
        grep -q "MiB of it [a-z]*, .* of its context and libraries: nothing was started" log || failed "what takes most" log
    }
    exact 2 0 comm.plugin=nccl strategy.plugin=ddp
    exact 2 1 comm.plugin=nccl strategy.plugin=mp
    exact 2 0 comm.plugin=nccl strategy.plugin=fsdp checkpoint.every=1 train.steps=2
    # Checkpoint boundary pages go between neighbours and open no channels: a rank that reports only to rank 0 has a
    # channel only to rank 0.
    exact 4 0 comm.plugin=nccl strategy.plugin=fsdp checkpoint.every=1 train.steps=2 train.global_batch=8
    [ "$(sed 1d aparts | sort -u | wc -l)" = 1 ] || failed "ranks other than the first hold the same apart" aparts
    if has mpich; then exact 2 0 comm.plugin=mpi-mpich strategy.plugin=fsdp checkpoint.every=1 train.steps=2; fi

    # A GPU filled by context and libraries: for one rank, and for several, which communicate before planning.
    stops "and a device has 0 B in addition to the 332.0 MiB of its context and libraries: nothing was started" WEFT_EMULATOR_MEMORY=332M $train
    stops "Before any planned memory, the device's context and libraries, including the communicator's, use 333.0 MiB of this rank's 333.0 MiB" \
        WEFT_EMULATOR_DEVICES=2 WEFT_EMULATOR_MEMORY=333M $train --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
    export WEFT_EMULATOR_CONTEXT=0

    # Too small a GPU: reports the largest part and the settings that would fit.
    stops "of it workspace, and a device has 1.0 MiB: nothing was started" WEFT_EMULATOR_MEMORY=1M $train
    stops "train.micro_batch=" WEFT_EMULATOR_MEMORY=3M $train train.micro_batch=16 train.global_batch=32 data.context=64
    # prove starts no cell that would not fit; if forced to start it, the GPU reports the error.
    large="train.micro_batch=16 train.global_batch=32 data.context=64 --steps 1"
    stops "on 1 rank: 5.7 MiB are planned, 3.3 MiB of it workspace, and a device has 3.0 MiB: nothing was started. It would fit with train.micro_batch=" \
        WEFT_EMULATOR_MEMORY=3M $weft prove run.ini --ranks 1 $large
    stops "has no memory for a buffer of" WEFT_EMULATOR_MEMORY=3M $weft prove run.ini --ranks 1 $large --no-fit
    stops "on 2 ranks: 6.2 MiB are planned, 3.5 MiB of it workspace, and rank 1's device has 3.0 MiB: nothing was started. It would fit with train.micro_batch=" \
        WEFT_EMULATOR_DEVICES=2 WEFT_EMULATOR_MEMORY=3M $weft prove run.ini --ranks 2 comm.plugin=nccl $large
    # Two ranks on one GPU have half of it each, and so do two of three on two GPUs; memory outside the plan is reported
    # where it is missing.
    share="device.cuda.share=yes comm.plugin=mpi-mpich strategy.plugin=fsdp"
    if has mpich; then
        stops "and rank 0's device has 825.0 KiB: nothing was started" WEFT_EMULATOR_MEMORY=1650K $train $share --ranks 2
        stops "and rank 0's device has 825.0 KiB: nothing was started" WEFT_EMULATOR_DEVICES=2 WEFT_EMULATOR_MEMORY=1650K $train $share --ranks 3
        stops "Card 0, CUDA emulator sm_90, has no memory for a buffer of" WEFT_EMULATOR_MEMORY=1650K $train $share --ranks 2 --no-fit
    fi

    planned() { # planned TEXT argument...: the plan's line about memory
        text=$1
        shift
        WEFT_EMULATOR_MEMORY=8M "$weft" plan run.ini "$@" strategy.plugin=fsdp >log 2>&1 || failed "plan $*" log
        grep -qF "$text" log || failed "the plan does not say $text: $*" log
    }
    planned "fits        the 8.0 MiB of rank 0's device" --ranks 2
    planned "fits        the 4.0 MiB of rank 0's device" --ranks 2 device.cuda.share=yes
    planned "fits        the 8.0 MiB of rank 0's device" --ranks 2 --nodes 2 device.cuda.share=yes

    # More ranks than GPUs.
    stops "This machine has 1 card for 2 ranks. Start at most 1, or let ranks share a card with share = yes in [device], which takes [comm] plugin = mpi." \
        $train --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
    stops "This machine has 2 cards for 3 ranks. Start at most 2" WEFT_EMULATOR_DEVICES=2 \
        $train --ranks 3 comm.plugin=nccl strategy.plugin=fsdp
    # NCCL rejects a shared GPU, regardless of [device]: every rank reports the sharing ranks, as NCCL informs only
    # those.
    alone="device.cuda.share=yes comm.plugin=nccl strategy.plugin=fsdp"
    two="NCCL needs a card for each rank, and ranks 0, 2 share card 0000:01:00.0"
    stops "$two. Fix: start as many ranks as there are cards, or set [comm] plugin = mpi, whose ranks can share one" \
        WEFT_EMULATOR_DEVICES=2 $train --ranks 3 $alone
    [ "$(grep -cF "$two" log)" = 3 ] || failed "not every rank says who shares a card" log
    stops "ranks 0, 2, 4 share card 0000:01:00.0; ranks 1, 3 share card 0000:02:00.0." WEFT_EMULATOR_DEVICES=2 $train --ranks 5 $alone train.global_batch=10
    limit env WEFT_EMULATOR_DEVICES=2 $train --ranks 2 $alone >log 2>&1 || failed "two ranks on two cards" log
    rm -rf out
    # Ranks that each see a different single GPU do not share one.
    limit env WEFT_EMULATOR_APART=1 $train --ranks 2 comm.plugin=nccl strategy.plugin=fsdp >log 2>&1 ||
        failed "two ranks, each with a card that the other does not see" log
    rm -rf out
    stops "and rank 0's device has 1.0 MiB: nothing was started" WEFT_EMULATOR_APART=1 WEFT_EMULATOR_MEMORY=1M $train \
        --ranks 2 comm.plugin=nccl strategy.plugin=fsdp

    # GPUs of two models cannot be ranks of one run, even with one instruction set.
    stops "differ in host, plugins, configuration or device" WEFT_EMULATOR_DEVICES=2 WEFT_EMULATOR_MODELS="H100,H200" \
        $train --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
    grep -qE "the device's model +H100 +H200" log || failed "nothing says that a rank has another card" log
    # Nor can a run continue on another model without --resume=inexact.
    limit env WEFT_EMULATOR_MODELS=H100 $train train.steps=2 checkpoint.every=1 >log 2>&1 || failed "a run on one card" log
    rm -rf out/checkpoints/step-2
    refused "the device's model is H200, was H100" env WEFT_EMULATOR_MODELS=H200 $train train.steps=2 checkpoint.every=1 --resume
    limit env WEFT_EMULATOR_MODELS=H200 $train train.steps=2 checkpoint.every=1 --resume=inexact >log 2>&1 || failed "an inexact resume" log
    says log "the device's model is H200, was H100"
    rm -rf out

    # Unsupported shapes are reported before a run creates its directory, as in the plan.
    make_model wide 32 264 56 1 512
    for refusal in "head_dim is 264:model.path=wide" "attention = cudnn supports only bf16:device.cuda.attention=cudnn"; do
        for command in plan train; do
            refused "${refusal%%:*}" $weft $command run.ini "${refusal#*:}"
            [ ! -e out ] || failed "$command leaves a directory behind: $refusal"
        done
    done
    # Same if the optimizer's update cannot be compiled. NVRTC's 6: an error in the source.
    for command in plan train; do
        refused "cannot be compiled for the GPU" env WEFT_EMULATOR_FAIL=nvrtcCompileProgram:1=6 $weft $command run.ini \
            device.cuda.cache=none
        [ ! -e out ] || failed "$command leaves a directory behind: an update that cannot be compiled"
    done
    # Ranks of a launcher: one has no GPU, or one is never started. The message names the missing rank and the expected
    # value.
    export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
    ranks="$weft train run.ini comm.plugin=nccl strategy.plugin=fsdp device.share=yes run.patience=2"
    # Cards of the other rank. It waits for a value of the device or of the communicator when rank 0 ends.
    for cards in 1 2; do
        RANK=0 WEFT_EMULATOR_DEVICES=0 $ranks >log.0 2>&1 & # started by this shell, whose process id is the rendezvous
        first=$!
        RANK=1 WEFT_EMULATOR_DEVICES=$cards $ranks >log.1 2>&1 && failed "a rank alone ends well" log.1
        wait $first && failed "a rank without a card ends well" log.0
        says log.0 "this process may use no NVIDIA card"
        grep -qE "(cards?|machines?|the id of the world from rank 0): rank 0, which keeps the key-value store of the ranks, is gone: (it has ended|Connection reset|Broken)" \
            log.1 || failed "it is not told whose cards were to be heard of, and who is gone" log.1
    done
    RANK=0 $ranks >log.0 2>&1 && failed "rank 0 alone ends well" log.0
    grep -qE "NCCL, the message of rank 1 about its machine: .*within 2 s \(\[run\] patience\)" log.0 ||
        failed "rank 0 does not report the missing rank and its timeout" log.0
    unset WORLD_SIZE LOCAL_WORLD_SIZE
    [ ! -e out/model ] || failed "ranks that have not met leave a model"
    rm -rf out
    # Same for several ranks.
    refused "head_dim is 264. Allowed: up to 256" env WEFT_EMULATOR_DEVICES=2 $train model.path=wide --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
    [ ! -e out ] || failed "ranks leave a directory behind"

    # NCCL needs GPU memory; without its plugin, and without its library.
    stops "NCCL needs memory of CUDA devices, and the device is" $train device.plugin=cpu comm.plugin=nccl
    # The fix depends on the number of ranks, also before ranks have connected.
    says log "Fix: set [device] plugin = cuda, or [comm] plugin = self"
    refused "Fix: set [device] plugin = cuda, or [comm] plugin = self" \
        $weft plan run.ini device.plugin=cpu --ranks 1 comm.plugin=nccl
    for command in plan train; do # and for several ranks before any is started
        stops "communicator nccl moves the memory of cuda devices, and this device" \
            $weft $command run.ini device.plugin=cpu --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
        says log "is not one. Fix: set [device] plugin = cuda, or [comm] plugin = mpi"
    done
    # A single-rank command opens no communicator: a run trained over NCCL works on CPUs with one option.
    WEFT_EMULATOR_DEVICES=1 limit $train comm.plugin=nccl >log 2>&1 || failed "one rank of NCCL" log
    prints $weft eval out device.plugin=cpu
    prints $weft generate out device.plugin=cpu --prompt e4 --tokens 2
    prints $weft profile run.ini device.plugin=cpu comm.plugin=nccl --steps 1
    rm -rf out
    # For a one-rank communicator both others are named.
    stops "to mpi, or to nccl" $train --ranks 2 comm.plugin=self strategy.plugin=fsdp
    mkdir -p without broken
    ln -s "$WEFT_BUILD"/plugins/*.so without/
    ln -sf "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" without/ # the emulator's, not the toolkit's
    rm -f without/weft-comm-nccl.so
    cp "$weft" alone # without plugins in its directory
    stops "[comm] plugin = nccl is no communicator" WEFT_PLUGIN_PATH="$dir/without" WEFT_EMULATOR_DEVICES=2 \
        "$dir/alone" train run.ini --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
    grep -q "NCCL are: .sh configs/packages.sh cuda. installs them, then build again" log ||
        failed "it is not said how the communicator would be built" log
    # Changes the name of the linked library in the plugin file to a missing one.
    sed 's/libweft-cuda-emulator\.so/libnccl-is-missing000.so/g' "$WEFT_BUILD/tests/cuda/weft-comm-nccl.so" \
        >broken/weft-comm-nccl.so
    stops "libnccl-is-missing000.so" WEFT_PLUGIN_PATH="$dir/broken:$dir/without" \
        WEFT_EMULATOR_DEVICES=2 $train --ranks 2 comm.plugin=nccl strategy.plugin=fsdp
}
exit $((failures > 0))
