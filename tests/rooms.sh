#!/bin/sh
# Checks the layout of host/ against the table in docs/architecture.md, which lists its folders, lowest first.
#   tests/rooms.sh        prints lines and files of each folder, and each violated rule
# A file includes only headers of its own folder and of lower ones; a tool includes no other tool except
# tools/common. Includes have no cycles between files (x.c and x.h count as one). Every include exists. Sizes
# are within the budgets.
set -eu
cd "$(dirname "$0")/.."
# Lines and files of .c, .h and .def: all except tools/, tools/, and both.
exec awk -v core_lines=42000 -v tool_lines=24000 -v files=400 '
function complain(text) { print "rooms.sh: " text; failed = 1 }
function folder(path,   part) { # "run", "tools/ab"; files directly in host/ belong to the top folder
    sub(/^host\//, "", path)
    if (split(path, part, "/") == 1) return "command"
    return part[1] == "tools" ? part[1] "/" part[2] : part[1]
}
function is_tool(room) { return room ~ /^tools\// }
function stem(path) { sub(/\.[a-z]+$/, "", path); return path }

FILENAME == "docs/architecture.md" {
    if (/<!-- rooms -->/) listed = 1
    else if (/<!-- end of rooms -->/) listed = 0
    else if (listed && match($0, /^\| `[a-z\/]+`/)) {
        name[++n_rooms] = substr($0, 4, RLENGTH - 4)
        rank[name[n_rooms]] = n_rooms
    }
    next
}
FNR == 1 {
    room = folder(FILENAME)
    if (!(room in rank)) complain(FILENAME ": docs/architecture.md does not list the folder " room)
    exists[FILENAME] = 1
    stems[stem(FILENAME)] = 1
    n_files[room]++
}
{ n_lines[room]++ }
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    from[++n_edges] = FILENAME; into[n_edges] = "host/" part[2]; line[n_edges] = FNR
}
function may_include(a, b) {
    if (a == b) return 1
    if (is_tool(a)) return !is_tool(b) && b != "command" || b == "tools/common"
    return !is_tool(b) && rank[b] < rank[a]
}
function visit(file, depth,   i, n, next_files, j, text) { # depth first: an include of an open file closes a cycle
    state[file] = 1
    path[depth] = file
    n = split(edges[file], next_files, " ")
    for (i = 1; i <= n; i++) {
        if (state[next_files[i]] == 1) {
            text = next_files[i]
            for (j = depth; j > 0 && path[j] != next_files[i]; j--) text = path[j] " -> " text
            complain("a cycle: " next_files[i] " -> " text)
        } else if (state[next_files[i]] == 0) visit(next_files[i], depth + 1)
    }
    state[file] = 2
}
function hold(what, is, most) { if (is > most) complain(what ": " is ", at most " most " are allowed") }
END {
    for (i = 1; i <= n_edges; i++) {
        if (!(into[i] in exists)) complain(from[i] ":" line[i] ": includes " into[i] ", which does not exist")
        else if (!may_include(folder(from[i]), folder(into[i])))
            complain(from[i] ":" line[i] ": " folder(from[i]) " must not include " into[i])
        if (stem(from[i]) != stem(into[i])) edges[stem(from[i])] = edges[stem(from[i])] " " stem(into[i])
    }
    for (file in stems) if (state[file] == 0) visit(file, 1)
    for (i = 1; i <= n_rooms; i++) {
        printf "%-14s %6d lines %4d files\n", name[i], n_lines[name[i]], n_files[name[i]]
        if (is_tool(name[i])) tools += n_lines[name[i]]
        else core += n_lines[name[i]]
        all += n_files[name[i]]
    }
    printf "%-14s %6d lines\n%-14s %6d lines\n%-14s %6d files\n", "core", core, "tools", tools, "host", all
    hold("lines of the core", core, core_lines)
    hold("lines of the tools", tools, tool_lines)
    hold("files of host/", all, files)
    exit failed
}' docs/architecture.md $(find host -name '*.[ch]' -o -name '*.def' | sort)
