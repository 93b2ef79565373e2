# take_steps.awk: extracts the steps of a page as files in the directory `into`, in order:
#
#   N.file   a file to write: an indented block, or a part of it after a blank line, that starts with only
#            "# NAME.EXTENSION"; N.name is its name. C starts with "/* NAME.c: ...", which belongs to the file, so that
#            the block can be pasted
#   N.cmd    a command to run: an indented line "$ COMMAND"; the rest of the block up to the next "$" is N.shown,
#            and so is a later block that starts with "..."
#
# Pages need no other markup; readers understand the blocks in the same way.

function end_step() { if (out != "") close(out); out = "" }
function new_step() { end_step(); n++; return sprintf("%s/%03d", into, n) }

!/^    / && !/^$/ { in_block = 0; end_step(); next }
/^$/ { blanks++; next } # blank lines of a file, if the block continues after them
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
