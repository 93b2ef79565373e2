#!/bin/sh
# Communicators, under the launcher of each MPI that this build has: every exchange on 1 to 9 ranks (ranks.h), a world of
# another size than was asked for, the launcher of the other MPI, and a rank that dies. Before that, self.
# ctest sets WEFT_BUILD.
set -eu
ranks=$WEFT_BUILD/tests/ranks
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
failures=0
# The libraries of MPI keep some memory to the end, and say so under a sanitizer.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

plugin() { # plugin ID: its file
    echo "$WEFT_BUILD/plugins/weft-comm-mpi-$1.so"
}
start() { # start N ID argument...: N ranks by the command of the plugin's note
    n=$1
    command=$("$ranks" launch "$(plugin "$2")" | sed "s/{ranks}/$n/")
    shift 2
    # shellcheck disable=SC2086  # words on purpose
    timeout 60 $command "$ranks" "$@" >"$dir/out" 2>&1 </dev/null
}
failed() { # failed WHAT
    failures=$((failures + 1))
    echo "FAILED: $1"
    sed 's/^/    /' "$dir/out"
}
quiet() { # quiet WHAT: neither a rank nor MPI had anything to say
    [ ! -s "$dir/out" ] || failed "$1: somebody speaks"
}

exchanges() { # exchanges ID N...: on N ranks each, and on two or three in pieces
    id=$1
    shift
    for n in "$@"; do
        cases=exchanges,several,pairs,wrong,rounding
        [ "$n" != 2 ] || cases=$cases,large
        start "$n" "$id" $cases "$(plugin "$id")" || failed "$id, $n ranks"
        quiet "$id, $n ranks"
    done
    for n in 2 3; do
        start $n "$id" exchanges,several,pairs "$WEFT_BUILD/tests/weft-comm-mpi-$id-pieces.so" ||
            failed "$id, $n ranks, in pieces"
    done
}

# says N ID FILE LINES TEXT: N ranks that ask for a world of 3 say so, LINES of them
says() {
    start "$1" "$2" world 3 "$3" || failed "$1 ranks of $2 that ask for 3 end with $?"
    [ "$(grep -cF -- "$5" "$dir/out")" = "$4" ] || failed "$1 ranks of $2 that ask for 3: not $4 times: $5"
}
sizes() {
    says 3 "$1" "$(plugin "$1")" 3 "status 0: "
    says 2 "$1" "$(plugin "$1")" 2 "status 7: 3 ranks were asked for, and this one finds itself in a world of 2. [comm]"
    says 1 "$1" "$(plugin "$1")" 1 "of 1, alone: no launcher started it, or that of another MPI. [comm]"
    "$ranks" world 3 "$(plugin "$1")" >"$dir/out" 2>&1 || failed "$1 without a launcher"
    grep -q "alone: no launcher started it.*plugin = mpi-$1 is built for .*: start its ranks with /" "$dir/out" ||
        failed "$1 without a launcher"
}
the_other() { # the_other ID OTHER: ranks of ID, started by the launcher of OTHER
    says 3 "$2" "$(plugin "$1")" 3 "status 7: 3 ranks were asked for, and this one finds itself in a world of 1, alone"
}

death() {
    mkdir "$dir/$1"
    before=$(date +%s)
    if start 3 "$1" die "$dir/$1" "$(plugin "$1")"; then failed "$1: a rank dies, and the launcher's status is 0"; fi
    after=$(date +%s)
    [ $((after - before)) -le 10 ] || failed "$1: a rank dies, and the others end after $((after - before)) s"
    [ "$(ls "$dir/$1" | wc -l)" = 3 ] || failed "$1: not three ranks began"
    for process in "$dir/$1"/*; do
        state=$(sed -n 's/^State:[[:space:]]*//p' "/proc/$(basename "$process")/status" 2>/dev/null || true)
        case $state in '' | Z*) ;; *) failed "$1: a rank dies, and rank $(basename "$process") goes on ($state)" ;; esac
    done
}

"$ranks" exchanges,several,pairs,wrong "$WEFT_BUILD/plugins/weft-comm-self.so" >"$dir/out" 2>&1 || failed "self"
quiet "self"
"$ranks" world 3 "$WEFT_BUILD/plugins/weft-comm-self.so" >"$dir/out" 2>&1 || failed "self, asked for 3"
grep -q "status 7: The communicator self is a world of one rank, and 3 were asked for" "$dir/out" || failed "self of 3"

found=
for id in mpich openmpi; do
    if [ ! -f "$(plugin $id)" ]; then
        echo "skipped: comm: this build has no mpi-$id, whose packages configs/packages.sh tests installs"
        continue
    fi
    found="$found $id"
    case $id in
    mpich) exchanges $id 1 2 3 4 5 6 7 8 9 ;;
    openmpi) exchanges $id 1 2 3 4 5 9 ;; # the same source: fewer, as each start takes half a second
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
