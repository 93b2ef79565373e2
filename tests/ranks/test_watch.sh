#!/bin/sh
# A rank that is killed, one that is stopped, one that waits for ever, and one that only takes its time: what the watcher
# says, and that nobody is left. With --ranks and under a launcher, with each MPI that this build has.
set -eu
# shellcheck source=tests/ranks/rig.sh
. "$WEFT_SOURCE/tests/ranks/rig.sh"
trap 'kill -KILL $(rank_of "[0-9]") 2>/dev/null || true; rm -rf "$dir"' EXIT INT TERM

begin() { # begin HOW ID argument...: 3 ranks that train for long; HOW: ranks or bare
    how=$1 id=$2
    shift 2
    : >out.txt
    : >err.txt
    rm -rf one
    if [ "$how" = ranks ]; then
        "$weft" train run.ini --ranks 3 "comm.plugin=mpi-$id" train.steps=100000 train.global_batch=6 "$@" \
            >out.txt 2>err.txt </dev/null &
    else
        # shellcheck disable=SC2046  # words on purpose
        $(launcher "$id" 3) "$weft" train run.ini "comm.plugin=mpi-$id" train.steps=100000 train.global_batch=6 "$@" \
            >out.txt 2>err.txt </dev/null &
    fi
    started=$!
}
ends_within() { # ends_within SECONDS WHAT: what was begun ends, with a failure, and leaves no rank
    limit=$(($(date +%s) + $1))
    while kill -0 "$started" 2>/dev/null; do
        [ "$(date +%s)" -lt "$limit" ] || fail "$2: not all have ended after $1 seconds"
        sleep 0.1
    done
    status=0
    wait "$started" || status=$?
    [ "$status" != 0 ] || fail "$2: the exit status is 0"
    [ "$how" = bare ] || [ "$status" = 1 ] || fail "$2: the exit status is $status"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        left=$(for p in /proc/[0-9]*; do
            grep -qs "^State:.Z" "$p/status" && continue
            environment "$p" | grep -qxE "TEST_DIRECTORY=$dir" || continue
            [ "$(cat "$p/comm" 2>/dev/null)" != weft ] || echo "$p"
        done)
        [ -n "$left" ] || return 0
        sleep 0.2
    done
    fail "$2: somebody is left: $left"
}
place='in step [0-9]+, at event [0-9]+, [A-Z]+[^:]*|after step [0-9]+'

for id in mpich openmpi; do
    has "$id" || continue
    for how in ranks bare; do
        for rank in 0 2; do
            begin "$how" "$id"
            steps 3
            kill -KILL "$(rank_of "$rank")"
            ends_within 10 "kill -9 of rank $rank ($how, $id)"
            says "^weft[a-z ]*: rank $rank (died by signal 9|is gone without a word.*) ($place): the other ranks"
        done
        begin "$how" "$id"
        steps 3
        kill -STOP "$(rank_of 1)"
        ends_within 10 "kill -STOP of rank 1 ($how, $id)"
        says "^weft[a-z ]*: rank 1 hangs: it has been stopped by a signal for 5 s, ($place): the other ranks"
        echo "ranks that die or are stopped are named ($how, mpi-$id)"
    done
done

has mpich || exit 0
if ! command -v mpicc.mpich >mpicc; then
    echo "skipped: there is no mpicc.mpich to build a communicator that waits for ever"
    exit 0
fi

# ---- waits for ever: rank 1, in its 40th wait
sed 's/ranks_wait/late_wait/' "$WEFT_SOURCE/plugins/comm/mpi/plugin.c" >late.c
sed -i 's/^static const weft_comm_plugin/static weft_status late_wait(weft_comm *c, weft_comm_handle *h, weft_error *err) {\
    static int waits;\
    if (c->info.rank == 1 \&\& ++waits == 40) for (;;) sched_yield();\
    return ranks_wait(c, h, err);\
}\
&/; 1i #include <sched.h>' late.c
# shellcheck disable=SC2046  # words on purpose
build comm mpi-late mpicc.mpich -I"$WEFT_SOURCE/plugins/comm/mpi" '-DRANKS_ID="mpi-late"' '-DRANKS_NAME="MPICH"' \
    '-DRANKS_LAUNCHER="mpiexec"' "-DRANKS_LAUNCH=\"$(launcher mpich '{ranks}')\"" '-DRANKS_LAUNCHED="PMI_RANK PMI_SIZE"' \
    late.c $(ls "$WEFT_SOURCE"/plugins/comm/mpi/*.c | grep -v plugin.c)
begin ranks late run.patience=2
ends_within 30 "a wait for ever"
says '^weft train: the ranks hang: nobody has gone on for [2-9] s and nobody computes; rank 0 waits [^;]*; rank 1 waits [^;]*; rank 2 waits '
echo "a wait for ever is a hang"

# ---- takes its time: the optimizer of rank 1 computes for three times as long as the others' patience
sed 's/^    sgd_hp \*out = hp;/&\
    if (atoi(getenv("PMI_RANK")) == 1 \&\& step->update == 2) sleep(9);/; 1i #include <unistd.h>\
#include <stdlib.h>' "$WEFT_SOURCE"/plugins/optimizer/sgd/sgd.c >slow.c
sed -i 's/WEFT_PLUGIN(optimizer, 1, "sgd"/WEFT_PLUGIN(optimizer, 1, "slow"/' slow.c
build optimizer slow "${CC:-cc}" slow.c
rm -rf one
before=$(date +%s)
"$weft" train run.ini --ranks 2 comm.plugin=mpi-mpich optimizer.plugin=slow run.patience=3 >out.txt 2>err.txt ||
    fail "an operator that takes its time is taken for a hang"
[ $(($(date +%s) - before)) -ge 9 ] || fail "the planted operator took no time"
echo "what computes may take its time"
