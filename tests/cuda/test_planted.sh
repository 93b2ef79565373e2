#!/bin/sh
# Each call of CUDA, cuBLASLt, NVRTC or NCCL fails once, in short runs of one rank, of two over NCCL and of two over
# MPI. The runs write an asynchronous checkpoint at each step except the last; evaluation and generation of the first
# run's model are tested too. Each ends orderly with a message that names the call (or NCCL's operation), its purpose
# and the rank, and leaks no device memory. A failing release may let the run continue with the same bits, and is
# logged. The quick suite tests a few calls. The full suite tests each call of a single rank and each NCCL call; of the
# rest, which another leg covers, it tests some from the first to the last. PLANTED='cudaMalloc|kernel' tests only these
# calls, LEGS='mpi' only one leg. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_EMULATOR_DEVICES=2 WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
make_model model 32 8 56 1 512
make_text 40
head -n 1 games.txt >game.txt
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

# The run of a leg: 1, nccl, mpi, eval or generate. Calls are counted for the rank with planted errors, the last one.
# Its output is in TO/result.
cat >run.sh <<'SH'
leg=$1 to=$2
shift 2
by="timeout 1200 $WEFT_BUILD/weft"
mkdir -p "$to"
case $leg in
eval)
    $by eval made data.path=game.txt "$@" --json >"$to/said" || exit $?
    exec sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$to/said" >"$to/result"
    ;;
generate) exec $by generate made "$@" --prompt e4 --tokens 4 --temperature 0 >"$to/result" ;;
nccl) set -- --ranks 2 comm.plugin=nccl strategy.plugin=fsdp "$@" ;;
mpi) set -- --ranks 2 comm.plugin=mpi-mpich strategy.plugin=fsdp "$@" ;;
esac
[ "$leg" = 1 ] || export WEFT_EMULATOR_FAIL_RANK=1
exec $by train run.ini "run.out=$to" "$@"
SH
# result LEG TO: the output file that must be equal
cat >result.sh <<'SH'
case $1 in
eval | generate) [ -s "$2/result" ] && echo "$2/result" ;;
*) echo "$2/model/model.safetensors" ;;
esac
SH
# one.sh LEG CALL WHICH: with that call failing; prints what is wrong with the result.
cat >one.sh <<'SH'
leg=$1 call=$2 which=$3
work=run.$leg.$call.$which
# words: of the sentence, the call's own name but where it tells what was asked of NCCL
words="$call answered"
case $call in
cudaLaunchKernel) code=719 words="cu(da)?LaunchKernel answered" ;; # updates use the driver's call
cuda*) code=719 ;;
kernel) code=700 words="answered .*cudaErrorIllegalAddress, 700" ;;
cublas*) code=14 ;;
nvrtc*) code=11 ;;
ncclAllGather) code=3 words="NCCL, all_gather: internal error" ;;
ncclReduceScatter) code=3 words="NCCL, reduce_scatter: internal error" ;;
ncclAllReduce) code=3 words="NCCL, (all_reduce|barrier): internal error" ;;
ncclBroadcast) code=3 words="NCCL, broadcast: internal error" ;;
ncclSend | ncclRecv | ncclGroup*) code=3 words="NCCL, (send|recv|all_to_all): internal error" ;;
ncclCommInitRank) code=3 words="NCCL, .*: internal error" ;;
ncclGetUniqueId) code=3 words="NCCL, a name for .*: internal error" ;;
ncclGetVersion) code=3 words="NCCL, its version: internal error" ;;
nccl*) code=3 words="NCCL.* internal error" ;;
*) code=999 ;;
esac
# What it was for stands before the sentence of a call that may be for anything.
bare="weft [a-z]+: ((device|comm):[^ ]* \([^)]*\)(, in [a-z]*)?: )?((fill|copy|read|write|upload|download|synchronize|record_event|wait|await|reached) on device|NCCL, (all_|reduce_|broadcast|send|recv|barrier))"
more=
case $call in nvrtc*) more=device.cache=none ;; esac # or what is compiled is found there
status=0
# shellcheck disable=SC2086  # no word, or one
WEFT_EMULATOR_COUNTS=$PWD/$work.counts WEFT_EMULATOR_FAIL=$call:$which=$code sh run.sh "$leg" "$work" $more >"$work.txt" 2>&1 ||
    status=$?
came=$(awk -v call="$call" '$1 == "call" && $2 == call && $3 > n { n = $3 } END { print n + 0 }' "$work.counts" 2>/dev/null || echo 0)
# Where one rank ends, MPICH's launcher kills the others, and sometimes tells that instead.
if [ "$leg.$status" = mpi.9 ] && grep -q 'YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed' "$work.txt"; then status=1; fi
wrong=
case $status in
0)
    case $call in
    cudaFree* | *Destroy | nvrtcDestroyProgram | cuModuleUnload | ncclCommDestroy | \
        cudaStreamSynchronize | cudaEventSynchronize | cudaEventQuery | cudaSetDevice | cudaMemGetInfo)
        # nothing needs any more what is given back, waited for or measured; it is told all the same
        [ "$came" -lt "$which" ] || grep -qE "weft: error: .*$call" "$work.txt" || wrong="is told by nobody" ;;
    cublasLtMatmulAlgoConfigGetAttribute | cu*GetError*) ;;    # for a text
    ncclCommGetAsyncError | ncclCommAbort) ;;                  # as the run was over
    *) [ "$came" -lt "$which" ] || wrong="is told by nobody" ;;
    esac
    cmp -s "$(sh result.sh "$leg" "$work")" "$(sh result.sh "$leg" "whole.$leg")" || wrong="gives other bits, and none hears of it"
    ;;
1)
    grep -E 'weft (train|eval|generate): ' "$work.txt" >"$work.said"
    grep -qE "$words" "$work.said" || wrong="is told without its name"
    if grep -E "$words" "$work.said" | grep -qE "$bare"; then wrong="is told without what it was for"; fi
    if grep -E "$words" "$work.said" | grep -F ', in training' | grep -qvE 'step [0-9]+'; then wrong="is told without its step"; fi
    ;;
124) wrong="hangs" ;;
*) wrong="ends with status $status" ;;
esac
case $leg in nccl | mpi) several=yes ;; *) several=no ;; esac
if [ $status = 1 ] && [ $several = yes ] && ! grep -qE "^\[1\] weft|weft train: (.*: )?rank 1: " "$work.txt"; then wrong="is not told by its rank"; fi
if grep -qF 'is not finite' "$work.txt"; then wrong="is told as if the model had diverged"; fi
if grep -v 'THE EXIT STRING: Killed' "$work.txt" | grep -qE 'not released|cuda emulator:|signal [0-9]'; then wrong="leaves or breaks something"; fi
[ -n "$wrong" ] || { rm -rf "$work" "$work.txt" "$work.said" "$work.counts"; exit 0; }
{
    echo "$call, call $which on a rank of the leg $leg, $wrong:"
    sed 's/^/    /' "$work.txt"
} >"$work.wrong"
SH

# some N: a selection of N calls: the first two, the last two, and some in between.
some() {
    if is_full; then
        for i in 1 2 $(($1 / 8)) $(($1 / 4)) $((($1 + 1) / 2)) $(($1 * 3 / 4)) $(($1 * 7 / 8)) $(($1 - 1)) "$1"; do echo "$i"; done
    else echo $((($1 + 1) / 2))
    fi | awk -v n="$1" '$1 >= 1 && $1 <= n' | sort -nu
}
quick_1='cudaMalloc|cudaHostAlloc|cudaMemcpyAsync|cudaLaunchKernel|kernel|cudaEventRecord|cudaStreamEndCapture|cudaGraphLaunch|cublasLtMatmul|nvrtcCompileProgram|cuLaunchKernel|cudaSetDevice|cuModuleLoadData|cuModuleGetFunction|cudaFreeHost'
quick_nccl='ncclCommInitRank|ncclAllGather|ncclSend|ncclGroupEnd|ncclCommGetAsyncError|cudaMemcpyAsync|kernel|cudaFree'
quick_mpi='cudaEventQuery|cudaEventSynchronize|cudaHostAlloc'
unseen='cudaGetLastError' # it queries errors
: >list
quick_eval='cudaMemcpyAsync|kernel|cublasLtMatmul|cudaGraphLaunch'
quick_generate='cudaMemcpyAsync|kernel|cudaLaunchKernel|cudaStreamSynchronize'
legs=${LEGS:-1 nccl mpi eval generate}
sh run.sh 1 made >out 2>&1 || failed "a run without a mistake" out
for leg in $legs; do
    if [ "$leg" = mpi ] && ! has mpich; then continue; fi
    # Uses already compiled code, as after the first leg; NVRTC's calls are those of the first leg.
    WEFT_EMULATOR_COUNTS=$dir/counts.$leg sh run.sh "$leg" "whole.$leg" device.cache=none >out 2>&1 ||
        failed "a run of the leg $leg without a mistake" out
    case $leg in 1) calls=$quick_1 ;; nccl) calls=$quick_nccl ;; mpi) calls=$quick_mpi ;;
    eval) calls=$quick_eval ;; generate) calls=$quick_generate ;; esac
    if is_full; then calls='.*'; fi
    calls=${PLANTED:-$calls}
    # The parent process of the ranks is counted too.
    awk '$1 == "call" { if ($3 > n[$2]) n[$2] = $3 } END { for (c in n) print c, n[c] }' "counts.$leg" | sort |
        grep -Ev "^($unseen) " | { grep -E "^($calls) " || true; } >calls
    while read -r call n; do
        case $leg.$call in
        1.* | nccl.nccl* | eval.* | generate.*) if is_full || [ "$n" -lt 3 ]; then of=$(seq "$n"); else of=$(some "$n"); fi ;;
        *) of=$(some "$n") ;;
        esac
        for i in $of; do echo "$leg $call $i"; done >>list
    done <calls
done
[ "$(wc -l <list)" -ge 18 ] || [ -n "${LEGS:-}${PLANTED:-}" ] || failed "few calls are counted" list
xargs -P "$(nproc)" -L 1 sh one.sh <list
for file in run.*.wrong; do
    [ ! -e "$file" ] || failed "$(head -n 1 "$file")" "$file"
done
echo "$(wc -l <list) calls failed, one at a time"

# A plan depends on the GPU's available memory, for which there is no default.
WEFT_EMULATOR_COUNTS=$dir/counts.plan "$weft" plan run.ini >out 2>&1 || failed "plan" out
n=$(sed -n 's/^call cudaMemGetInfo //p' counts.plan)
[ "${n:-0}" -ge 2 ] || failed "a plan does not query the free memory of the card"
for i in $(seq "${n:-0}"); do
    refused "the free memory of the card on device cuda: cudaMemGetInfo answered" env "WEFT_EMULATOR_FAIL=cudaMemGetInfo:$i=719" \
        "$weft" plan run.ini
done
exit $((failures > 0))
