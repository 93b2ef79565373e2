#!/bin/sh
# Communicators under the launcher of each MPI library of this build: every call on 1 to 9 ranks (ranks.h), a world of
# another size than requested, the launcher of the other MPI, and a rank that dies. Before that, self.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
ranks=$WEFT_BUILD/tests/ranks

start() { # start N ID argument...: N ranks by the command of the plugin's note
    command=$(launcher "$2" "$1")
    shift 2
    # shellcheck disable=SC2086  # words on purpose
    limit $command "$ranks" "$@" >out 2>&1 </dev/null
}
quiet() { # quiet WHAT: neither a rank nor MPI printed anything
    [ ! -s out ] || failed "$1: somebody speaks" out
}

exchanges() { # exchanges ID N...: on N ranks each, and on two or three in chunks
    id=$1
    shift
    for n in "$@"; do
        cases=exchanges,several,pairs,wrong,rounding
        [ "$n" != 2 ] || cases=$cases,large
        [ "$n" -gt 4 ] || cases=$cases,crossing
        start "$n" "$id" $cases "$(communicator "$id")" || failed "$id, $n ranks" out
        quiet "$id, $n ranks"
    done
    for n in $(of_suite "2 3" 3); do
        start $n "$id" memory "$(communicator "$id")" || failed "$id, $n ranks, memory" out
        start $n "$id" exchanges,several,pairs,crossing "$WEFT_BUILD/tests/weft-comm-mpi-$id-pieces.so" ||
            failed "$id, $n ranks, in pieces" out
    done
}

# says N ID FILE LINES TEXT: N ranks that request a world of 3 print the error, in LINES of them
says() {
    start "$1" "$2" world 3 "$3" || failed "$1 ranks of $2 that ask for 3 end with $?" out
    [ "$(grep -cF -- "$5" out)" = "$4" ] || failed "$1 ranks of $2 that ask for 3: not $4 times: $5" out
}
sizes() {
    says 3 "$1" "$(communicator "$1")" 3 "status 0: "
    says 2 "$1" "$(communicator "$1")" 2 "status 7: the run requests 3 ranks, and this process is in a world of 2. [comm]"
    says 1 "$1" "$(communicator "$1")" 1 "of 1: it was started without a launcher, or by the launcher of another MPI. [comm]"
    "$ranks" world 3 "$(communicator "$1")" >out 2>&1 || failed "$1 without a launcher" out
    grep -q "started without a launcher.*plugin = mpi-$1 is built for .*: start its ranks with /" out ||
        failed "$1 without a launcher" out
}
the_other() { # the_other ID OTHER: ranks of ID, started by the launcher of OTHER
    says 3 "$2" "$(communicator "$1")" 3 "status 7: the run requests 3 ranks, and this process is in a world of 1"
}

goes_on() { # goes_on PROCESS TIME: it still runs then; the launcher does not wait for the end of a killed one
    while :; do
        state=$(sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null || true)
        case $state in '' | Z*) return 1 ;; esac
        [ "$(date +%s)" -le "$2" ] || return 0
        sleep 0.1
    done
}
death() {
    mkdir "$1"
    status=0
    start 3 "$1" die "$1" "$(communicator "$1")" || status=$? # the others would wait forever
    case $status in
    0) failed "$1: a rank dies, and the launcher's status is 0" out ;;
    124) failed "$1: a rank dies, and the others do not end" out ;;
    esac
    [ "$(ls "$1" | wc -l)" = 3 ] || failed "$1: not three ranks began" out
    for process in "$1"/*; do
        goes_on "$(basename "$process")" $(($(date +%s) + 300)) && failed "$1: a rank dies, and rank $(basename "$process") goes on" out
    done
    return 0
}

"$ranks" exchanges,several,pairs,wrong "$WEFT_BUILD/plugins/weft-comm-self.so" >out 2>&1 || failed "self" out
quiet "self"
"$ranks" world 3 "$WEFT_BUILD/plugins/weft-comm-self.so" >out 2>&1 || failed "self, asked for 3" out
grep -q "status 7: The communicator self is a world of one rank, and the run requests 3" out || failed "self of 3" out

of_suite() { # of_suite FULL QUICK
    if is_full; then echo "$1"; else echo "$2"; fi
}
found=
for id in mpich openmpi; do
    has $id || continue
    found="$found $id"
    case $id in # many ranks on few processors are slow, and each start of openmpi takes half a second
    mpich) exchanges $id $(of_suite "1 2 3 4 5 6 7 8 9" "1 3 4") ;;
    openmpi) exchanges $id $(of_suite "1 2 3 4 5 9" 2) ;; # the same source
    esac
    sizes $id
    death $id
done
if [ "$found" = " mpich openmpi" ]; then
    the_other mpich openmpi
    the_other openmpi mpich
fi
[ "$failures" = 0 ] || exit 1
echo "communicators hold:${found:- none was found}"
