#!/bin/sh
# launcher.sh -n N PROGRAM ARGUMENT...: starts N processes with FAKE_RANK and FAKE_SIZE, and exits with their
# highest status; SIGTERM kills them.
ranks=$2 rank=0 worst=0 started=
shift 2
trap 'kill -KILL $started' TERM
while [ "$rank" -lt "$ranks" ]; do
    FAKE_RANK=$rank FAKE_SIZE=$ranks "$@" &
    started="$started $!"
    rank=$((rank + 1))
done
for process in $started; do
    status=0
    wait "$process" || status=$?
    [ "$status" -le "$worst" ] || worst=$status
done
exit "$worst"
