# has_shown.awk SHOWN REAL: checks that a page shows the program's real output. A line of SHOWN must be part
# of a line of REAL. Numbers match any number, except exit statuses, and times any time; "..." matches any
# omission. Prints mismatches and exits with 1. REAL may have further lines.

function plain(line,    status) {
    sub(/^device .*/, "device", line)                       # depends on the machine
    gsub(/\/home\/you\/weft/, "PLACE", line)
    status = match(line, /exit status [0-9]+/) ? substr(line, RSTART, RLENGTH) "!" : "" # no prefix of another
    gsub(/[0-9]+(,[0-9][0-9][0-9])*(\.[0-9]+)?(e[-+]?[0-9]+)?k?/, "#", line)
    sub(/exit status #/, status, line)
    gsub(/# (KiB|MiB|GiB|B)([^A-Za-z]|$)/, "# MEMORY ", line)
    gsub(/# (us|ms|s|min|h)([^A-Za-z]|$)/, "# TIME ", line)
    gsub(/(# TIME )+/, "# TIME ", line)
    gsub(/[━─█▇▆▅▄▃▂▁]+/, "BAR", line)
    gsub(/[ \t]+/, " ", line)
    gsub(/^ | $/, "", line)
    return line
}
function is_in(shown, line,    parts, n, i, at) {
    n = split(shown, parts, /\.\.\./)
    for (i = 1; i <= n; i++) {
        gsub(/^ +| +$/, "", parts[i])
        at = index(line, parts[i])
        if (parts[i] != "" && at == 0) return 0
        if (parts[i] != "") line = substr(line, at + length(parts[i]))
    }
    return 1
}

FILENAME == real { said[++n_said] = plain($0); next }
{ wanted[++n_wanted] = plain($0); whole[n_wanted] = $0 }
END {
    for (w = 1; w <= n_wanted; w++) {
        found = 0
        for (i = 1; i <= n_said && !found; i++) found = is_in(wanted[w], said[i])
        if (!found) { print "is shown, and not said: " whole[w]; bad = 1 }
    }
    exit bad
}
