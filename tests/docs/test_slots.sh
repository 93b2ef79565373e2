# The table of slots in docs/plugin-slots.md contains each slot of a kind's table in the SDK, in rows of its kind; the
# kernels of a device as WEFT_DEVICE_KERNELS, their workspace queries as WEFT_DEVICE_WORKSPACES. A second table contains
# the slots of extension tables.
. "$WEFT_SOURCE/tests/common/shell.sh"
page=$WEFT_SOURCE/docs/plugin-slots.md

# "model create"
awk '/^weft/ { kind = $1; sub(/^weft_/, "", kind); if (!sub(/_plugin$/, "", kind)) kind = "" }
    kind != "" && NF == 3 && $2 >= 8 { print kind, $1 }' "$WEFT_SOURCE/tests/sdk/layout.txt" >slots
sed -n 's/.*#define \(WEFT_DEVICE_[A-Z]*\)(X).*/\1/p; s/ X(\([a-z_]*\), weft_[a-z_]*)/\n\1\n/gp' "$WEFT_SOURCE/sdk/include/weft/device.h" |
    awk '/^WEFT/ { list = $1; print "device", list }
        /^[a-z]/ { print "device", $1 (list ~ /WORKSPACES/ ? "_workspace" : "") }' >listed
grep -vxFf listed slots >asked
grep WEFT listed >>asked
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

[ "$(wc -l <slots)" -gt 110 ] && [ "$(wc -l <listed)" -gt 35 ] || failed "few slots are found in the SDK" slots listed
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
