#!/bin/sh
# Complete runs on the CUDA emulator with [device] plugin = cuda: the CPU's loss within a tolerance, generated text, and
# ranks with the bits of one rank (one GPU each over NCCL, one shared over MPI). Also a stopped run resumed on fewer
# ranks. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
fail() { # fail WHAT: with the last run's output
    failed "$1" out err
    exit 1
}
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
cuda_sections >cuda.ini
cp -r "$WEFT_SOURCE/configs" configs
sed '/^\[device\]/,$d' configs/prove.ini >configs/prove.cpu.ini
cat configs/prove.cpu.ini cuda.ini >configs/prove.ini

# ---- comparison with the CPU ----

losses() { # losses DIRECTORY: of each step
    sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1/metrics.jsonl"
}
near() { # near BAND A B: as many losses; B's are within the relative tolerance BAND of A's
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
tensors() { # tensors DIRECTORY: hashes of its number files
    (cd "$1" && find . -name '*.safetensors' | sort | xargs sha256sum)
}
same() { # same A B: equal bits
    tensors "$1" >a.txt
    tensors "$2" >b.txt
    [ -s a.txt ] && cmp -s a.txt b.txt || fail "other bits: $1 $2"
}
steps=4
if is_full; then steps=200; fi
train cpu configs/prove.cpu.ini train.steps=$steps
train gpu configs/prove.ini train.steps=$steps
near 2e-6 cpu gpu
steps=3 band=1e-4
if is_full; then steps=200 band=2e-2; fi # a bf16 run drifts if roundings differ
train cpu16 configs/prove.cpu.ini train.steps=$steps train.precision=bf16
train gpu16 configs/prove.ini train.steps=$steps train.precision=bf16
near $band cpu16 gpu16
# fp16 is closer. The initial loss scale is too large: the GPU skips the update by itself, in replayed steps too.
if is_full; then band=5e-3; fi
half="train.precision=fp16 train.loss_scale=1.7e10 train.scale_backoff=0.00006103515625"
train cpuhalf configs/prove.cpu.ini train.steps=$steps $half
train gpuhalf configs/prove.ini train.steps=$steps $half
near $band cpuhalf gpuhalf
for run in cpuhalf gpuhalf; do
    [ "$(grep -c '"skipped": true' $run/metrics.jsonl)" = 1 ] || fail "$run skips another number of steps than 1"
done
train eager configs/prove.ini train.steps=$steps $half run.replay=no
same eager/model gpuhalf/model
# A matmul that fails only while a step is captured: the run captures no more, and its bits are the same.
WEFT_EMULATOR_COUNTS=$PWD/counts train counted configs/prove.ini train.steps=3 run.replay=no
calls=$(awk '$1 == "call" && $2 == "cublasLtMatmul" { print $3 }' counts)
WEFT_EMULATOR_FAIL="cublasLtMatmul:$((calls / 3 + 1))=14" train fallback configs/prove.ini train.steps=3
[ "$(grep -c 'cublasLtMatmul answered CUBLAS_STATUS_INTERNAL_ERROR' err)" = 1 ] || fail "no warning names the failed call"
same counted/model fallback/model
! WEFT_EMULATOR_FAIL="cublasLtMatmul:$((calls / 3 + 1))=14" limit "$weft" train configs/prove.ini run.out=ends train.steps=3 \
    run.replay=yes >out 2>err || fail "[run] replay = yes continues without captured graphs"

# ---- generation ----

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

cards() { # cards COMM: sets the number of GPUs for its ranks
    share=no
    export WEFT_EMULATOR_DEVICES=4
    [ "$1" = nccl ] || share=yes WEFT_EMULATOR_DEVICES=1
}

prove() { # prove COMM argument...: all cells are equal, on 4 ranks
    by=$1
    shift
    cards "$by"
    limit "$weft" prove configs/prove.ini --ranks 4 comm.plugin="$by" device.cuda.share=$share "$@" >out 2>err || fail "prove by $by $*"
    equal=$(sed -n 's/^.*: \([1-9][0-9]*\) equal, 0 not covered, 0 different.*/\1/p' out)
    awk '$NF == "equal" || /equal \(the reference\)/ { print $(NF - ($NF == "equal" ? 1 : 3)) }' out >hashes
    grep -qvE '^[0-9a-f]{12}$' hashes && fail "prove by $by $*: what stands there is no hash"
    [ "$(wc -l <hashes)" = "${equal:-0}" ] && [ "$(sort -u hashes | wc -l)" = 1 ] || fail "prove by $by $*: not one hash"
}
ranks() { # ranks N COMM OUT argument...: steps with a learning rate independent of their number
    n=$1 by=$2 to=$3
    shift 3
    cards "$by"
    if [ "$n" != 1 ]; then set -- --ranks "$n" comm.plugin="$by" device.cuda.share=$share "$@"; fi
    train "$to" configs/prove.ini train.schedule=constant checkpoint.every=1 "$@"
}
resumes() { # resumes COMM: a run of 4 ranks is resumed by 2, and then by 1
    ranks 4 "$1" "$1" train.steps=1 strategy.plugin=fsdp
    ranks 2 "$1" "$1" train.steps=2 strategy.plugin=mp strategy.schedule=1f1b --resume
    ranks 1 "$1" "$1" train.steps=3 --resume
    same whole/model "$1/model"
    same whole/checkpoints/step-3 "$1/checkpoints/step-3"
}
communicators=nccl
if has mpich; then communicators="nccl mpi-mpich"; fi
ranks 1 none whole train.steps=3
for id in $communicators; do
    resumes $id
    if is_full; then
        prove $id --steps 3
        prove $id --steps 2 train.precision=bf16
        prove $id --steps 2 $half
        prove $id --steps 2 strategy.reduce=tree train.global_batch=16
    fi
done
# Every strategy on 4 ranks of NCCL, with four short micro-batches.
is_full || prove nccl --steps 1 train.global_batch=4 train.micro_batch=1 data.context=16 data.lengths=8
# Three ranks with the shards of one step exit orderly, repeatedly.
for i in $(seq "$(if is_full; then echo 12; else echo 2; fi)"); do
    ranks 3 nccl "ends.$i" train.steps=1 strategy.plugin=fsdp train.global_batch=6
done
exit $((failures > 0))
