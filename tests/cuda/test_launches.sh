#!/bin/sh
# The launches that `weft plan` predicts for a step equal those of a step on the CUDA emulator: kernels, matmuls and
# copies, of one rank and of several, in both precisions, with and without optional parts of a step. A step's launches
# are the difference between runs of one and two steps. A step allocates no GPU memory and no pinned memory. ctest sets
# WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }
export WEFT_EMULATOR_DEVICES=2 WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/cuda:$WEFT_BUILD/plugins"
mkdir -p "$WEFT_BUILD/tests/cuda/compiled"
cp -r "$WEFT_SOURCE/configs" configs
sed '/^\[device\]/,$d' configs/prove.ini >configs/cpu.ini
{
    cat configs/cpu.ini
    cuda_sections
} >configs/run.ini
fail() {
    failed "$1" out err
    exit 1
}

count() { # count FILE: "kernels products copies" of all processes that wrote to it
    awk '$1 == "kernel" && $2 == "cublasLtMatmul" { products += $NF; next }
         $1 == "kernel" { kernels += $NF }
         $2 == "cudaMemcpyAsync" || $2 == "cudaMemsetAsync" { copies += $NF }
         END { print kernels + 0, products + 0, copies + 0 }' "$1"
}
ran() { # ran RANKS argument...: one step of one rank
    n=$1
    shift
    if [ "$n" != 1 ]; then set -- --ranks "$n" comm.plugin=mpi-mpich "$@"; fi
    for steps in 1 2; do
        rm -rf counts run
        WEFT_EMULATOR_COUNTS="$PWD/counts" limit "$weft" train configs/run.ini run.out="$PWD/run" run.replay=no \
            train.schedule=constant train.steps=$steps "$@" >out 2>err || fail "train $*"
        mv counts "all.$steps"
        count "all.$steps" >"counts.$steps"
        awk '$2 == "cudaMalloc" || $2 == "cudaHostAlloc"' "all.$steps" >"memory.$steps"
    done
    paste counts.1 counts.2 | awk -v n="$n" '{ print ($4 - $1) / n, ($5 - $2) / n, ($6 - $3) / n }'
}
steps_own() { # steps_own NAME: launches of the kernel in a step of all ranks of the last run
    for steps in 1 2; do awk -v name="$1<" '$1 == "kernel" && index($2, name) == 1 { n += $NF } END { print n + 0 }' "all.$steps"; done |
        { read -r one && read -r two && echo $((two - one)); }
}
adds() { # adds NUMBER: sums with a separate kernel
    [ "$(steps_own add_cells)" = "$1" ] && [ "$(steps_own norm_rows)" = 84 ] ||
        failed "$(steps_own add_cells) sums and $(steps_own norm_rows) norms in a step, not $1 and 84" all.2
}
planned() { # planned RANKS argument...
    n=$1
    shift
    limit "$weft" plan configs/run.ini --json --ranks "$n" train.schedule=constant "$@" >out 2>err || fail "plan $*"
    tr -d ' ,"' <out | awk -F: '$1 == "launches" { on = 1 }
        on && $1 == "kernels" { k = $2 } on && $1 == "products" { p = $2 } on && $1 == "copies" { print k, p, $2; exit }'
}
same() { # same COLUMNS RANKS argument...: columns of the three numbers
    columns=$1
    shift
    planned "$@" | cut -d' ' -f"$columns" >planned
    ran "$@" | cut -d' ' -f"$columns" >ran
    echo "$*: planned $(cat planned), started $(cat ran)"
    [ -s planned ] && ! grep -q '^0' planned && cmp planned ran >err || fail "launches of a step"
}
# Five lines of the plan, a buffer each; a step allocates nothing.
same 1-3 1 train.precision=bf16
# Each of 12 micro-batches has 7 norms; 6 of them are fused with the preceding add. The remaining separate adds are the
# gradients of 4 units over these micro-batches.
adds 44
cmp memory.1 memory.2 >err && grep -q '^call cudaMalloc 5$' memory.1 || failed "allocations" memory.1 memory.2
# The update writes the matrices' bf16 copies.
[ "$(steps_own convert)" = 0 ] && grep -q '^call cuLaunchKernel 2$' all.2 ||
    failed "$(steps_own convert) conversions in a step, not none, or several updates" all.2
same 1-3 1 strategy.reduce=tree
# Same in all other training modes. Failing a call in a step shows which memory is allocated before the first one.
taken() { # taken STEPS argument...: allocations by each process of such a run
    steps=$1
    shift
    rm -rf counts run
    WEFT_EMULATOR_COUNTS="$PWD/counts" limit "$weft" train configs/run.ini run.out="$PWD/run" train.schedule=constant \
        train.steps="$steps" "$@" >out 2>err || fail "train $*"
    awk '$2 == "cudaMalloc" || $2 == "cudaHostAlloc"' counts | sort
}
steady() { # steady argument...: four steps allocate as much as one
    taken 1 "$@" >memory.1
    taken 4 "$@" >memory.4
    [ -s memory.1 ] && cmp memory.1 memory.4 >err || failed "a step takes memory: $*" memory.1 memory.4
}
before() { # before argument...: same, and the first step allocates nothing either
    steady "$@"
    pieces=$(awk '$2 == "cudaHostAlloc" && $3 > most { most = $3 } END { print most }' memory.1)
    for i in $(seq "$pieces"); do
        rm -rf run
        if WEFT_EMULATOR_FAIL=cudaHostAlloc:$i=2 limit "$weft" train configs/run.ini run.out="$PWD/run" train.steps=1 "$@" >out 2>err
        then failed "no sentence for piece $i of pinned memory: $*" err; fi
        if grep -q "step 1" err; then failed "a step takes piece $i of pinned memory: $*" err; fi
    done
}
short=train.global_batch=4
nccl="--ranks 2 comm.plugin=nccl $short"
before $short
# shellcheck disable=SC2086  # words on purpose
if is_full; then
    before $nccl strategy.plugin=fsdp
    steady $nccl strategy.plugin=mp
else
    steady $nccl strategy.plugin=fsdp
fi
# Weights and checkpoints move through pinned memory only, in a complete run and in its resume.
for steps in 2 4; do
    rm -f counts
    resume=$([ $steps = 2 ] || echo --resume)
    # shellcheck disable=SC2086
    WEFT_EMULATOR_COUNTS="$PWD/counts" limit "$weft" train configs/run.ini run.out="$PWD/saved" checkpoint.every=2 \
        train.schedule=constant train.precision=bf16 train.steps=$steps $resume >out 2>err || fail "train and save"
    grep -q '^call cudaMemcpyAsync' counts && ! grep pageable counts || failed "copies of pageable memory" counts
done
limit "$weft" plan configs/run.ini >out 2>err || fail "plan"
grep -q '^device      CUDA emulator sm_90, sm_90, cuBLASLt [0-9.]*, rounded attention$' out || fail "the device of a plan"
grep -q '^launches    1,[0-9]* a step: [0-9]* kernels and [0-9]* calls of a library; copies: [0-9]*$' out || fail "the line"
limit "$weft" plan configs/cpu.ini >out 2>err || fail "plan on processors"
! grep -q '^launches' out || fail "launches of processors"
has mpich || exit $((failures > 0))
# Data between ranks passes through MPI's own copies.
same 1-2 2 strategy.plugin=ddp
adds 88
# Between two blocks fsdp gathers the next one, which records an instruction in the stream: the last 3 half-blocks of a
# micro-batch are not fused with a norm.
same 1-2 2 strategy.plugin=fsdp train.precision=bf16
adds 124
# The first step allocates the communication buffers, independent of timing.
mpi="--ranks 2 comm.plugin=mpi-mpich data.lengths= $short"
# shellcheck disable=SC2086  # words on purpose
{
    if is_full; then steady $mpi strategy.plugin=fsdp; fi
    steady $mpi strategy.plugin=mp
    export WEFT_EMULATOR_MODE=any WEFT_EMULATOR_SEED=3
    taken 4 $mpi strategy.plugin=mp >memory.any
}
cmp memory.4 memory.any >err || failed "what is taken depends on what runs when" memory.4 memory.any
exit $((failures > 0))
