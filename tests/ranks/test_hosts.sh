#!/bin/sh
# Two hosts, each a network namespace with its own host name, connected by a virtual cable. With
# configs/two-hosts.sh 2 + 2 ranks train the same bits as 4 on one host, over the network. If a rank dies or
# is stopped, rank 0's host reports it.
set -eu
# shellcheck source=tests/ranks/rig.sh
. "$WEFT_SOURCE/tests/ranks/rig.sh"
a=weft-a-$$ b=weft-b-$$
cleanup() {
    end_ranks
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT INT TERM
has mpich || exit 77
if ! { ip netns add "$a" && ip netns add "$b" && ip netns exec "$a" unshare --uts hostname "$a"; } >out.txt 2>err.txt; then
    echo "skipped: two hosts need ip netns and unshare --uts, which root has (iproute2)"
    exit 77
fi
if ! ip link add wa$$ netns "$a" type veth peer name wb$$ netns "$b" 2>err.txt; then
    echo "skipped: this kernel has no veth to connect two hosts"
    exit 77
fi
ip -n "$a" addr add 10.77.0.1/24 dev wa$$
ip -n "$b" addr add 10.77.0.2/24 dev wb$$
for host in "$a" "$b"; do ip -n "$host" link set lo up; done
ip -n "$a" link set wa$$ up
ip -n "$b" link set wb$$ up
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(ip netns exec "$b" cat /sys/class/net/wb$$/operstate)" != up ] || break
    sleep 0.1
done

# Features of two real machines: ssh [-x] HOST COMMAND..., names for each other, and the same programs.
mkdir bin
cat >bin/ssh <<'SH'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; exec $*"
SH
printf '#!/bin/sh\nexec %s "$@"\n' "$(launcher mpich 4 | cut -d ' ' -f 1)" >bin/mpiexec.mpich
chmod +x bin/ssh bin/mpiexec.mpich
ln -s "$weft" bin/weft
printf '127.0.0.1 localhost\n10.77.0.1 %s\n10.77.0.2 %s\n' "$a" "$b" >hosts
# The namespaces share a kernel, through which MPICH would find its peers; this forces the network.
export UCX_TLS=tcp,self
hosts() { # hosts argument...: weft train on both, as started by a user of the first
    ip netns exec "$a" unshare --uts env "PATH=$dir/bin:$PATH" sh -c \
        'hostname "$0" && mount --bind hosts /etc/hosts && exec sh "$@"' "$a" \
        "$WEFT_SOURCE/configs/two-hosts.sh" "$a" "$b" run.ini "$@"
}
ended=0
trains() { # trains STRATEGY: the same on both hosts as on one; counts runs that terminate
    before=$(ip netns exec "$b" cat "/sys/class/net/wb$$/statistics/rx_bytes")
    # MPICH 4.0.2 with UCX over TCP does not always terminate after the last save. The watchdog then reports
    # that, and that every rank has finished the last step: the model compared below exists, or the comparison
    # fails.
    if hosts "strategy.plugin=$1" "run.out=$dir/two" run.patience=10 --overwrite >out.txt 2>err.txt </dev/null; then
        ended=$((ended + 1))
    else
        says "^weft: the ranks hang: no rank has made progress for 10 s and none computes(; rank [0-3] waits after step 3){4}: "
    fi
    after=$(ip netns exec "$b" cat "/sys/class/net/wb$$/statistics/rx_bytes")
    [ $((after - before)) -gt 300000 ] || fail "$((after - before)) bytes went over the cable: less than the gradients"
    env -u UCX_TLS "$weft" train run.ini --ranks 4 comm.plugin=mpi-mpich "strategy.plugin=$1" "run.out=$dir/one" --overwrite \
        >out.txt 2>err.txt </dev/null || fail "one host"
    cmp one/model/model.safetensors two/model/model.safetensors || fail "$1: other bits on two hosts"
}
trains ddp
trains fsdp
[ "$ended" -gt 0 ] || trains ddp
[ "$ended" -gt 0 ] || fail "no run of two hosts comes to an end by itself"
echo "two hosts train to the bits of one"

for case in "KILL 3" "STOP 3" "KILL 0"; do
    signal=${case% *} rank=${case#* }
    rm -rf one
    hosts train.steps=100000 >out.txt 2>err.txt </dev/null &
    started=$!
    steps 3
    kill "-$signal" "$(rank_of "$rank")"
    limit=$(($(date +%s) + 300))
    while kill -0 "$started" 2>/dev/null; do
        [ "$(date +%s)" -lt "$limit" ] || fail "SIG$signal: not all have ended after 300 seconds"
        sleep 0.1
    done
    ! wait "$started" || fail "SIG$signal: the exit status is 0"
    says "^weft: rank $rank (died by signal 9|died without a report.*|hangs: it has been stopped .* s,) (in|after) step [0-9]+.*: the other ranks were stopped"
    [ "$(grep -c "the other ranks were stopped" err.txt)" = 1 ] || fail "SIG$signal: several watchers speak"
done
echo "a rank of either host that dies or is stopped is named"
