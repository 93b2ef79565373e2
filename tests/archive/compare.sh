#!/bin/sh
# Compares two sets of the SDK's headers: changes that break a plugin built with the first in a host of the
# second.
#   compare.sh OLD NEW     directories that contain weft/, or files written by measure.sh
# Lines of stdout:
#   breaks   ...           a binary of OLD would be read or called incorrectly
#   adds     ...           grew at its end, or is new: binaries of OLD still work
#   carries  ...           an inline helper has changed: binaries of OLD contain the old one and still work. Helpers with
#                          results that all parties must compute identically break (random.h, blocks.h, dynamic8.h,
#                          ops.h, optimizer.h, and type sizes in base.h)
# Exit status: 0 no break, 1 a break, 2 a set cannot be read.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
measured() { # measured SET FILE
    if [ -d "$1" ]; then sh "$here/measure.sh" "$1" >"$2" || exit 2
    elif [ -r "$1" ] && grep -q '^struct weft_plugin grows ' "$1" && grep -q '^type weft_plugin_entry_fn ' "$1"; then cp "$1" "$2"
    else echo "compare.sh: $1 is neither a directory of headers nor a file that measure.sh has written" >&2; exit 2
    fi
}
[ $# = 2 ] || { echo "usage: compare.sh OLD NEW, directories that hold weft/, or files that measure.sh has written" >&2; exit 2; }
measured "$1" "$scratch/old"
measured "$2" "$scratch/new"
awk '
function breaks(text) { print "breaks   " text; broken = 1 }
function adds(text) { print "adds     " text }
function carries(text) { print "carries  " text }
function is_shared(name) { return name ~ /^(random|blocks|dynamic8|ops|optimizer)\.h:|^base\.h:weft_dtype_/ }
function rest(n,    text, i) { text = $0; for (i = 0; i < n; i++) sub(/^[^ ]+ /, "", text); return text }
function owner(name) { sub(/\..*/, "", name); return name }

NR == FNR {
    if ($1 == "struct") { old_struct[$2] = $3; old_size[$2] = $4; order[++n] = "struct " $2 }
    if ($1 == "field") { old_at[$2] = $3; old_bytes[$2] = $4; old_text[$2] = rest(4); order[++n] = "field " $2 }
    if ($1 == "constant") { old_value[$2] = $3; order[++n] = "constant " $2 }
    if ($1 == "define") { old_define[$2] = rest(2); order[++n] = "define " $2 }
    if ($1 == "type" || $1 == "note" || $1 == "code") { old_text[$1 " " $2] = rest(2); order[++n] = $1 " " $2 }
    next
}
$1 == "struct" {
    new_struct[$2] = $3; new_size[$2] = $4
    if (!($2 in old_struct)) adds("struct " $2)
}
$1 == "field" {
    new_at[$2] = $3; new_bytes[$2] = $4; new_text[$2] = rest(4)
    if (!($2 in old_at) && owner($2) in old_struct) {
        if (old_struct[owner($2)] == "fixed")
            breaks($2 " is new in a struct that is passed by value or in arrays, and so never grows")
        else if ($3 < old_size[owner($2)]) breaks($2 " is new at " $3 ", within the " old_size[owner($2)] " bytes that there were")
        else adds($2)
    }
}
$1 == "constant" { new_value[$2] = $3; if (!($2 in old_value)) adds("constant " $2 " = " $3) }
$1 == "define" { new_define[$2] = rest(2); if (!($2 in old_define)) adds("define " $2 " " rest(2)) }
$1 == "type" || $1 == "note" || $1 == "code" { new_text[$1 " " $2] = rest(2); if (!(($1 " " $2) in old_text)) adds($1 " " $2) }
END {
    for (i = 1; i <= n; i++) {
        split(order[i], part, " ")
        name = part[2]
        if (part[1] == "struct") {
            if (!(name in new_struct)) breaks("struct " name " is gone")
            else if (old_struct[name] != new_struct[name]) breaks("struct " name " " (old_struct[name] == "grows" ? "has lost" : "has got") " its struct_size")
            else if (new_size[name] < old_size[name]) breaks("struct " name " shrinks from " old_size[name] " to " new_size[name] " bytes")
        } else if (part[1] == "field") {
            if (!(owner(name) in new_struct)) continue
            if (!(name in new_at)) breaks(name " is gone, which was at " old_at[name])
            else if (new_at[name] != old_at[name]) breaks(name " moves from " old_at[name] " to " new_at[name])
            else if (new_bytes[name] != old_bytes[name]) breaks(name " is of " new_bytes[name] " bytes, and was of " old_bytes[name])
            else if (new_text[name] != old_text[name]) breaks(name " is declared otherwise: " old_text[name] " -> " new_text[name])
        } else if (part[1] == "constant") {
            if (!(name in new_value)) breaks("constant " name " is gone, which was " old_value[name])
            else if (new_value[name] != old_value[name]) breaks("constant " name " is " new_value[name] ", and was " old_value[name])
        } else if (part[1] == "code") {
            if (!(order[i] in new_text)) carries(name " is gone")
            else if (new_text[order[i]] == old_text[order[i]]) continue
            else if (is_shared(name)) breaks(name " computes otherwise, and a binary carries what it was built with")
            else carries(name " is written otherwise")
        } else if (part[1] == "type" || part[1] == "note") {
            if (!(order[i] in new_text)) breaks(order[i] " is gone, which was " old_text[order[i]])
            else if (new_text[order[i]] != old_text[order[i]])
                breaks(order[i] " is declared otherwise: " old_text[order[i]] " -> " new_text[order[i]])
        } else {
            if (!(name in new_define)) breaks("define " name " is gone, which was " old_define[name])
            else if (new_define[name] != old_define[name]) breaks("define " name " is " new_define[name] ", and was " old_define[name])
        }
    }
    exit broken
}' "$scratch/old" "$scratch/new"
