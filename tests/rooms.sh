#!/bin/sh
# The rooms of host/: which folder may include which, as docs/architecture.md lists them, lowest first.
#   tests/rooms.sh        says what breaks the order
# A file includes only what lies in its own folder or in a lower one; no files need each other in a circle, x.c and x.h
# taken as one; no two files share a name; every include exists; and a folder is one that can be kept in mind.
set -eu
cd "$(dirname "$0")/.."
exec awk -v most=26 '
function complain(text) { print "rooms.sh: " text; failed = 1 }
function folder(path) { sub(/^host\//, "", path); sub(/\/.*/, "", path); return path }
function base(path) { sub(/.*\//, "", path); return path }
function stem(path) { sub(/\.[ch]$/, "", path); return path }

# The list between the two marks of the page: | `base` | what it holds |
FILENAME == "docs/architecture.md" {
    if (/<!-- rooms -->/) listed = 1
    else if (/<!-- end of rooms -->/) listed = 0
    else if (listed && match($0, /^\| `[a-z]+`/)) rank[substr($0, 4, RLENGTH - 4)] = ++n_rooms
    next
}
FNR == 1 {
    if (n_rooms == 0) { complain("docs/architecture.md lists no rooms"); exit }
    room = folder(FILENAME)
    if (!(room in rank)) complain(FILENAME ": docs/architecture.md does not list the folder " room)
    name = base(FILENAME)
    if (name in owner) complain(FILENAME ": " owner[name] " has the same name")
    owner[name] = FILENAME
    exists[FILENAME] = 1
    stems[stem(FILENAME)] = 1
    if (FILENAME ~ /\.c$/ && ++sources[room] == most + 1)
        complain("host/" room " has more than " most " .c files: give some of them a room of their own")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    to = "host/" part[2]
    from[++n_edges] = FILENAME; into[n_edges] = to; line[n_edges] = FNR
}
# Depth first: an include that leads to what is still open closes a circle.
function visit(file, depth,   i, n, next_files, j, text) {
    state[file] = 1
    path[depth] = file
    n = split(edges[file], next_files, " ")
    for (i = 1; i <= n; i++) {
        if (state[next_files[i]] == 1) {
            text = next_files[i]
            for (j = depth; j > 0 && path[j] != next_files[i]; j--) text = path[j] " -> " text
            complain("a circle: " next_files[i] " -> " text)
        } else if (state[next_files[i]] == 0) visit(next_files[i], depth + 1)
    }
    state[file] = 2
}
END {
    for (i = 1; i <= n_edges; i++) {
        if (into[i] ~ /\.h$/ && !(into[i] in exists)) complain(from[i] ":" line[i] ": includes " into[i] ", which does not exist")
        else if (rank[folder(into[i])] > rank[folder(from[i])])
            complain(from[i] ":" line[i] ": " folder(from[i]) " stands below " folder(into[i]) ", so it must not include " into[i])
        if (stem(from[i]) != stem(into[i])) edges[stem(from[i])] = edges[stem(from[i])] " " stem(into[i])
    }
    for (file in stems) if (state[file] == 0) visit(file, 1)
    exit failed
}
' docs/architecture.md $(git ls-files 'host/*/*.c' 'host/*/*.h')
