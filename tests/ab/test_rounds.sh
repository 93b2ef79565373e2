#!/bin/sh
# Rounds of `weft ab`: all arms run the same steps in a round, arms may diverge in the middle, on one rank or
# several, and a signal ends the rounds. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
make_run <<'INI'
steps    = 50
schedule = linear
INI
fail() { # fail NAME: prints the output of the last run
    failed "$1" said err
}
ab() { # ab STATUS arguments...: output in said and err
    wanted=$1
    shift
    status=0
    limit "$weft" ab run.ini train.global_batch=2 device.threads=1 "$@" >said 2>err || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: weft ab $*"
}
says() { # says FILE TEXT
    grep -qF -- "$2" "$1" || fail "$1 does not say: $2"
}

# An adamw that logs its instance and learning rate, and makes overflowing updates from update LATE_AT on.
mkdir -p plugins
{
    cat <<'C'
#include <stdio.h>
#include <stdlib.h>
static double late(const void *who, unsigned long long update, double lr) {
    const char *at = getenv("LATE_AT"), *log = getenv("LATE_LOG");
    FILE *to = log != NULL ? fopen(log, "a") : NULL;
    if (to != NULL) {
        fprintf(to, "%p %.17g\n", who, lr);
        fclose(to);
    }
    while (getenv("HANG_AT") != NULL && update == strtoull(getenv("HANG_AT"), NULL, 10)) (void)*(volatile double *)&lr;
    return at != NULL && update >= strtoull(at, NULL, 10) ? 1e300 * 1e300 : lr;
}
C
    sed -e 's/(float)(step->lr \//(float)(late(optimizer, step->update, step->lr) \//' -e 's/"adamw"/"late"/' \
        "$WEFT_SOURCE/plugins/optimizer/adamw/adamw.c"
} >late.c
[ "$(grep -c 'late(optimizer' late.c)" = 1 ] || failed "adamw.c has no learning rate to take"
build optimizer late "${CC:-cc}" -O2 late.c -lm
late=./plugins/weft-optimizer-late.so

# After three compared steps and one timed step, A runs three rounds of two blocks. Then each round has two
# blocks of A and one of B, all with the same steps, whose learning rates decrease.
LATE_LOG=steps ab 21 optimizer.plugin=$late policy.plugin=block,whole --rounds 3 --steps 2 --learn 0
awk '
    !($1 in number) { number[$1] = ++arms }
    { n = ++taken[number[$1]]; rate[number[$1], n] = $2 }
    END {
        if (arms != 2 || taken[1] != 40 || taken[2] != 13) { print arms, taken[1], taken[2]; exit 1 }
        for (i = 1; i <= 4; i++) if (rate[1, i] != rate[2, i]) { print "the first steps", i; exit 1 }
        for (round = 0; round < 3; round++)
            for (i = 1; i <= 3; i++) {
                here = rate[2, 4 + 3 * round + i]
                if (rate[1, 22 + 6 * round + i] != here || rate[1, 25 + 6 * round + i] != here) {
                    print "round", round, "step", i
                    exit 1
                }
                if (here == last) { print "a step twice"; exit 1 }
                last = here
            }
    }' steps >said || fail "the arms take other steps than each other"

# An arm that diverges in the second round is excluded, and the others are measured to the end. B has made 7
# updates before the second round, which starts with step 17 of the schedule.
LATE_AT=8 ab 22 optimizer.plugin=adamw,$late,adamw --rounds 3 --steps 2 --learn 0
says said "verdict  B diverges at step 18: the loss is not finite; step 18, instruction"
says said "optimizer:late"
says said "verdict  B is worse than A, which does not diverge"
says said "measured 3 rounds of 2 steps"
says said "verdict  C is not decided: 3 rounds are too few"
says said "beside   B is not timed"
[ ! -s err ] || fail "something on stderr"
LATE_AT=8 ab 22 optimizer.plugin=adamw,$late --rounds 3 --steps 2 --learn 0 --json --html page.html
grep -A 3 '"diverged": {' said | grep -q '"step": 18' || fail "the step at which B diverges"
awk '/"rounds": / { inside = 1; next } /\]/ { inside = 0 } inside' said | grep -c null >nulls || true
[ "$(cat nulls)" = 1 ] || fail "a round that B has no block of"
grep -q '<svg' page.html || fail "a page with an arm that diverges"

# The first arm diverges, in calibration and in a round: no other arm is timed.
LATE_AT=6 ab 22 optimizer.plugin=$late,adamw --rounds 3 --steps 2 --learn 0 --html page.html
! grep -q '<h2>Measured' page.html || fail "a heading over nothing"
says said "verdict  A diverges at step 7: "
says said "measured no round of all arms"
says said "verdict  B and A are not comparable: A diverges"
LATE_AT=29 ab 22 optimizer.plugin=$late,adamw --rounds 3 --steps 2 --learn 0
says said "verdict  A diverges at step 18: "
says said "measured 1 round of 2 steps"

# After all rounds, during learning.
LATE_AT=30 ab 21 optimizer.plugin=adamw,$late --rounds 3 --steps 2 --learn 40
says said "learned  B diverges: its loss is not finite"

# After a signal the verdict uses the finished rounds.
rm -f steps
LATE_LOG=steps "$weft" ab run.ini train.global_batch=2 device.threads=1 optimizer.plugin=$late \
    --vary optimizer.weight_decay=0,0.1 --within 0.001 --json >said 2>err &
pid=$!
while kill -0 $pid 2>/dev/null; do # until it trains
    [ ! -e steps ] || [ "$(wc -l <steps)" -lt 8 ] || break
    sleep 0.05
done
kill -TERM $pid
status=0
wait $pid || status=$?
case $status in
10 | 11 | 20 | 21) ;;
*) fail "status $status after a signal" ;;
esac
says said '"stopped": true'
says err "weft: stopping after this block; again to stop at once"
grep -q '"why": "a signal arrived before"' said || grep -q '"why": "a signal arrived during' said || fail "what is not learned"

# A call that does not return is ended by the time limit, and by one signal.
HANG_AT=6 ab 1 optimizer.plugin=adamw,$late --steps 1 --learn 0 --minutes 0.001 plugins.call_seconds=0.5
says err "weft ab: --minutes have passed in a call that does not return: optimizer:late ("
says err "has been in its prepare for 0.5 s, in training, in arm optimizer.plugin=$late, in step "
[ ! -s said ] || fail "something is told of what was not measured"
rm -f err # a signal before the program starts would be lost
HANG_AT=2 "$weft" ab run.ini train.global_batch=2 device.threads=1 optimizer.plugin=$late,adamw --minutes 100 \
    plugins.call_seconds=0.5 >said 2>err &
pid=$!
for _ in $(seq 600); do
    ! grep -q "goes on; other processes" err || break
    sleep 0.1
done
kill -TERM $pid
status=0
wait $pid || status=$?
[ "$status" = 75 ] || fail "status $status after a signal in a call that hangs"
says err "weft ab: stopped by a signal in a call that does not return: optimizer:late ("

if has mpich; then
    LATE_AT=8 ab 22 optimizer.plugin=adamw,$late --rounds 3 --steps 2 --learn 0 --ranks 2 strategy.plugin=fsdp \
        comm.plugin=mpi-mpich
    says said "verdict  B diverges at step 18: the loss is not finite"
    says said "verdict  B is worse than A"
fi
exit $((failures > 0))
