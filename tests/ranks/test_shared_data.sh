#!/bin/sh
# One rank of each node creates the data, and its other ranks map them: each document is encoded once, the
# ranks train the same bits as with separate data, and a failure of the creating rank is reported once and
# stops all.
set -eu
# shellcheck source=tests/ranks/rig.sh
. "$WEFT_SOURCE/tests/ranks/rig.sh"
trap 'end_ranks; rm -rf "$dir"' EXIT INT TERM

# The plugins text and instruct with a log of encoded documents; FAIL_RANK=N makes rank N's create fail.
log='{\
        const char *file = getenv("ENCODED"), *rank = getenv("PMI_RANK");\
        const int to = open(file, O_WRONLY | O_APPEND | O_CREAT, 0600);\
        char line[32];\
        if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");\
        if (rank == NULL) rank = "0";\
        while (getenv("HOLD") != NULL \&\& access(getenv("HOLD"), F_OK) == 0) usleep(10000);\
        (void)snprintf(line, sizeof line, "%s\\n", rank);\
        if (write(to, line, strlen(line)) < 0) abort();\
        (void)close(to);\
    }'
mkdir source
cp -r "$WEFT_SOURCE/plugins/data" "$WEFT_SOURCE/plugins/common" source/
sed -i "s/^    const weft_status status = all->job->encode(.*/&\\
    $log/; 1i #include <fcntl.h>\\
#include <stdlib.h>\\
#include <unistd.h>" source/data/text/encode.c
sed -i "s/^    counts->records++;/&\\
    $log/; 1i #include <fcntl.h>\\
#include <stdlib.h>\\
#include <unistd.h>" source/data/instruct/encode.c
fails='    if (getenv("FAIL_RANK") != NULL \&\& getenv("PMI_RANK") != NULL \&\& !strcmp(getenv("FAIL_RANK"), getenv("PMI_RANK")))\
        status = weft_error_set(err, WEFT_E_DATA, "a failure of one rank");'
sed -i "s/^    if (status == WEFT_OK) status = data_made_share/$fails\\
&/; 1i #include <stdlib.h>" source/data/text/text.c
for id in text instruct; do
    # shellcheck disable=SC2046  # words on purpose
    build data "$id" "${CC:-cc}" source/data/common/*.c source/data/"$id"/*.c $(pkg-config --cflags --libs jansson) -lm
done
export ENCODED="$dir/encoded"
documents=$(wc -l <games.txt)
encodes() { # encodes N RANK...: exactly those ranks encoded each of N documents
    n=$1
    shift
    for rank in "$@"; do
        [ "$(grep -cx "$rank" encoded)" = "$n" ] || fail "rank $rank encoded $(grep -cx "$rank" encoded) of $n documents"
    done
    [ "$(wc -l <encoded)" = $((n * $#)) ] || fail "$(sort encoded | uniq -c | tr '\n' ' '): ranks $* had to"
    rm encoded
}
trains() { # trains OUT COMMAND...: the run succeeds
    out=$1
    shift
    rm -rf one "$out"
    limit "$@" >out.txt 2>err.txt </dev/null || fail "$out: status $?"
    [ "$out" = one ] || mv one "$out"
}
stops() { # stops TEXT COMMAND...: it fails, one line has the text, and no training starts
    text=$1
    shift
    rm -rf one
    status=0
    limit "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] || fail "$text: status $status"
    [ "$(grep -cF -- "$text" err.txt)" = 1 ] || fail "\"$text\" is not there once"
    [ ! -e one/model ] || fail "$text: something was trained"
    rm -f encoded
}

cat >chat.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]}
{"messages": [{"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]}
{"messages": [{"role": "user", "content": "five"}, {"role": "assistant", "content": "six and more"}]}
{"messages": [{"role": "user", "content": "seven"}, {"role": "assistant", "content": "eight"}]}
{"messages": [{"role": "user", "content": "nine"}, {"role": "assistant", "content": "ten"}]}
JSON
trains alone "$weft" train run.ini data.validation=0.2
encodes "$documents" 0
chat="data.plugin=instruct data.path=chat.jsonl data.template=alpaca data.validation=chat.jsonl data.weight=1.5"
sed '/^document/d' run.ini >chat.ini
# shellcheck disable=SC2086  # words on purpose
trains chat-alone "$weft" train chat.ini $chat
rm encoded
{ sed -n 1,4p games.txt; printf '\n'; } >bad.jsonl
tried=
for id in mpich $(! is_full || echo openmpi); do
    has "$id" || continue
    tried=yes
    for how in ranks bare; do
        set --
        # shellcheck disable=SC2046  # words on purpose
        [ "$how" = ranks ] || set -- $(launcher "$id" 4)
        set -- "$@" "$weft" train run.ini "comm.plugin=mpi-$id"
        [ "$how" = bare ] || set -- "$@" --ranks 4
        trains shared "$@" data.validation=0.2
        encodes "$documents" 0
        same_tensors "$how, $id: other bits than of one rank" alone/model shared/model
        stops "bad.jsonl:5: " "$@" data.path=bad.jsonl
        rm -f encoded
    done
    # shellcheck disable=SC2086  # words on purpose
    trains chat-shared "$weft" train chat.ini $chat "comm.plugin=mpi-$id" --ranks 2
    encodes 10 0
    diff -r chat-alone/model chat-shared/model >log || failed "$id: another model of conversations" log
    echo "one of the ranks encodes, and all train to the same bits (mpi-$id)"
done
[ -n "$tried" ] || { echo "skipped: no MPI was built"; exit 77; }
has mpich || exit 0

# Two nodes: hosts with two names.
if unshare --uts hostname other 2>err.txt; then
    cat >machines <<'SH'
case $PMI_RANK in 1 | 3) exec unshare --uts sh -c 'hostname other; exec "$@"' sh "$@" ;; *) exec "$@" ;; esac
SH
    # shellcheck disable=SC2046  # words on purpose
    trains shared $(launcher mpich 4) sh ./machines "$weft" train run.ini comm.plugin=mpi-mpich data.validation=0.2
    encodes "$documents" 0 1
    same_tensors "two machines: other bits than of one rank" alone/model shared/model
    echo "one rank of each machine encodes"
else
    echo "skipped: hosts of two names need unshare --uts, which root has"
fi

# A rank with a create that fails before the data are created: the creating rank and another one.
for rank in 0 1; do
    export FAIL_RANK=$rank
    stops "a failure of one rank" "$weft" train run.ini comm.plugin=mpi-mpich --ranks 2
done
unset FAIL_RANK
# The creating rank is killed, or all are stopped by a signal, while the others wait for its lock.
for signal in KILL TERM; do
    rm -rf one encoded
    : >hold
    HOLD=$dir/hold limit "$weft" train run.ini comm.plugin=mpi-mpich --ranks 2 >out.txt 2>err.txt </dev/null &
    started=$!
    maker=$(rank_of 0)
    for _ in $(seq 1000); do
        ! grep -q "FLOCK .* $maker " /proc/locks || break
        sleep 0.1
    done
    kill "-$signal" "$maker"
    [ "$signal" = KILL ] || rm hold
    status=0
    wait "$started" || status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] || fail "SIG$signal to the maker: status $status"
    [ -z "$(processes "$of_weft")" ] || fail "SIG$signal to the maker: a rank goes on"
done
rm -f hold encoded
echo "a failure, a kill or a stop of the maker ends all"

# A rank that cannot open the shared file makes a copy, and rank 0 logs it.
if ! ldd "$weft" | grep -qE 'lib(a|t)san' && ! grep -qE '__(a|t)san_init' "$weft"; then
    cat >closed.c <<'C'
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int open(const char *path, int flags, ...) {
    va_list args;
    mode_t mode = 0;
    va_start(args, flags);
    if (flags & O_CREAT) mode = va_arg(args, mode_t);
    va_end(args);
    if (strstr(path, "/proc/") == path && strstr(path, "/fd/") != NULL && (flags & O_NONBLOCK)) {
        errno = EACCES;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
C
    "${CC:-cc}" -shared -fPIC -o closed.so closed.c
    # shellcheck disable=SC2046  # words on purpose
    LD_PRELOAD=$PWD/closed.so trains shared $(launcher mpich 2) "$weft" train run.ini comm.plugin=mpi-mpich data.validation=0.2
    encodes "$documents" 0 1
    [ "$(grep -c "rank 1 cannot map the data" out.txt err.txt | awk -F: '{ n += $2 } END { print n }')" = 1 ] || fail "the copy is not logged once"
    same_tensors "a rank with a copy: other bits" alone/model shared/model
    echo "a rank that cannot map the data makes a copy, which is logged"
fi
exit "$((failures > 0))"
