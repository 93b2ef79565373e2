#!/bin/sh
# Makes the manual page and the shells' completions from the program's own help.
#   configs/manual.sh <program weft> <directory>      writes weft.1, weft.bash and _weft
set -eu
weft=$1
out=$2
mkdir -p "$out"
help=$out/help.new
commands=$out/commands.new
trap 'rm -f "$help" "$commands"' EXIT

# "name<tab>summary" of each command, as `weft --help` lists them.
PATH=/nonexistent "$weft" --help | sed -n 's/^  \([a-z]\{1,\}\( [a-z]\{1,\}\)\{0,1\}\)  *\([A-Z].*\.\)$/\1\t\3/p' >"$commands"
cut -f 1 "$commands" | while read -r name; do
    # shellcheck disable=SC2086  # a name may have two words
    "$weft" $name --help | sed "s/^/$name\t/"
done >"$help"

{
    version=$("$weft" --version | cut -d ' ' -f 2)
    cat <<ROFF
.TH WEFT 1 "" "weft $version"
.SH NAME
weft \\- fine\\-tune language models with plugins
.SH SYNOPSIS
.B weft
\\fICOMMAND\\fR [\\fIrun.ini\\fR] [\\fIsection.key\\fR=\\fIvalue\\fR ...] [\\fI\\-\\-flags\\fR]
.SH DESCRIPTION
Weft fine\\-tunes language models. Models, data, optimizers, strategies and devices are plugins, selected in the INI file.
A program \\fBweft\\-NAME\\fR on the PATH is the command \\fBNAME\\fR.
.SH COMMANDS
ROFF
    awk -F '\t' '
        function roff(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); return text ~ /^[.\x27]/ ? "\\&" text : text }
        { line = $2 }
        function close_code() { if (in_code) print ".fi"; in_code = 0 }
        $1 != name { close_code(); name = $1; print ".SS \"weft " name "\"" }
        line ~ /^usage: / { print ".B " roff(substr(line, 8)); next }
        line ~ /^Examples:/ { print ".PP\nExamples:\n.nf"; in_code = 1; next }
        in_code { print roff(line); next }
        line ~ /^  --/ {
            line = substr(line, 3)
            n = match(line, /  +/) ? RSTART - 1 : length(line)
            print ".TP\n.B " roff(substr(line, 1, n))
            line = substr(line, n + 1)
        }
        line == "" { print ".PP"; next }
        { sub(/^ +/, "", line); if (line != "") print roff(line) }
        END { close_code() }' "$help"
    cat <<ROFF
.SH EXIT STATUS
0 success, 1 failure, 2 wrong usage, 10 to 22 a result of \\fBab\\fR or \\fBplugins check\\fR, 75 stopped by a signal after saving.
ROFF
} >"$out/weft.1"

# "name<tab>--flag --flag" of each command.
flags() { # flags FORMAT
    awk -F '\t' -v format="$1" '
        function row() { if (name != "") printf format "\n", name, list }
        $1 != name { row(); name = $1; list = "--help" }
        match($2, /^  --[a-z-]+/) { list = list " " substr($2, 3, RLENGTH - 2) }
        END { row() }' "$help"
}
first_words=$(cut -f 1 "$commands" | cut -d ' ' -f 1 | uniq | tr '\n' ' ')
groups=$(cut -f 1 "$commands" | awk 'NF == 2 { list[$1] = list[$1] " " $2 } END { for (name in list) print name list[name] }' | sort)
{
    cat <<BASH
# Completion of weft for bash.
_weft() {
    local current=\${COMP_WORDS[COMP_CWORD]} command=\${COMP_WORDS[1]} words=
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$first_words" -- "\$current")
        return
    fi
    case \$command in
BASH
    echo "$groups" | while read -r name words; do echo "    $name) words='$words' ;;"; done
    cat <<'BASH'
    esac
    if [[ -n $words ]]; then
        if ((COMP_CWORD == 2)); then
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
            return
        fi
        command="$command ${COMP_WORDS[2]}"
    fi
    case $command in
BASH
    flags "    '%s') words='%s' ;;"
    cat <<'BASH'
    *) words= ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -o filenames -F _weft weft
BASH
} >"$out/weft.bash"
{
    cat <<'ZSH'
#compdef weft
# Completion of weft for zsh.
local -a commands flags
local command=$words[2]
commands=(
ZSH
    awk -F '\t' -v quote="'" '$1 !~ / / { gsub(quote, quote "\\" quote quote, $2); print "    " quote $1 ":" $2 quote }' "$commands"
    echo "$groups" | while read -r name words; do echo "    '$name:$words'"; done
    cat <<'ZSH'
)
if ((CURRENT == 2)); then
    _describe command commands
    return
fi
case $command in
ZSH
    echo "$groups" | while read -r name words; do
        echo "$name)
    ((CURRENT == 3)) && { compadd $words; return }
    command=\"\$command \$words[3]\" ;;"
    done
    cat <<'ZSH'
esac
case $command in
ZSH
    flags "'%s') flags=(%s) ;;"
    cat <<'ZSH'
esac
if [[ $PREFIX == -* ]]; then
    compadd -- $flags
else
    _files
fi
ZSH
} >"$out/_weft"
