#!/bin/sh
# `weft prove` on configs/prove.ini, 4 ranks: the number of cells, which are all equal; non-deterministic
# cells; and detection of planted errors. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/ranks/prove_rig.sh
. "$WEFT_SOURCE/tests/ranks/prove_rig.sh"

# Every cell on 1, 2, 3 and 4 ranks is deterministic and equal, over several steps. The full suite uses the
# full grid, too.
if is_full; then
    prove 0 --ranks 4 --grid full --steps 3
    says out "229 cells of 3 steps with reduce = ordered: 229 equal, 0 not covered, 0 different"
    says out "skipped: 19 cells whose programs equal those of another"
fi
steps=$(is_full && echo 10 || echo 2)
prove 0 --ranks 4 --steps $steps
says out "38 cells of $steps steps with reduce = ordered: 38 equal, 0 not covered, 0 different"
for ranks in 1 2 3 4; do
    grep -q "^ *$ranks  " out || fail "a cell on $ranks ranks"
done

# With a tree of 8 micro-batches, also those that reduce at the last micro-batch, and in two hops.
if is_full; then
    prove 0 --ranks 4 --grid full --steps 3 strategy.reduce=tree train.global_batch=16
    says out "295 cells of 3 steps with reduce = tree: 295 equal, 0 not covered, 0 different"
    says out "fsdp hybrid 2, last"
fi

# One rank needs no launcher. More threads change no bits.
prove 0 --ranks 1 --steps 2
says out "8 cells of 2 steps with reduce = ordered: 8 equal"
hash_of() { # hash_of N: hash in row N of the table, after "1 x 12" and the checkpointing column
    awk -v row="$1" 'NR == row + 1 { print $9 }' out
}
one=$(hash_of 1)
echo "$one" | grep -Eqx '[0-9a-f]{12}' || fail "no hash in the first row: $one"
prove 0 --ranks 1 --steps 2 device.threads=2
[ "$(hash_of 1)" = "$one" ] || fail "two threads come to something else than $one"
prove 0 --ranks 1 --steps 2 run.seed=6
[ "$(hash_of 1)" != "$one" ] || fail "another seed comes to $one too"

# Non-deterministic cells are reported with the reason, and are not a failure.
if is_full; then
    prove 0 --ranks 2 --steps 2 strategy.plugin=ddp strategy.reduce_at=last
    says out "reduce_at = each, or reduce = tree, is covered"
    says out "not covered [1]"
    says out "38 cells of 2 steps with reduce = ordered: 16 equal, 22 not covered, 0 different"
fi
prove 0 --ranks 2 --steps 2 strategy.reduce=fast
says out "38 cells of 2 steps with reduce = fast: 0 equal, 38 not covered, 0 different"
says out "reduce = fast takes whatever order the library adds in"

# JSON output.
prove 0 --ranks 1 --steps 1 --json
says out '"equal": 8'
says out '"different": 0'
[ "$(head -c 1 out)" = "{" ] || fail "an object and nothing else"

# Planted errors are detected, with step and parameter. Clipping by a local norm affects only strategies that
# shard gradients.
prove 1 --ranks 2 --steps 2 comm.plugin="$faults/weft-comm-ring.so"
says out "DIFFERENT from step 1 on: exp_avg of model.embed_tokens.weight"
says err "cells are covered by the contract and differ"
grep -q "mp .*equal" out || fail "mp sums nothing over ranks"
if is_full; then
    prove 1 --ranks 4 --steps 2 comm.plugin="$faults/weft-comm-local.so"
    says out "DIFFERENT from step 1 on: exp_avg of"
    grep "ddp" out | grep -q DIFFERENT && fail "ddp has the whole gradient on each rank"
    grep "fsdp" out | grep -q equal && fail "fsdp clips by the norm of a part"
    prove 1 --ranks 4 --steps 2 device.plugin="$faults/weft-device-inside.so"
    says out "DIFFERENT from step 1 on: exp_avg of model.layers.0.mlp"
    grep "ddp\|fsdp" out | grep -q equal && fail "a rank that takes other micro-batches adds onto other sums"

    # The configuration's own strategy is left out if it rejects the number of ranks, with the reason; one cell
    # must remain.
    archive=$WEFT_SOURCE/tests/archive/sdk-1.0/weft-strategy-archive.so
    prove 0 --ranks 3 --steps 2 strategy.plugin="$archive" train.global_batch=8
    says out "42 cells of 2 steps with reduce = ordered: 42 equal, 0 not covered, 0 different"
    grep -q "^ *2  archive .*equal" out || fail "the own strategy has no cell on 2 ranks"
    says out "left out: 8 of "
    says out "strategy archive on 3 ranks: "
    says out "4 micro-batches, which 3 replicas cannot share evenly"
    prove 1 --ranks 3 --steps 2 strategy.plugin="$archive" train.global_batch=2
    says err "strategy archive rejects each of its 16 cells, on 2, 3 ranks"
fi

# A run without training proves no equality.
prove 1 --ranks 1 --steps 2 optimizer.plugin=sgd optimizer.lr=0
says err "no parameter was trained"
prove 2 --grid medium
says err "only --grid small and --grid full exist"
exit $((failures > 0))
