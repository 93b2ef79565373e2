#!/bin/sh
# A call of CUDA, cuBLASLt, NVRTC or NCCL that answers an error, in short runs of one rank and of two, which write a
# checkpoint beside training at each step but the last: each run ends with a sentence that says what failed, in good order,
# with nothing left on the device. Only calls whose answer changes nothing, such as those that give something back, may let
# it go on, to the same bits. A few of all calls in the quick suite, each one of them in the full one; PLANTED='cudaMalloc|kernel'
# tries these alone. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA double"; exit 77; }
export WEFT_DOUBLE_DEVICES=2 WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
make_model model 32 8 56 1 512
make_text 40
cat >run.ini <<INI
[run]
out = out
[model]
plugin = llama
path   = $dir/model
start  = fresh
[tokenizer]
plugin = bpe
[data]
plugin   = text
path     = $dir/games.txt
document = line
context  = 16
[train]
steps        = 3
global_batch = 6
micro_batch  = 1
[checkpoint]
every = 1
[optimizer]
plugin = adamw
[device]
plugin    = cuda
workspace = 1Mi
cache     = $WEFT_BUILD/tests/cuda/compiled
INI

# The run of so many ranks; what it counts of the one that errors are planted in, the last.
cat >train.sh <<'SH'
ranks=$1 to=$2
shift 2
if [ "$ranks" != 1 ]; then
    export WEFT_DOUBLE_FAIL_RANK=$((ranks - 1))
    set -- --ranks "$ranks" comm.plugin=nccl strategy.plugin=fsdp "$@"
fi
exec timeout 1200 "$WEFT_BUILD/weft" train run.ini "run.out=$to" "$@"
SH
# one.sh RANKS CALL WHICH: with that one failing; says what is wrong with how it ends.
cat >one.sh <<'SH'
ranks=$1 call=$2 which=$3
work=run.$ranks.$call.$which
case $call in
cuda*) code=719 ;;
kernel) code=700 ;;
cublas*) code=14 ;;
nvrtc*) code=11 ;;
nccl*) code=3 ;;
*) code=500 ;;
esac
more=
case $call in nvrtc*) more=device.cache=none ;; esac # or what is compiled is found there
status=0
# shellcheck disable=SC2086  # no word, or one
WEFT_DOUBLE_FAIL=$call:$which=$code sh train.sh "$ranks" "$work" $more >"$work.txt" 2>&1 || status=$?
wrong=
case $status in
0)
    case $call in
    cudaFree* | *Destroy | nvrtcDestroyProgram | cuModuleUnload | ncclCommAbort) ;;  # nothing needs what they give back
    cublasLtMatmulAlgoConfigGetAttribute | cu*GetError*) ;;    # for a text
    cudaStreamSynchronize | cudaEventSynchronize | cudaEventQuery) ;; # of what ends
    cudaMemGetInfo) [ "$which" != 1 ] || wrong="is told by nobody" ;;  # asked again for what is shown beside the plan
    ncclCommGetAsyncError) ;;                                  # as the run was over
    *) wrong="is told by nobody" ;;
    esac
    cmp -s "$work/model/model.safetensors" "whole.$ranks/model/model.safetensors" || wrong="gives other bits, and none hears of it"
    ;;
1) grep -qE 'weft train: .*(on device cuda|NCCL, |Card [0-9]|cuBLASLt|NVRTC|gave no [0-9]* bytes)' "$work.txt" || wrong="is told in no sentence" ;;
124) wrong="hangs" ;;
*) wrong="ends with status $status" ;;
esac
if [ $status = 1 ] && [ "$ranks" != 1 ] && ! grep -qE "^\[$((ranks - 1))\] weft|weft train: (.*: )?rank $((ranks - 1)): " "$work.txt"; then wrong="is not told by its rank"; fi
if grep -qF 'is not finite' "$work.txt"; then wrong="is told as if the model had diverged"; fi
if grep -qE 'not released|cuda double:|signal [0-9]' "$work.txt"; then wrong="leaves or breaks something"; fi
[ -n "$wrong" ] || { rm -rf "$work" "$work.txt"; exit 0; }
{
    echo "$call, call $which on one of $ranks ranks, $wrong:"
    sed 's/^/    /' "$work.txt"
} >"$work.wrong"
SH

# which RANKS CALL N: of its N calls those that are tried.
which() {
    if is_full; then seq "$3"
    elif [ "$3" -lt 3 ]; then seq "$3"
    else echo $((($3 + 1) / 2))
    fi
}
quick_alone='cudaMalloc|cudaHostAlloc|cudaMemcpyAsync|cudaLaunchKernel|kernel|cudaEventRecord|cudaStreamEndCapture|cudaGraphLaunch|cublasLtMatmul|nvrtcCompileProgram|cuLaunchKernel'
quick_two='ncclCommInitRank|ncclAllGather|ncclSend|ncclGroupEnd|ncclCommGetAsyncError|cudaMemcpyAsync|kernel|cudaFree'
# Calls whose answers are not looked at: those that ask for errors, and the one that names the card for this thread, which
# the first of them has done.
unseen='cudaGetLastError|cudaSetDevice'
: >list
for ranks in 1 2; do
    WEFT_DOUBLE_COUNTS=$dir/counts.$ranks sh train.sh $ranks whole.$ranks device.cache=none >out 2>&1 ||
        failed "a run of $ranks without a mistake" out
    if is_full; then calls='.*'; elif [ $ranks = 1 ]; then calls=$quick_alone; else calls=$quick_two; fi
    calls=${PLANTED:-$calls}
    # Of several ranks what they do for each other, and a few of each of the rest; the parent of ranks counts, too, what it
    # asks of the card.
    awk '$1 == "call" { if ($3 > n[$2]) n[$2] = $3 } END { for (c in n) print c, n[c] }' counts.$ranks | sort |
        grep -Ev "^($unseen) " | { grep -E "^($calls) " || true; } >calls
    while read -r call n; do
        case $ranks.$call in 2.nccl* | 1.*) some=$(which $ranks "$call" "$n") ;; *) some=$((($n + 1) / 2)) ;; esac
        for i in $some; do echo "$ranks $call $i"; done >>list
    done <calls
done
[ "$(wc -l <list)" -ge 18 ] || failed "few calls are counted" list
xargs -P "$(nproc)" -L 1 sh one.sh <list
for file in run.*.wrong; do
    [ ! -e "$file" ] || failed "$(head -n 1 "$file")" "$file"
done
echo "$(wc -l <list) calls failed, one at a time"
exit $((failures > 0))
