#!/bin/sh
# A rank that is killed, stopped, blocked forever, or only slow: the watchdog's message, no remaining process,
# and a resume. With --ranks and under a launcher, with each MPI of this build.
set -eu
# shellcheck source=tests/ranks/rig.sh
. "$WEFT_SOURCE/tests/ranks/rig.sh"
slow=$(mktemp -d)
cleanup() {
    for dir in "$dir" "$slow"; do
        end_ranks
        rm -rf "$dir"
    done
}
trap cleanup EXIT INT TERM

# ---- slow: the optimizer of rank 1 computes longer than the others' timeout of 30 seconds. The tests below
# run at the same time.
sed 's/^    sgd_hp \*out = hp;/&\
    if (atoi(getenv("PMI_RANK")) == 1 \&\& step->update == 2) sleep(32);/; 1i #include <unistd.h>\
#include <stdlib.h>' "$WEFT_SOURCE"/plugins/optimizer/sgd/sgd.c >slow.c
sed -i 's/WEFT_PLUGIN(optimizer, 1, "sgd"/WEFT_PLUGIN(optimizer, 1, "slow"/' slow.c
patient=
if has mpich; then
    build optimizer slow "${CC:-cc}" slow.c
    before=$(date +%s)
    TEST_DIRECTORY="$slow" "$weft" train run.ini --ranks 2 comm.plugin=mpi-mpich optimizer.plugin=slow "run.out=$slow/out" \
        >"$slow/log" 2>&1 </dev/null &
    patient=$!
fi

command=train
begin() { # begin HOW ID argument...: 3 ranks that train for long, or prove; HOW: ranks or bare
    how=$1 id=$2
    shift 2
    : >out.txt
    : >err.txt
    rm -rf one
    if [ "$how" = ranks ]; then
        "$weft" $command run.ini --ranks 3 "comm.plugin=mpi-$id" train.steps=100000 train.global_batch=6 "$@" \
            >out.txt 2>err.txt </dev/null &
    else
        # shellcheck disable=SC2046  # words on purpose
        $(launcher "$id" 3) "$weft" $command run.ini "comm.plugin=mpi-$id" train.steps=100000 train.global_batch=6 "$@" \
            >out.txt 2>err.txt </dev/null &
    fi
    started=$!
}
ends() { # ends WHAT: the started run ends by itself, with a failure, and no rank remains
    limit=$(($(date +%s) + 300))
    while kill -0 "$started" 2>/dev/null; do
        [ "$(date +%s)" -lt "$limit" ] || fail "$1: not all have ended after 300 seconds"
        sleep 0.1
    done
    status=0
    wait "$started" || status=$?
    [ "$status" != 0 ] || fail "$1: the exit status is 0"
    [ "$how" = bare ] || [ "$status" = 1 ] || fail "$1: the exit status is $status"
    for _ in $(seq 300); do
        left=$(processes "$of_weft") # a dead process has no environment
        [ -n "$left" ] || return 0
        sleep 0.2
    done
    fail "$1: somebody is left: $left"
}
place='in step [0-9]+, at instruction [0-9]+, [A-Z]+[^:]*|after step [0-9]+'
names() { # names PATTERN: the watchdog's message about a rank after a signal at any time; stored in places.txt
    says "$1"
    grep -E -- "$1" err.txt >>places.txt
}

for id in mpich openmpi; do
    has "$id" || continue
    # A stopped rank has 5 seconds, or the ranks' timeout if shorter: each is tested once.
    seconds=5
    set --
    [ "$id" = mpich ] || { seconds=4 && set -- run.patience=4; }
    for how in ranks bare; do
        for rank in 0 2; do
            begin "$how" "$id"
            steps 3
            kill -KILL "$(rank_of "$rank")"
            ends "kill -9 of rank $rank ($how, $id)"
            names "^weft[a-z ]*: rank $rank (died by signal 9|died without a report.*) ($place): the other ranks were stopped$" # no checkpoint, no --resume
        done
        begin "$how" "$id" "$@"
        steps 3
        kill -STOP "$(rank_of 1)"
        ends "kill -STOP of rank 1 ($how, $id)"
        names "^weft[a-z ]*: rank 1 hangs: it has been stopped by a signal for $seconds s, ($place): the other ranks"
        echo "ranks that die or are stopped are named ($how, mpi-$id)"
    done
done
# A signal may reach a rank between two steps, but not every time.
if [ -e places.txt ]; then
    grep -qE 'in step [0-9]+, at instruction [0-9]+, [A-Z]+ [a-z]' places.txt ||
        { cat places.txt; fail "no rank was within a step, as far as the watcher knows"; }
fi

has mpich || { has openmpi && exit 0; echo "skipped: no MPI was built"; exit 77; }

# ---- a proof is watched like a run
command=prove
begin bare mpich --steps 10000
watched
kill -KILL "$(rank_of 2)"
ends "kill -9 of a rank that proves"
says "^weft: rank 2 (died by signal 9|died without a report.*) ($place|before step 1): the other ranks"
! grep -q -- --resume err.txt || fail "a proof is told to go on with --resume, which it has not"
command=train

# ---- resume: other ranks with another strategy reach the bits of an undisturbed run
long='train.steps=120 train.global_batch=6 checkpoint.every=10'
# shellcheck disable=SC2086  # words on purpose
"$weft" train run.ini $long strategy.plugin=single run.out=whole >out.txt 2>err.txt </dev/null || fail "one rank"
build_held_adamw
export HOLD_AT=25 HOLD_UNTIL="$dir/go"
# shellcheck disable=SC2086
begin ranks mpich $long strategy.plugin=fsdp
while [ ! -e one/checkpoints/step-20 ] && kill -0 "$started"; do sleep 0.02; done
kill -KILL "$(rank_of 1)"
ends "kill -9 of a run that is taken up again"
unset HOLD_AT
says "^weft train: rank 1 (died by signal 9|died without a report.*) ($place): the other ranks were stopped; --resume"
[ ! -e one/model ] || fail "the run had come to its end"
# shellcheck disable=SC2086
"$weft" train run.ini --ranks 2 comm.plugin=mpi-mpich $long --resume >out.txt 2>err.txt </dev/null || fail "it goes on"
grep -qE 'resumed from .*step-20' out.txt err.txt || fail "it does not go on from the newest checkpoint"
for file in model/model checkpoints/step-120/state/exp_avg checkpoints/step-120/state/exp_avg_sq; do
    cmp "whole/$file.safetensors" "one/$file.safetensors" || fail "not the bits of a run that nobody has killed: $file"
done
echo "a run that is killed goes on with the same bits"

if ! command -v mpicc.mpich >mpicc; then
    echo "skipped: there is no mpicc.mpich to build a communicator that waits for ever"
    exit 0
fi

# ---- blocked forever: rank 1, in the 40th gradient communication, which only an instruction of a step does
sed 's/ranks_join/late_join/' "$WEFT_SOURCE/plugins/comm/mpi/plugin.c" >late.c
sed -i 's/^static const weft_comm_plugin/static weft_status late_join(weft_comm *c, weft_comm_handle *h, weft_stream *stream, weft_error *err) {\
    static int joins;\
    if (c->info.rank == 1 \&\& strcmp(h->name, "all_to_all") == 0 \&\& ++joins == 40) for (;;) sched_yield();\
    return ranks_join(c, h, stream, err);\
}\
&/; 1i #include <sched.h>' late.c
# shellcheck disable=SC2046  # words on purpose
build comm mpi-late mpicc.mpich -I"$WEFT_SOURCE/plugins/comm/mpi" '-DRANKS_ID="mpi-late"' '-DRANKS_NAME="MPICH"' \
    '-DRANKS_LAUNCHER="mpiexec"' "-DRANKS_LAUNCH=\"$(launcher mpich '{ranks}')\"" '-DRANKS_LAUNCHED="PMI_RANK PMI_SIZE"' \
    late.c "$WEFT_SOURCE"/plugins/comm/common/asked.c $(ls "$WEFT_SOURCE"/plugins/comm/mpi/*.c | grep -v plugin.c)
begin ranks late run.patience=4
ends "a wait for ever"
says '^weft train: the ranks hang: no rank has made progress for [4-9] s and none computes; rank 0 waits [^;]*; rank 1 waits in step [0-9]+, at instruction [0-9]+, WAIT for instruction [0-9]+, REDUCE [a-z][^;]*; rank 2 waits '
echo "a wait for ever is a hang"

[ -z "$patient" ] || wait "$patient" || { cat "$slow/log"; fail "an operator that takes its time is taken for a hang"; }
[ $(($(date +%s) - before)) -ge 32 ] || fail "the planted operator took no time"
echo "what computes may take its time"
