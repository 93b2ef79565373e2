#!/bin/sh
# Device code as compiled for GPUs: for every architecture, no kernel spills registers.
set -u
. "$WEFT_SOURCE/tests/common/shell.sh"
logs=$WEFT_BUILD/cuda-objects
[ -d "$logs" ] || { echo "skipped: no device code was compiled for cards here"; exit 77; }

for source in "$WEFT_SOURCE"/plugins/device/cuda/*.cu; do
    name=$(basename "$source" .cu)
    log=$logs/$name.ptxas
    [ -s "$log" ] || { echo "$log is not there"; exit 1; }
    cards='sm_80 sm_89 sm_90'
    [ "$name" != attention_hopper ] || cards=sm_90a
    for card in $cards; do
        grep -q "Compiling entry function .* for '$card'" "$log" || { echo "$name.cu has no kernel for $card"; exit 1; }
    done
done
awk '
/Compiling entry function/ { kernel = $0; n++ }
/C7512|serialized/ { print FILENAME ": " $0; failed = 1 }
/spill/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print FILENAME ": " kernel "\n" $0; failed = 1 }
END { print n " kernels"; exit failed || n == 0 }' "$logs"/*.ptxas
