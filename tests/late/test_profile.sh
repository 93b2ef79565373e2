#!/bin/sh
# On a device with delayed execution, weft profile attributes time to the right row: a slow kernel counts for
# its caller, whether it runs immediately or at the next wait. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late:$WEFT_BUILD/plugins"
make_model model 32 8 56 1 512
make_text 40
cat >run.ini <<'INI'
[model]
plugin = llama
path   = model
start  = fresh
[data]
path     = games.txt
document = line
context  = 16
[train]
steps        = 4
global_batch = 2
micro_batch  = 1
[device]
threads = 1
INI
# A delayed kernel takes at least its delay, on a machine with any load.
takes() { # takes ROW KERNEL argument...: with that kernel delayed, the row has its time
    row=$1 kernel=$2
    shift 2
    limit env WEFT_LATE_SLOW="$kernel" "$weft" profile run.ini --steps 1 --warmup 1 "$@" >said 2>err ||
        failed "profile $*" said err
    # name, calls, ms, ...; the name may contain blanks
    awk -v row="$row" 'index($0, row " ") == 1 { rest = substr($0, length(row) + 1); split(rest, of); ms = of[2] }
        END { exit !(ms >= 40) }' said || failed "$row does not have the 40 ms of $kernel, $WEFT_LATE_MODE: $*" said
}
for WEFT_LATE_MODE in last soon; do
    export WEFT_LATE_MODE
    takes optimizer update
    takes norm square_sum
    takes reduce copy
    takes "rope forward" rope
done
takes reduce copy strategy.plugin=ddp strategy.reduce_at=last
exit $((failures > 0))
