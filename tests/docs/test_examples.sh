#!/bin/sh
# Parses each INI example of the pages: an indented block with a [section] as first line other than comments.
# Settings that an example lacks, or has for another machine, are passed as overrides. docs.commands runs
# blocks with commands.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

take() { # take FILE...: writes the examples of pages to PAGE.N.ini
    awk '
    function flush() {
        if (n > 0 && is_ini && has_keys && !has_commands) {
            file = sprintf("%s.%d.ini", page, ++count)
            for (i = 1; i <= n; i++) print lines[i] >file
            close(file)
        }
        n = is_ini = has_keys = has_commands = decided = 0
    }
    FNR == 1 { flush(); page = FILENAME; gsub(/.*\//, "", page); count = 0 }
    /^    / {
        line = substr($0, 5)
        lines[++n] = line
        if (!decided && line !~ /^[#;]/) { decided = 1; is_ini = line ~ /^\[[a-z.]+\]/ }
        has_keys += line ~ /^[a-z_]+ *=/ # absent in a table of keys
        has_commands += line ~ /^(\$ |\.\.\.)/
        next
    }
    /^$/ && n > 0 { lines[++n] = ""; next }
    { flush() }
    END { flush() }' "$@"
}
reads() { # reads FILE: is a valid configuration; the plugin that the page calls `mine` may be missing
    awk '/^\[/ { is_mine = /\.mine\]/ } !is_mine' "$1" >example.conf
    "$weft" config explain example.conf model.path="$WEFT_SOURCE/configs/chess/base" model.plugin=llama model.start=fresh \
        data.path="$WEFT_SOURCE/configs/chess/train.txt" run.out=out >log 2>&1
}

take "$WEFT_SOURCE"/README.md "$WEFT_SOURCE"/docs/*.md "$WEFT_SOURCE"/docs/guide/*.md
n=0
for example in *.ini; do
    n=$((n + 1))
    reads "$example" || failed "$example is no configuration" log "$example"
done
[ "$n" -gt 12 ] || failed "only $n examples were found"

# A table pasted into an example is detected.
printf '    # a comment\n    [train]\n      steps   none   whole number\n    steps = 2\n' >broken.md
take broken.md
if reads broken.md.1.ini; then failed "a table of keys in an example is not seen" broken.md.1.ini; fi
[ "$failures" = 0 ]
