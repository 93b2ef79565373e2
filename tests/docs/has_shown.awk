# has_shown.awk SHOWN REAL: holds that what a page shows is what the program says. A line of SHOWN has to be a part of a line
# of REAL, with any number in the place of a number and any time in the place of a time; where it has "..." something may
# be missing. What it is not is printed, and the status is 1. Lines of REAL that are not shown are the page's affair.

function plain(line) {
    sub(/^device .*/, "device", line)                       # the machine's own
    gsub(/\/home\/you\/weft/, "PLACE", line)
    gsub(/[0-9]+(,[0-9][0-9][0-9])*(\.[0-9]+)?(e[-+]?[0-9]+)?k?/, "#", line)
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
