#!/bin/sh
# The SDK's headers as a later SDK may have them: each public struct that has a struct_size gets fields at its end, so that
# what is built with the copy knows all of them longer than what is built with the headers themselves.
#   grow.sh HEADERS COPY    the directories that hold weft/
set -eu
mkdir -p "$2/weft"
for header in "$1"/weft/*.h; do
    copy=$2/weft/$(basename "$header")
    awk '/^(typedef )?struct weft_[a-z0-9_]+ \{$/ { first = NR + 1 }
         NR == first { grows = $0 == "    uint32_t struct_size;" }
         /^}/ && grows { print "    uint64_t grown[13];"; grows = 0 }
         { print }' "$header" >"$copy.new"
    cmp -s "$copy.new" "$copy" || cp "$copy.new" "$copy" # what is the same keeps its time
    rm "$copy.new"
done
sizes=$(cat "$1"/weft/*.h | grep -c "^    uint32_t struct_size;\$")
grown=$(cat "$2"/weft/*.h | grep -c "^    uint64_t grown\\[13\\];\$")
[ "$sizes" = "$grown" ] && [ "$grown" -gt 50 ] || { echo "grow.sh: $grown of $sizes structs grow" >&2; exit 1; }
