#!/bin/sh
# `weft ab`: arms from a list and from files, what they are held to have in common, verdicts that no machine can miss,
# and the exit status. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
make_run <<'INI'
steps = 50
[optimizer]
plugin = sgd
lr     = 0.01
INI
threads=1 # what takes turns with other programs on two processors takes any time
fail() { # fail NAME: what the last run said
    failed "$1" said err
}
ab() { # ab STATUS arguments...: output in said and err
    wanted=$1
    shift
    status=0
    limit "$weft" ab "$@" train.global_batch=2 device.threads="$threads" >said 2>err || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: weft ab $*"
}
says() { # says FILE TEXT
    grep -qF -- "$2" "$1" || fail "$1 does not say: $2"
}
quiet() { [ ! -s err ] || fail "something on stderr"; }

# Nothing is kept, and one round decides nothing.
make_model large 200 50 800 4 521
sed 's/= model$/= large/' run.ini >large.ini
ab 0 run.ini large.ini --rounds 1 --steps 1 --json
grep -q '"verdict": "undecided"' said || fail "one round decides"
grep -q '"winner": null' said || fail "nobody wins"
[ ! -e out ] || fail "[run] out is touched"

# What differs by far is told by either side, and by the status. That takes as long as the machine is busy.
if is_full; then
    ab 10 run.ini large.ini --minutes 10 --steps 3
    quiet
    says said "verdict  B is slower than A: a step takes"
    says said "numbers  B trains other parameters or states than A: there are no bits to compare"
    ab 11 large.ini run.ini --minutes 10 --steps 3 --json
    grep -q '"winner": "run.ini"' said || fail "the winner by name"
    grep -q '"verdict": "faster"' said || fail "the verdict"

    # Of three, the fastest.
    ab 12 large.ini large.ini run.ini --rounds 40 --steps 3
    says said "verdict  C is faster than A"
fi

# A list of plugins, and any key; the same bits, or where they part.
ab 0 run.ini policy.plugin=block,whole --rounds 1 --steps 1
says said "A policy.plugin=block"
says said "B policy.plugin=whole"
says said "numbers  B has the bits of A after each of 3 steps"
says said "verdict  B is not decided: 1 rounds are too few; give more --minutes"
ab 0 run.ini --vary train.activation_checkpointing=no,yes --rounds 1 --steps 1
says said "numbers  B has the bits of A after each of 3 steps"
ab 0 run.ini --vary optimizer.lr=0.01,0.02 --rounds 1 --steps 1
says said "numbers  B parts from A at step 1: model.embed_tokens.weight"
ab 0 run.ini --vary run.seed=1,2 --rounds 1 --steps 1
says said "numbers  B begins with other numbers than A"
ab 0 run.ini optimizer.plugin=sgd,adamw --rounds 1 --steps 1
says said "there are no bits to compare"

# What is wrong has a sentence.
ab 2 run.ini
says err "one arm is nothing to compare"
ab 2 run.ini policy.plugin=block,whole strategy.plugin=single,ddp
says err "an A/B test changes one thing"
ab 2 run.ini run.ini policy.plugin=block,whole
says err "is varied, and run.ini is another file"
ab 2 run.ini --vary train.micro_batch=1
says err "give a key and two values or more"
ab 2 run.ini --vary run.seed=1,2,3,4,5,6,7,8,9
says err "there are more than 8 arms"
ab 1 run.ini policy.plugin=block,blok --rounds 1 --steps 1
says err "blok"
threads=2
ab 1 run.ini --vary device.threads=1,2 --rounds 1 --steps 1
says err "differ in the device or communicator ([device] threads = 1 and [device] threads = 2)"

# On ranks, whose launcher hands the answer on.
if has mpich; then
    if is_full; then
        ab 10 run.ini large.ini --ranks 2 --minutes 10 --steps 3 strategy.plugin=fsdp comm.plugin=mpi-mpich
        says said "verdict  B is slower than A"
    fi
    ab 0 run.ini strategy.plugin=ddp,fsdp --ranks 2 --rounds 1 --steps 1 comm.plugin=mpi-mpich
    says said "numbers  B has the bits of A after each of 3 steps"
    quiet
fi
exit $((failures > 0))
