# take_steps.awk: what a page asks its reader to do, as files in the directory `into`, in the order of the page:
#
#   N.file   an indented block, or what follows a blank line of one, that begins with "# NAME.EXTENSION" alone is a file to
#            be written; N.name is its name. C begins with "/* NAME.c: ...", which is a part of the file: as a whole it may be
#            pasted
#   N.cmd    an indented line "$ COMMAND" is to be run; what follows it in the block, up to the next "$", is N.shown,
#            and so is a later block that begins with "..."
#
# A page needs no further marks: this is how its blocks are read by people, too.

function end_step() { if (out != "") close(out); out = "" }
function new_step() { end_step(); n++; return sprintf("%s/%03d", into, n) }

!/^    / && !/^$/ { in_block = 0; end_step(); next }
/^$/ { blanks++; next } # of a file, if the block goes on behind it
{
    line = substr($0, 5)
    if ((!in_block || blanks > 0) && line ~ /^# [A-Za-z0-9_.\/-]+\.[a-z]+$/) {
        step = new_step()
        print substr(line, 3) >(step ".name")
        close(step ".name")
        out = step ".file"
    } else if ((!in_block || blanks > 0) && line ~ /^\/\* [A-Za-z0-9_.\/-]+\.c: /) {
        step = new_step()
        name = substr(line, 4)
        sub(/: .*/, "", name)
        print name >(step ".name")
        close(step ".name")
        out = step ".file"
        print line >out
    } else if (line ~ /^\$ /) {
        step = new_step()
        print substr(line, 3) >(step ".cmd")
        close(step ".cmd")
        out = shown = step ".shown"
    } else if (!in_block && line == "...") {
        out = shown
    } else if (out != "") {
        for (; out ~ /file$/ && blanks > 0 && in_block; blanks--) print "" >>out
        print line >>out
    }
    in_block = 1
    blanks = 0
}
