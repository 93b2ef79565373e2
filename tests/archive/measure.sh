#!/bin/sh
# Prints the binary interface of a set of the SDK's headers: sizes, offsets, declarations, values.
#   measure.sh HEADERS     directory that contains weft/; one item per line of stdout:
#       struct NAME grows|fixed SIZE
#       field STRUCT.NAME OFFSET SIZE DECLARATION
#       constant NAME VALUE
#       define NAME TEXT
#       type NAME DECLARATION
#       note NAME TEXT
#       code HEADER:NAME TEXT      an inline function, contained in every binary
# CC is the compiler, cc by default.
set -eu
headers=$1 here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
[ -e "$headers/weft/plugin.h" ] || { echo "measure.sh: $headers/weft has no headers of the SDK" >&2; exit 2; }
for header in "$headers"/weft/*.h; do awk -f "$here/read_headers.awk" "$header"; done >"$scratch/found"
{
    for header in "$headers"/weft/*.h; do echo "#include <weft/${header##*/}>"; done
    printf '#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n'
    awk '
        $1 == "struct" { printf "printf(\"struct %s %s %%zu\\n\", sizeof(%s));\n", $2, $3, $2 }
        $1 == "field" {
            text = $0
            sub(/^field [^ ]+ [^ ]+ /, "", text)
            printf "printf(\"field %s.%s %%zu %%zu %s\\n\", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n",
                $2, $3, text, $2, $3, $2, $3
        }
        $1 == "constant" { printf "printf(\"constant %s %%lld\\n\", (long long)%s);\n", $2, $2 }
        $1 == "define" || $1 == "type" || $1 == "note" || $1 == "code" { text = $0; gsub(/\\/, "\\\\\\\\", text); gsub(/"/, "\\\"", text); printf "printf(\"%%s\\n\", \"%s\");\n", text }
    ' "$scratch/found"
    printf 'return 0;\n}\n'
} >"$scratch/measure.c"
"${CC:-cc}" -std=c11 -w -I"$headers" "$scratch/measure.c" -o "$scratch/measure" 2>"$scratch/said" || {
    head -n 5 "$scratch/said" >&2
    echo "measure.sh: ${CC:-cc} cannot compile the headers of $headers/weft; above are its first words" >&2
    exit 2
}
"$scratch/measure"
