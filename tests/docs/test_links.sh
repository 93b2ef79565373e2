# Every relative link of README.md, docs/ and configs/ leads to an existing file, and every #anchor to one of
# its headings. With WEFT_INSTALLED=PREFIX: those of the installed docs/ and configs/.
. "$WEFT_SOURCE/tests/common/shell.sh"
cd "${WEFT_INSTALLED:-$WEFT_SOURCE}"
pages="README.md docs/*.md docs/*/*.md configs/*/*.md"
[ -z "${WEFT_INSTALLED:-}" ] || pages="share/doc/weft/*.md share/doc/weft/*/*.md share/weft/configs/*/*.md"

anchors() { # anchors FILE: anchors of its headings, as generated for Markdown
    sed -n 's/^##* //p' "$1" | awk '{
        line = tolower($0)
        gsub(/`/, "", line)
        gsub(/[^a-z0-9 _-]/, "", line)
        gsub(/ /, "-", line)
        if (n[line]++) line = line "-" (n[line] - 1)
        print line
    }'
}
links() { # links FILE: all link targets, except in indented blocks and on the web
    grep -v '^    ' "$1" | grep -o '\](\([^)]*\))' | sed 's/^](//; s/)$//' | grep -v '^[a-z]*://' || :
}

n=0
for page in $pages; do
    for link in $(links "$page"); do
        n=$((n + 1))
        file=${link%%#*}
        target=$(dirname "$page")/$file
        [ -n "$file" ] || target=$page
        [ -e "$target" ] || { failed "$page: $link leads nowhere"; continue; }
        case $link in
        *'#'*) anchors "$target" | grep -qxF -- "${link#*#}" || failed "$page: $link has no such heading" ;;
        esac
    done
done
# Source tree only: each `host/...` path and each function weft_... of the pages exists.
if [ -z "${WEFT_INSTALLED:-}" ]; then
    for path in $(cat $pages | grep -oE '`(host|sdk|plugins|tests|configs)/[A-Za-z0-9_./-]+`' | tr -d '`' | sort -u); do
        [ -e "$path" ] || failed "a page names $path, which does not exist"
    done
    for name in $(cat $pages | grep -oE '\bweft_[a-z0-9_]+' | sort -u); do
        grep -rqwF --include='*.[chm]*' -- "$name" host sdk plugins || failed "a page names $name, which does not exist"
    done
fi
[ "$n" -gt 20 ] || failed "only $n links were found"
[ "$failures" = 0 ]
