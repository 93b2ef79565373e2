#!/bin/sh
# `weft ab`: arms from a list and from files, required common settings, the first difference of numbers,
# learning, verdicts with a certain result on any machine, and the exit status. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
make_run <<'INI'
steps = 50
[optimizer]
plugin = sgd
lr     = 0.01
INI
threads=1 # several threads on two shared processors have unpredictable times
fail() { # fail NAME: prints the output of the last run
    failed "$1" said err
}
ab() { # ab STATUS arguments...: output in said and err
    wanted=$1
    shift
    status=0
    limit "$weft" ab train.global_batch=2 device.threads="$threads" "$@" >said 2>err || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: weft ab $*"
}
says() { # says FILE TEXT
    grep -qF -- "$2" "$1" || fail "$1 does not say: $2"
}
quiet() { [ ! -s err ] || fail "something on stderr"; }

# No checkpoint is written, and one round decides no verdict.
make_model large 200 50 800 4 521
sed 's/= model$/= large/' run.ini >large.ini
ab 21 run.ini large.ini --rounds 1 --steps 1 --learn 1 --json
grep -q '"verdict": "undecided"' said || fail "one round decides"
grep -q '"winner": null' said || fail "nobody wins"
[ ! -e out ] || fail "[run] out is touched"

# Arms with unknown learning are not comparable, at any speed.
ab 20 run.ini large.ini --rounds 1 --steps 1 --learn 0
says said "verdict  B and A are not comparable: they train differently, and their losses are unknown (--learn 0"
sed '/^validation/d' run.ini >blind.ini
ab 20 blind.ini --vary optimizer.lr=0.01,0.02 --rounds 1 --steps 1
says said "(there are no sequences to measure it on: set [data] validation)"

# A list of values is an axis only with --vary, which the error suggests.
ab 2 run.ini optimizer.lr=0.01,0.02
says err "--vary optimizer.lr=0.01,0.02"

# Large differences are found in either direction, also in the exit status. The time needed depends on the
# machine's load.
if is_full; then
    for pair in no,yes yes,no; do
        [ "$pair" = no,yes ] && { winner=10 word=slower; } || { winner=11 word=faster; }
        ab "$winner" large.ini --vary train.activation_checkpointing="$pair" --minutes 10 --steps 3
        quiet
        says said "verdict  B is $word than A: a step takes"
        says said "numbers  B has the bits of A after each of 3 steps"
    done
fi

# A list of plugins, and any key; same bits, or their first difference, and the difference of the programs.
ab 21 run.ini policy.plugin=block,whole --rounds 1 --steps 1
says said "A policy.plugin=block"
says said "B policy.plugin=whole"
says said "numbers  B has the bits of A after each of 3 steps"
says said "verdict  B is not decided: 1 round is too few; give more --rounds"
grep -q '^policy.plugin  *block  *whole$' said || fail "the keys that differ"
grep -q '^instructions REDUCE  *8  *2 ' said || fail "the instructions that differ"
says said "then A has REDUCE model.layers.2 rank micro-batch 0, and this one BACKWARD layers.1.mlp micro-batch 0"
says said "memory +"
ab 21 run.ini --vary train.activation_checkpointing=no,yes --rounds 1 --steps 1
says said "numbers  B has the bits of A after each of 3 steps"
ab 21 run.ini optimizer.plugin=sgd,adamw --rounds 1 --steps 1
says said "there are no bits to compare"
ab 20 run.ini --vary run.seed=1,2 --rounds 1 --steps 1 --learn 0
says said "numbers  B starts with different numbers than A"

# First difference: in a loss, or in the update of equal gradients; and whether bit equality is guaranteed.
ab 21 run.ini --vary train.precision=fp32,bf16 --rounds 1 --steps 1 --learn 1
says said "numbers  B differs from A at step 1, micro-batch 0: its loss; equal results are not guaranteed"
ab 21 run.ini --vary strategy.reduce=ordered,tree --rounds 1 --steps 1 --learn 0 train.global_batch=6
says said "numbers  B differs from A at step 1, unit "
says said ", after equal gradients of all micro-batches; equal results are guaranteed only for one micro_batch and one reduce"

# A warning for a key that is not read, or has too small a value; no warning for a key with an effect, or one
# that only affects parallelism.
ab 21 run.ini --vary optimizer.weight_decay=0,1e-12 --rounds 1 --steps 1
says said "numbers  B has the bits of A after each of 3 steps, and optimizer.weight_decay"
ab 21 run.ini --vary optimizer.momentum=0.9,0.5 --rounds 1 --steps 1 --learn 1
says said "numbers  B differs from A"
ab 21 run.ini policy.plugin=block,whole --rounds 1 --steps 1
! grep -q 'has no effect' said || fail "a policy is asked why it has no effect"

# An undetectable difference is inconclusive; one within the requested margin is a result.
ab 21 run.ini --vary optimizer.weight_decay=0,1e-9 --rounds 8 --steps 1 --within 0.0001 --learn 2 --json \
    --html within.html
grep -q '"outcome": "undecided"' said || fail "a useless interval decides"
grep -q '"verdict": "undecided"' said || fail "a verdict that the outcome does not have"
grep -q 'time of B relative to A: undecided' within.html || fail "the page has another verdict"
ab 21 run.ini policy.plugin=block,whole --minutes 0.00001 --steps 1
says said "verdict  B is not decided: 1 round is too few; give more --minutes"
ab 0 run.ini run.ini --rounds 8 --steps 1 --within 100000
says said "verdict  B and A: no difference above"
quiet

# An arm that diverges during timing has a verdict, and the others continue.
ab 22 run.ini --vary optimizer.lr=0.01,1e30,0.02 --rounds 3 --steps 2 --learn 2 --html page.html
says said "verdict  B diverges at step 2: "
says said "verdict  B is worse than A, which does not diverge"
says said "verdict  C is not decided"
quiet
ab 22 run.ini --vary optimizer.lr=1e30,0.01 --rounds 3 --steps 2 --learn 0 --json
grep -q '"winner": null' said || fail "nobody wins over what diverges"
grep -A 3 '"diverged": {' said | grep -q '"step": 2' || fail "the step at which A diverges"

# At equal time an arm that learns more is better, one that learns less is worse, and so is a diverging one.
# Each seed has the same number of micro-batches, and the loss equals that of weft train.
ab 11 run.ini --vary optimizer.lr=0.0001,0.1 --rounds 8 --steps 1 --learn 20 --within 100000 --html page.html
says said "learned  B learns more than A: -"
says said "verdict  B is better than A"
grep -q '<svg' page.html || fail "the page has no drawing"
grep -q 'What was known' page.html || fail "the page lacks what the looks told"
grep -q 'Loss beside A' page.html || fail "the page lacks what is learned"
grep -q 'optimizer.lr=0.1' page.html || fail "the page lacks its arms"
ab 10 run.ini --vary optimizer.lr=0.1,0.0001 --rounds 8 --steps 1 --learn 20 --seeds 3 --within 100000 --json
grep -q '"promised": false' said || fail "the contract promises nothing of other learning rates"
grep -q '"seeds": 3' said || fail "three seeds"
grep -q '"verdict": "learns less"' said || fail "what learns less"
grep -q '"outcome": "worse"' said || fail "what follows"
grep -q '"unit": "root"' said || fail "the unit where they part"
learned() { # learned: the printed loss of A
    awk '/"learned": {/ { inside = 1 } inside && /"loss":/ { print substr($2, 1, 12); exit }' said
}
ab 21 run.ini --vary optimizer.lr=0.1,0.0001 --rounds 1 --steps 1 --learn 20 --json
limit "$weft" train run.ini optimizer.lr=0.1 train.global_batch=2 train.steps=20 eval.every=20 device.threads=1 \
    --quiet >trained 2>&1 || fail "weft train" trained
theirs=$(tail -n 1 out/evaluations.jsonl | sed 's/.*"loss": *\([0-9.]*\).*/\1/' | cut -c 1-12)
[ -n "$theirs" ] || fail "weft train evaluates nothing"
[ "$(learned)" = "$theirs" ] || fail "$(learned) is learned here, and $theirs by weft train"
rm -r out

# Errors have messages.
ab 2 run.ini
says err "at least two arms"
ab 2 run.ini policy.plugin=block,whole strategy.plugin=single,ddp
says err "Fix: keep one list"
ab 2 run.ini run.ini policy.plugin=block,whole
says err "has a list of values, and run.ini is a second file"
ab 2 run.ini --vary train.micro_batch=1
says err "Allowed: a key and two or more values"
ab 2 run.ini --vary run.seed=1,2,3,4,5,6,7,8,9
says err "there are more than 8 arms"
for list in block, ,block block,,whole; do
    ab 2 run.ini policy.plugin="$list"
    says err "policy.plugin=$list: a value between the commas is empty"
done
ab 1 run.ini policy.plugin=block,whole --html nowhere/page.html
says err "nowhere/page.html"
[ ! -s said ] || fail "a page that cannot be written is found after the rounds"
ab 1 run.ini policy.plugin=block,whole --html .
says err "--html . is a directory"
ab 1 run.ini policy.plugin=block,blok --rounds 1 --steps 1
says err "blok"
threads=2
ab 1 run.ini --vary device.threads=1,2 --rounds 1 --steps 1
says err "differ in the device or communicator ([device] threads = 1 and [device] threads = 2)"

# A plugin that ends the process, with or without a crash, is reported with the arm: in a step, and while the
# arms are opened.
mkdir -p plugins
faulty() { # faulty ID PERL: sgd with that change
    perl -0pe "s/optimizer, 1, \"sgd\"/optimizer, 1, \"$1\"/; $2" "$WEFT_SOURCE/plugins/optimizer/sgd/sgd.c" >"$1.c"
    build optimizer "$1" "${CC:-cc}" -fno-math-errno -ffp-contract=off "$1.c"
}
faulty crash 's/(    sgd_hp \*out = hp;)/$1\n    if (step->update == 2) *(volatile int *)0 = 1;/'
faulty leave 's/(static weft_status sgd_create\(.*?\{\n)/$1    exit(0);\n/s; s/^/#include <stdlib.h>\n/'
for id in crash leave; do
    status=0
    WEFT_PLUGIN_PATH=$dir/plugins limit "$weft" ab run.ini --vary "optimizer.plugin=sgd,$id" --rounds 1 --steps 1 --learn 0 \
        >said 2>err || status=$?
    [ "$status" != 0 ] || fail "an arm whose optimizer is $id ends well"
    grep -qF ", in arm optimizer.plugin=$id" err || fail "the arm of $id is not named"
done
says err "optimizer:leave ($dir/plugins/weft-optimizer-leave.so) ended the process in its create, in arm optimizer.plugin=leave: its work"

# On several ranks, with the exit status passed on by the launcher.
if has mpich; then
    if is_full; then
        ab 10 large.ini --vary train.activation_checkpointing=no,yes --ranks 2 --minutes 10 --steps 3 \
            strategy.plugin=fsdp comm.plugin=mpi-mpich
        says said "verdict  B is slower than A"
    fi
    ab 21 run.ini strategy.plugin=ddp,fsdp --ranks 2 --rounds 1 --steps 1 comm.plugin=mpi-mpich
    says said "numbers  B has the bits of A after each of 3 steps"
    quiet
    # Results of several ranks differ at the same point as those of one rank.
    ab 21 run.ini --vary train.precision=fp32,bf16 --ranks 2 --rounds 1 --steps 1 strategy.plugin=fsdp \
        comm.plugin=mpi-mpich --learn 1
    says said "numbers  B differs from A at step 1, micro-batch 0: its loss"
    says said "learned  B "
fi
exit $((failures > 0))
