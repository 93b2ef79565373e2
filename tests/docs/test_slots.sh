# The table of slots in docs/plugin-authors.md names each slot that host/plugin/kinds.c asks for, in rows of its kind, and
# each that a kind's table in the SDK has besides, which a plugin may leave empty. A second one names each slot of the
# tables that a plugin's `extension` gives.
. "$WEFT_SOURCE/tests/common/shell.sh"
page=$WEFT_SOURCE/docs/plugin-authors.md

# "model create"
grep -o 'SLOT([a-z]*, [a-z_0-9]*)' "$WEFT_SOURCE/host/plugin/kinds.c" | sed 's/SLOT(//; s/)//; s/,//' | grep -v '^kind ' >asked
for header in "$WEFT_SOURCE"/sdk/include/weft/*.h; do
    awk '/^typedef struct weft_[a-z]*_plugin \{/ { kind = $3; sub(/^weft_/, "", kind); sub(/_plugin$/, "", kind) }
        /^\}/ { kind = "" }
        kind != "" && match($0, /\(\*[a-z_0-9]+\)\(/) { print kind, substr($0, RSTART + 2, RLENGTH - 4) }' "$header" >>asked
done
# Of a row "| model | `create`, ... |" the names in its second cell; a row without a kind goes on with the one above it.
awk -F '|' '/^\| kind \| slot/ { inside = 1; next }
inside && !/^\|/ { exit }
inside && !/^\|---/ {
    cell = $2
    gsub(/^ +| +$/, "", cell)
    if (cell != "") kind = cell
    n = split($3, names, /`/)
    for (i = 2; i <= n; i += 2) print kind, names[i]
}' "$page" >told

[ "$(wc -l <asked)" -gt 80 ] || failed "only $(wc -l <asked) slots are found in kinds.c"
while read -r kind slot; do
    grep -qxF -e "$kind $slot" -e "all that have them $slot" told || failed "$page: its table lacks $slot of $kind"
done <asked
grep -qxF 'all that have them extension' told || failed "$page: its table lacks extension"
grep -qxF 'device host_view' told || failed "$page: its table lacks host_view of device"

# "weft_device_transfer take", of all tables of slots in the SDK that are neither a kind's nor the host's own
for header in "$WEFT_SOURCE"/sdk/include/weft/*.h; do
    awk '/^typedef struct weft_(device|data|tokenizer|model|comm|optimizer|policy|strategy|adapter)_[a-z_]+ \{/ { table = $3 }
        /^\}/ || table ~ /_(plugin|job)$/ { table = "" }
        table != "" && match($0, /\(\*[a-z_0-9]+\)\(/) { print table, substr($0, RSTART + 2, RLENGTH - 4) }' "$header"
done >asked
awk -F '|' '/^\| table \| slot/ { inside = 1; next }
inside && !/^\|/ { exit }
inside && !/^\|---/ {
    cell = $2
    gsub(/[ `]+/, "", cell)
    if (cell != "") table = cell
    n = split($3, names, /`/)
    for (i = 2; i <= n; i += 2) print table, names[i]
}' "$page" >told
[ "$(wc -l <asked)" -gt 25 ] || failed "only $(wc -l <asked) slots are found in tables of the SDK" asked
while read -r slot; do
    grep -qxF "$slot" told || failed "$page: its table of extensions lacks $slot"
done <asked
[ "$failures" = 0 ]
