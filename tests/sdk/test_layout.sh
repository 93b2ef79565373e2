#!/bin/sh
# Public structs must match compiled plugins: every size, offset and slot order equals layout.txt, and the sizes in SDK
# 1.0 equal weft/sizes.h. Structs have no padding. docs/abi.md names the creator and the reader of each struct. For an
# intended change, the test writes both files anew to the build directory. Sizes of 1.0 are permanent, in
# tests/archive/sdk-1.0; sizes.h only gains the first sizes of new structs.
set -eu
. "$WEFT_SOURCE/tests/common/shell.sh"
include=$WEFT_SOURCE/sdk/include
sh "$WEFT_SOURCE/tests/archive/measure.sh" "$include" >measured || failed "the headers cannot be measured"

awk '$1 == "struct" { close_struct(); name = $2; grows = $3 == "grows"; size = $4; end = n = 0 }
    function close_struct() { if (name != "" && end != size) { print name ": padding at its end, after " end; bad = 1 } }
    $1 == "field" {
        if ($3 != end) { print $2 ": padding before it, at " end; bad = 1 }
        if (grows && ++n == 2 && $2 != name ".flags") { print $2 " is the second field instead of flags"; bad = 1 }
        end = $3 + $4
    }
    END { close_struct(); exit bad }' measured >log || failed "structs with padding, or without flags" log

held() { # held NEW SOURCE: the file that this test wrote equals the one of the source tree
    cp "$1" "$WEFT_BUILD/$1"
    diff "$WEFT_SOURCE/$2" "$1" >log || failed "the structs differ from $2. Plugins that are built already would break.
        For an intended change, copy $WEFT_BUILD/$1 there." log
}
awk '$1 == "struct" { print $2, $4 }
    $1 == "field" { sub(/^.*\./, "", $2); printf "    %-28s %4d %4d\n", $2, $3, $4 }' measured >layout.txt
held layout.txt tests/sdk/layout.txt
{
    cat <<'END'
/* weft/sizes.h: the bytes of each public struct in SDK 1.0. A reader rejects a smaller struct_size (WEFT_WHOLE), and
 * needs WEFT_HAS only for later fields. Written by tests/sdk/test_layout.sh. */
#ifndef WEFT_SIZES_H
#define WEFT_SIZES_H

/* clang-format off */
enum {
END
    awk '$1 != "struct" || $3 != "grows" { next }
        NR == FNR { first[$2] = $4; next }
        { printf "%s    WEFT_SIZE_1_0_%-28s = %4d", before, $2, $2 in first ? first[$2] : $4; before = ",\n" }
        END { print "" }' "$WEFT_SOURCE/tests/archive/sdk-1.0/measured.txt" measured
    printf '};\n/* clang-format on */\n\n#endif\n'
} >sizes.h
held sizes.h sdk/include/weft/sizes.h

# Each struct in the headers' text is measured, and in abi.md, by name or as arguments of a kernel.
sed -n 's/^\(typedef \)\{0,1\}struct \(weft_[a-z0-9_]*\) {.*/\2/p' "$include"/weft/*.h | sort >declared
sed -n 's/^struct \([^ ]*\) .*/\1/p' measured | sort | cmp -s - declared || failed "not every struct is measured" declared
grep -q '`WEFT_DEVICE_KERNELS`' "$WEFT_SOURCE/docs/abi.md" &&
    grep -o ' X([a-z_]*, weft_[a-z_]*)' "$include/weft/device.h" | sed 's/.*, //; s/)//' | sort -u >arguments
[ "$(wc -l <arguments)" -gt 15 ] || failed "the arguments of kernels are not found" arguments
while read -r struct; do
    grep -q "\`$struct\`" "$WEFT_SOURCE/docs/abi.md" || grep -qx "$struct" arguments ||
        failed "docs/abi.md does not name the creator and the reader of $struct"
done <declared
[ "$failures" = 0 ]
