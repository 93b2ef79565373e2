# The table of docs/guide/coming-from.md agrees with the program's answers (host/config/foreign_names.def).
# Names unknown to the program are Weft's own. Each key in the first column exists.
. "$WEFT_SOURCE/tests/common/shell.sh"
page=$WEFT_SOURCE/docs/guide/coming-from.md

# "learning_rate optimizer.lr"; for a flag "num_processes --ranks"
sed -n 's/^FOREIGN("\([^"]*\)", "\([^"]*\)", "\([^"]*\)".*/\2.\3 \1/p' "$WEFT_SOURCE/host/config/foreign_names.def" |
    awk '{ sub(/^\.--/, "--"); for (i = 2; i <= NF; i++) print $i, $1 }' >known
# The same from the page: the first cell of a row is "`[optimizer] lr`" or "`--ranks`".
awk -F '|' '/^\| `/ {
    weft = $2
    gsub(/[`\[ ]/, "", weft)
    sub(/\]/, ".", weft)
    for (cell = 3; cell < NF; cell++) {
        n = split($cell, names, /`/)
        for (i = 2; i <= n; i += 2) print names[i], weft
    }
}' "$page" | sort -u >said

[ "$(wc -l <said)" -gt 40 ] || failed "the page has only $(wc -l <said) names"
while read -r name key; do
    if grep -q "^$name " known; then
        grep -qx -- "$name $key" known || failed "$page: $name stands for $key, and the program says $(grep "^$name " known)"
    else
        [ "${key#*.}" = "$name" ] || failed "$page: $name is no name of $key, nor does the program know it"
    fi
done <said

"$weft" config describe >keys
for plugin in optimizer:adamw data:text; do "$weft" plugins describe $plugin; done >>keys
cut -d ' ' -f 2 said | sort -u | while read -r key; do
    case $key in
    --*) "$weft" train --help | grep -q -- " $key" || "$weft" generate --help | grep -q -- " $key" || echo "$key" ;;
    *.plugin) ;;
    *) grep -q "^  ${key#*.} " keys || echo "$key" ;;
    esac
done >missing
[ ! -s missing ] || failed "keys that the page names and the program does not have" missing
[ "$failures" = 0 ]
