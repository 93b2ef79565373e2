# read_headers.awk: extracts the binary interface from the text of the SDK's headers, one item per line:
#
#   struct NAME grows|fixed              grows: starts with uint32_t struct_size
#   field STRUCT NAME DECLARATION        in order; the declaration without comments, with single blanks
#   constant NAME                        of an enum
#   define NAME TEXT                     an object-like macro with a number or a string
#   type NAME DECLARATION                the type of a function: of the entry, and of slots that share one
#   note NAME TEXT                       text that macros write into a file's note
#   code HEADER:NAME TEXT                an inline function, contained in every binary
#
# It parses only the headers' style (typedef struct NAME { ... } NAME; enum { A = 1, ... };).
# tests/sdk/test_layout.py detects structs in another style.

function squeeze(text) { gsub(/[ \t\n]+/, " ", text); sub(/^ /, "", text); sub(/ $/, "", text); return text }

function flush_field(text,    at, name, parts, n, i, depth, c, piece, base) {
    text = squeeze(text)
    if (text == "") return
    if (match(text, /\(\*[A-Za-z_0-9]+\)/)) { # a slot
        print "field " owner " " substr(text, RSTART + 2, RLENGTH - 3) " " text
        return
    }
    n = split(text, parts, ",") # "double a, b" and "float x[4]"; plain fields have no other comma
    base = parts[1]
    sub(/[*]*[A-Za-z_0-9]+(\[[^\]]*\])*$/, "", base)
    for (i = 1; i <= n; i++) {
        piece = squeeze(parts[i])
        if (i > 1) piece = squeeze(base) " " piece
        name = piece
        gsub(/\[[^\]]*\]/, "", name)
        sub(/^.*[^A-Za-z_0-9]/, "", name)
        print "field " owner " " name " " piece
    }
}

function flush_constant(text) {
    text = squeeze(text)
    sub(/[ =].*$/, "", text)
    if (text != "") print "constant " text
}

{
    line = $0
    # comments: the headers have no strings with comment markers
    while (1) {
        if (in_comment) {
            if (!match(line, /\*\//)) { line = ""; break }
            line = substr(line, RSTART + 2)
            in_comment = 0
        }
        if (!match(line, /\/\*/)) break
        head = substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + 2)
        if (match(line, /\*\//)) { line = head " " substr(line, RSTART + 2); continue }
        in_comment = 1
        line = head
        break
    }
}
in_note {
    in_note = line ~ /\\$/
    sub(/\\$/, "", line)
    text = text " " line
    if (!in_note) print "note " name " " squeeze(text)
    next
}
in_code || (!inside && line ~ /^static inline /) {
    code = in_code ? code " " line : line
    in_code = line !~ /^\}/ && !(line ~ /;[ \t]*$/ && code !~ /\{/) # until its end, or the end of a declaration
    if (!in_code && code ~ /\{/) {
        name = code
        sub(/\(.*$/, "", name)
        sub(/^.*[^A-Za-z_0-9]/, "", name)
        header = FILENAME
        sub(/^.*\//, "", header)
        print "code " header ":" name " " squeeze(code)
    }
    next
}
line ~ /^#define WEFT_NOTE(_PLUGIN)?[( ]/ {
    name = text = line
    sub(/^#define /, "", name)
    sub(/[( ].*$/, "", name)
    sub(/^#define [A-Z_]+/, "", text)
    in_note = line ~ /\\$/
    sub(/\\$/, "", text)
    text = squeeze(text)
    if (!in_note) print "note " name " " text
    next
}
in_type || (!inside && line ~ /^typedef [^{]*[a-z0-9_]\(/) {
    type = in_type ? type " " line : line
    in_type = type !~ /;/
    if (!in_type) {
        name = type
        sub(/\(.*$/, "", name)
        sub(/^.*[^a-z0-9_]/, "", name)
        print "type " name " " squeeze(type)
    }
    next
}
continued { continued = line ~ /\\$/; next }
line ~ /^#define [A-Z0-9_]+ +("[^"\\]*"|[-(]*[0-9][0-9a-fxuULl)]*)[ \t]*$/ {
    text = line
    sub(/^#define /, "", text)
    name = text
    sub(/ .*$/, "", name)
    sub(/^[A-Z0-9_]+ +/, "", text)
    print "define " name " " squeeze(text)
    next
}
line ~ /^#/ { continued = line ~ /\\$/; next }
!inside && line ~ /^(typedef )?struct [a-z0-9_]+ \{$/ {
    owner = line
    sub(/^(typedef )?struct /, "", owner)
    sub(/ .*$/, "", owner)
    inside = 1; first = 1; pending = ""
    next
}
!inside && line ~ /^(typedef )?enum[ a-z0-9_]* \{/ {
    inside = 2
    pending = line
    sub(/^[^{]*\{/, "", pending)
    line = ""
}
inside == 1 && line ~ /^\}/ { inside = 0; next }
inside == 1 {
    pending = pending " " line
    while ((at = index(pending, ";")) > 0) {
        text = substr(pending, 1, at - 1)
        if (first) print "struct " owner " " (squeeze(text) == "uint32_t struct_size" ? "grows" : "fixed")
        first = 0
        flush_field(text)
        pending = substr(pending, at + 1)
    }
}
inside == 2 {
    pending = pending " " line
    if ((at = index(pending, "}")) > 0) {
        n = split(substr(pending, 1, at - 1), parts, ",")
        for (i = 1; i <= n; i++) flush_constant(parts[i])
        inside = 0
    }
}
