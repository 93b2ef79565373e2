# Shared by the tests of `weft prove`, in addition to tests/common/shell.sh; to be sourced: runs it on
# configs/prove.ini and checks its output.
. "$WEFT_SOURCE/tests/common/shell.sh"
faults=$WEFT_BUILD/tests/faults
if [ ! -e "$faults/weft-comm-ring.so" ]; then
    echo "skipped: there is no MPI, so no ranks to prove anything on"
    exit 77
fi
fail() { # fail NAME: prints the output of the last run
    failed "$1" out err
}
prove() { # prove STATUS arguments...: output in out and err
    wanted=$1
    shift
    status=0
    "$weft" prove "$WEFT_SOURCE/configs/prove.ini" "$@" >out 2>err || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: weft prove $*"
}
says() { # says FILE TEXT
    grep -qF -- "$2" "$1" || fail "$1 does not say: $2"
}
