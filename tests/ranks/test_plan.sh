#!/bin/sh
# A plan for N ranks equals a run on N ranks, to the byte: allocations of each rank per line, and bytes sent
# in a step by kind and by link. Also plans that no machine here could run. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

make_run <<'INI'
steps = 3
clip  = 1.0
[eval]
every = 2
[optimizer]
plugin = adamw
lr     = 1e-3
INI

# ---- plan and run agree
holds() { # holds RANKS [section.key=value ...]
    n=$1
    shift
    "$weft" plan run.ini "$@" --ranks "$n" --json --print-links >plan.json 2>log || { failed "plan $n $*" log; return; }
    "$weft" train run.ini "$@" --ranks "$n" --overwrite >log 2>&1 || { failed "train $n $*" log; return; }
    "$WEFT_BUILD/tests/rank_plan" plan.json out/ranks.json >said 2>&1 || failed "plan and run differ: $n $*" said
    echo "$n ranks, $*: $(cat said)"
}
if has mpich; then
    export MPI=comm.plugin=mpi-mpich
    holds 3 $MPI strategy.plugin=ddp
    holds 3 $MPI strategy.plugin=fsdp
    holds 3 $MPI strategy.plugin=mp strategy.schedule=1f1b
    ! is_full || holds 4 $MPI strategy.plugin=fsdp strategy.shard=hybrid strategy.shard_group=2
    holds 4 $MPI strategy.plugin=fsdp strategy.shard=hybrid strategy.shard_group=2 strategy.reduce=tree strategy.reduce_at=last
    holds 3 $MPI strategy.plugin=fsdp strategy.root=replicated train.precision=bf16
    if is_full; then
        holds 3 $MPI strategy.plugin=fsdp strategy.shard=optimizer strategy.reduce_dtype=bf16 train.precision=bf16
        holds 2 $MPI strategy.plugin=ddp strategy.reduce=fast strategy.reduce_at=last train.trainable=last:1
        holds 3 $MPI strategy.plugin=fsdp strategy.shard=gradients strategy.reduce_at=last strategy.reduce_dtype=bf16
        holds 3 $MPI strategy.plugin=fsdp strategy.root=replicated
        holds 4 $MPI strategy.plugin=fsdp strategy.root=replicated strategy.shard=hybrid strategy.shard_group=2
    fi
    "$weft" plan run.ini strategy.plugin=fsdp --ranks 3 --json --print-links >other.json
    "$WEFT_BUILD/tests/rank_plan" other.json out/ranks.json >log 2>&1 && failed "another plan passes for this one"
fi

# ---- plans without runs

# A model of 134 million parameters without weights: memory of an fsdp rank decreases as 1/N, and 1024 ranks
# are planned in seconds.
make_model huge 768 192 3072 12 36000
huge() { # huge N argument...: writes the plan of N ranks to huge.N
    n=$1
    shift
    "$weft" plan run.ini model.path=huge strategy.plugin=fsdp --ranks "$n" --json "$@" >"huge.$n" 2>log || failed "a plan of $n ranks" log
}
for n in 1 2 4 8; do
    huge $n train.global_batch=8
    "$WEFT_BUILD/tests/rank_plan" share huge.1 huge.$n >said 2>&1 || failed "$n ranks do not hold 1/$n each" said
done
huge 8 train.global_batch=8 strategy.shard=optimizer
"$WEFT_BUILD/tests/rank_plan" share huge.1 huge.8 >said 2>&1 && failed "parameters that every rank holds pass for a share"
seconds=60 # CPU seconds, independent of the machine's load
[ "${WEFT_SANITIZED:-OFF}" != ON ] || seconds=600
(ulimit -t $seconds && exec "$weft" plan run.ini model.path=huge strategy.plugin=fsdp train.global_batch=1024 --ranks 1024 \
    --nodes 128) >plan.txt 2>log || failed "1024 ranks are not planned within $seconds s" log

"$weft" plan run.ini strategy.plugin=fsdp train.global_batch=1024 --ranks 1024 --nodes 128 >plan.txt
grep -Eq ' nothing$' plan.txt || failed "of 1024 ranks some update nothing of a small model"
grep -q 'to other nodes' plan.txt || failed "what leaves a node is told"
"$weft" plan run.ini strategy.plugin=fsdp --ranks 4 --print-sharding --rank 3 >sharding.txt
grep -Eq '^parameters on rank 3$' sharding.txt || failed "sharding of a rank"
grep -Eq '^\[FSDP Mode\] Model: LlamaForCausalLM, Total Parameter Count: [0-9]+, Sharded Parameter Count on device: [0-9]+ \([0-9.]+%\)$' sharding.txt ||
    failed "what the rank keeps of the whole" sharding.txt
# Parameters that are complete on a rank, and those that are absent.
"$weft" plan run.ini strategy.plugin=fsdp strategy.shard=optimizer --ranks 4 --print-sharding >sharding.txt
grep -Eqx '\[Non-FSDP Mode\] Model Layer: model.norm.weight, Total Parameter Count: [0-9]+' sharding.txt || failed "a whole one" sharding.txt
grep -q '^\[FSDP' sharding.txt && failed "parameters that every rank holds are told as cut" sharding.txt
"$weft" plan run.ini strategy.plugin=mp --ranks 2 --print-sharding >sharding.txt
grep -Eqx '\[Non-FSDP Mode\] Model Layer: model.layers.2.mlp.up_proj.weight, Total Parameter Count: [0-9]+, Parameter Count on device: 0 \(0.00%\)' sharding.txt ||
    failed "one of another rank" sharding.txt
{ cat run.ini && printf '[strategy]\nplugin = fsdp\n'; } >other.ini
{ cat run.ini && printf '[strategy]\nplugin = ddp\n'; } >one.ini
{ cat run.ini && printf '[strategy]\nroot = replicated\n'; } >whole.ini
"$weft" plan one.ini --diff other.ini --ranks 3 strategy.reduce=tree >diff.txt || failed "a difference"
grep -Eq '^strategy.plugin +ddp +fsdp$' diff.txt || failed "the key that differs"
grep -Eq '^memory optimizer +[0-9,]+ +[0-9,]+ +-[0-9.]+ %$' diff.txt || failed "less memory under fsdp"
grep -Eq '^instructions GATHER +[0-9,]+ +[0-9,]+ ' diff.txt || failed "more gathers"
prints "$weft" plan run.ini --diff run.ini --ranks 3 strategy.plugin=ddp
grep -qx "no difference" printed || failed "one file twice" printed
for pair in "one.ini odd.ini" "odd.ini one.ini"; do
    # shellcheck disable=SC2086  # words on purpose
    set -- $pair
    sed 's/^global_batch = 12/global_batch = 10/' one.ini >odd.ini
    refused "weft plan: odd.ini: [train] global_batch = 10 " "$weft" plan "$1" --diff "$2" --ranks 3 # names the right file of the two
    sed 's/^micro_batch/micro_bacth/' one.ini >odd.ini
    refused "weft plan: odd.ini:" "$weft" plan "$1" --diff "$2" --ranks 3
    ! grep -q "odd.ini: odd.ini" log || failed "a file is named twice" log
done
# Keys of another policy or strategy have their own section (command/test_keys.py) and are an error elsewhere.
refused "command line: [policy] has no key classe; did you mean classes?" "$weft" plan run.ini policy.plugin=class policy.classe=layer
refused "move it to [strategy.fsdp]" "$weft" plan run.ini strategy.plugin=ddp strategy.shard=full --ranks 2
prints "$weft" plan run.ini strategy.plugin=ddp strategy.reduce=fast --ranks 3
grep -q '^sums .*not covered' printed || failed "not covered" printed
prints "$weft" plan run.ini strategy.plugin=ddp --ranks 3
grep -q '^sums .*; covered by the contract' printed || failed "covered" printed
prints "$weft" plan run.ini
grep -qx 'batch       12 rows = 12 micro-batches of 1 row x 32 places' printed || failed "one row is no rows" printed
# A replicated root is held completely and refreshed, not gathered.
for rest in "" "strategy.shard=hybrid strategy.shard_group=2"; do
    # shellcheck disable=SC2086  # words on purpose
    "$weft" plan run.ini --diff whole.ini --ranks 4 strategy.plugin=fsdp $rest >diff.txt || failed "two roots $rest" diff.txt
    # shellcheck disable=SC2086
    "$weft" plan whole.ini --ranks 4 strategy.plugin=fsdp $rest --print-sharding --rank 3 >sharding.txt || failed "sharding $rest"
    grep -Eq '^\[Non-FSDP Mode\] Unit: root, Total Parameter Count: [0-9]+$' sharding.txt || failed "the root is not held whole $rest" sharding.txt
    grep -Eq '^\[FSDP Mode\] Unit: model.layers.0, .* \([2-5][0-9]\.[0-9]+%\)$' sharding.txt || failed "the root alone is held whole $rest" sharding.txt
    grep -Eq '^instructions GATHER +[0-9,]+ +[0-9,]+ +-' diff.txt || failed "a root held whole is not gathered $rest" diff.txt
    grep -Eq '^instructions REFRESH +0 +4$' diff.txt || failed "a root held whole is made whole again $rest" diff.txt
done
while read -r stage name; do # DeepSpeed's stage numbers are names of the same modes
    "$weft" plan run.ini --ranks 4 strategy.plugin=fsdp strategy.shard="$stage" --json >stage.json || failed "stage $stage" stage.json
    "$weft" plan run.ini --ranks 4 strategy.plugin=fsdp strategy.shard="$name" --json >name.json || failed "shard = $name" name.json
    cmp -s stage.json name.json || failed "shard = $stage is not $name"
done <<'ROWS'
1 optimizer
2 gradients
3 full
ROWS
refused "4 ranks cannot be split evenly over 3 nodes" "$weft" plan run.ini strategy.plugin=ddp --ranks 4 --nodes 3
refused "shard = 4 is not one of: optimizer,gradients,full,hybrid,1,2,3" "$weft" plan run.ini strategy.plugin=fsdp strategy.shard=4
grep -q "did you mean" log && failed "4 is taken for another number" log
refused "12 micro-batches, which 5 replicas cannot share evenly. Fix: start 1, 2, 3, 4, 6 or 12 ranks, which keeps the batch; a global_batch" \
    "$weft" plan run.ini strategy.plugin=ddp --ranks 5
refused "is 1 micro-batch, which 2 replicas cannot share evenly. Fix: start 1 rank, which keeps the batch; a global_batch that is a multiple of 2 is another batch" "$weft" plan run.ini strategy.plugin=ddp --ranks 2 train.global_batch=1
# The first suggestion keeps the batch, and works.
refused "start 1 rank, or set micro_batch = 3, which keeps the batch" "$weft" plan run.ini strategy.plugin=ddp --ranks 2 train.global_batch=6 train.micro_batch=6
prints "$weft" plan run.ini strategy.plugin=ddp --ranks 2 train.global_batch=6 train.micro_batch=3
refused "--rank 4 does not exist. Allowed: 0 to 3" "$weft" plan run.ini strategy.plugin=ddp --ranks 4 --print-sharding --rank 4
[ "$failures" = 0 ]
