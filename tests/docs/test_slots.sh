# The table of slots in docs/plugin-slots.md contains each slot required by host/plugin/kinds.c, in rows of
# its kind, and each optional slot of a kind's table in the SDK. A second table contains the slots of
# extension tables.
. "$WEFT_SOURCE/tests/common/shell.sh"
page=$WEFT_SOURCE/docs/plugin-slots.md

# "model create"
grep -o 'SLOT([a-z]*, [a-z_0-9]*)' "$WEFT_SOURCE/host/plugin/kinds.c" | sed 's/SLOT(//; s/)//; s/,//' | grep -v '^kind ' >asked
for header in "$WEFT_SOURCE"/sdk/include/weft/*.h; do
    awk '/^typedef struct weft_[a-z]*_plugin \{/ { kind = $3; sub(/^weft_/, "", kind); sub(/_plugin$/, "", kind) }
        /^\}/ { kind = "" }
        kind != "" && match($0, /\(\*[a-z_0-9]+\)\(/) { print kind, substr($0, RSTART + 2, RLENGTH - 4) }' "$header" >>asked
done
# The names in the second cell of "| model | `create`, ... |"; a row without a kind continues the one above.
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

# "weft_device_transfer take", for all slot tables in the SDK except those of kinds and of the host
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
