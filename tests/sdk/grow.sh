#!/bin/sh
# Copies the SDK's headers with the changes of a newer SDK: each public struct with a struct_size has more
# fields at its end, so that code built with the copy has longer structs than code built with the original
# headers.
#   grow.sh HEADERS COPY    the directories that contain weft/
set -eu
mkdir -p "$2/weft"
for header in "$1"/weft/*.h; do
    copy=$2/weft/$(basename "$header")
    awk '/^(typedef )?struct weft_[a-z0-9_]+ \{$/ { first = NR + 1 }
         NR == first { grows = $0 == "    uint32_t struct_size;" }
         /^}/ && grows { print "    uint64_t grown[13];"; grows = 0 }
         { print }' "$header" >"$copy.new"
    cmp -s "$copy.new" "$copy" || cp "$copy.new" "$copy" # an unchanged file keeps its time
    rm "$copy.new"
done
sizes=$(cat "$1"/weft/*.h | grep -c "^    uint32_t struct_size;\$")
grown=$(cat "$2"/weft/*.h | grep -c "^    uint64_t grown\\[13\\];\$")
[ "$sizes" = "$grown" ] && [ "$grown" -gt 50 ] || { echo "grow.sh: $grown of $sizes structs grow" >&2; exit 1; }
