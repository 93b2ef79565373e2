#!/bin/sh
# Each public header compiles on its own as C11, C17 and C++17, without warnings and implicit padding, and so
# do the examples in its comments. Functions have thread tags. A plugin in C++ has the same two exports. One
# source builds both a loadable and a static plugin. A false SDK version does not compile.
set -eu
source=${WEFT_SOURCE:?the source directory}
include="-I$source/sdk/include"
strict="-Wall -Wextra -pedantic -Wshadow -Wpadded -Werror"
cc=${CC:-cc}
cxx=${CXX:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

# Each function of a table has a thread tag: in the comment after it, in the one above it and its neighbours,
# or, for tables with "All [main]", in the table's comment.
awk 'function tagged(text) { return text ~ /\[(any-thread|main|worker)\]/ }
     FNR == 1 { above = "" }
     /^ *\/\*/ { above = ""; inside = 1 }
     inside { above = above $0; if (/\*\//) inside = 0; next }
     /^typedef struct/ { all = above ~ /All \[/ && tagged(above); above = "" }
     /^}/ { above = ""; all = 0 }
     /^    [^(]*\(\*[a-z_]+\)\(/ { call = $0; while (call !~ /;/ && (getline more) > 0) call = call more
         if (!all && !tagged(call) && !tagged(above)) { print FILENAME ": without a thread: " call; bad = 1 } n++ }
     END { if (n < 90) { print n " functions were found"; bad = 1 } exit bad }' "$source"/sdk/include/weft/*.h ||
    fail "functions without a thread tag"
echo "every function of a table says on which thread it may be called"

# Kind versions in the documents equal the host's.
versions=$(grep -o 'KIND([a-z]*, [0-9][0-9]*)' "$source/host/plugin/kinds.c" | sed 's/KIND(\(.*\), \(.*\))/\1\/\2/')
[ "$(echo $versions | wc -w)" = 9 ] || fail "the host's kinds were not found: $versions"
for version in $versions; do
    grep -q "^| R8 .*\`$version\`" "$source/docs/sdk-rules.md" || fail "sdk-rules.md does not say $version"
    grep -Eq "^- \*\*Each kind .*[ ,]${version%/*}[ ,].* at ${version#*/}\." "$source/docs/abi.md" || fail "abi.md does not say $version"
done
echo "the documents say the versions of the kinds"

# Each struct that a plugin receives or fills is in the list of structs tested in a longer form, or of
# untested ones.
tries=$(sed -n '/^## Rules that test each struct/,/^`tests/p' "$source/docs/abi.md")
given=$(awk -F'|' '/^\| (request|view|table|answer) \|/ { print $4; if ($2 == " answer ") print $5 }' "$source/docs/abi.md" |
    grep -oE '`(weft_[a-z0-9_]*|WEFT_DEVICE_KERNELS)`')
[ "$(echo "$given" | wc -l)" -ge 40 ] || fail "abi.md does not say what plugins are given: $given"
for struct in $given; do
    echo "$tries" | grep -qF "$struct" || fail "abi.md does not say which rule tries $struct"
done
echo "abi.md says of each struct that a plugin is given or fills which rule tries it"

n=0
for header in "$source"/sdk/include/weft/*.h; do
    name=$(basename "$header")
    printf '#include <weft/%s>\n#include <weft/%s>\n' "$name" "$name" > "$work/one.c"
    cp "$work/one.c" "$work/one.cpp"
    $cc -std=c11 $strict -Wconversion $include -fsyntax-only "$work/one.c" || fail "$name as C11"
    $cc -std=c17 $strict -Wconversion $include -fsyntax-only "$work/one.c" || fail "$name as C17"
    $cxx -std=c++17 $strict $include -fsyntax-only "$work/one.cpp" || fail "$name as C++17"
    n=$((n + 1))
done
[ "$n" -ge 14 ] || fail "only $n headers were found"
echo "$n headers compile alone as C11, C17 and C++17"

# The examples in the headers' comments, joined to one source, must compile.
example() { # example HEADER PATTERN: its indented lines, from the first match on
    sed -n "/^ \*     $2/,/^ \*\$/s/^ \*     //p" "$source/sdk/include/weft/$1.h" | grep . || fail "$1.h has no example"
}
{
    echo '#include <weft/model.h>'
    echo '#include <weft/policy.h>'
    example keys '#define LION_KEYS'
    example optimizer WEFT_HP
    example optimizer WEFT_ELEMENTWISE
    echo 'static weft_optimizer_plugin lion_table;'
    example plugin WEFT_PLUGIN
    echo 'const char *use(void);'
    echo 'const char *use(void) { return lion_update.cpu != NULL ? lion_hp_fields : NULL; }'
    echo 'typedef struct block { weft_weight *norm, *q_proj; } block;'
    units='weft_status units(const weft_policy_job *job, const weft_wrap *wrap)'
    echo "$units; $units { uint32_t i;"
    example policy 'for (i = 0'
    echo '}'
    signature='weft_value forward(const weft_ops *ops, weft_graph *g, weft_value x, const block *layer, double eps)'
    echo "$signature; $signature {"
    example ops 'weft_value h'
    echo '    return y; }'
} > "$work/examples.c"
cp "$work/examples.c" "$work/examples.cpp"
$cc -std=c11 $strict -Wconversion $include -fsyntax-only "$work/examples.c" || fail "the headers' examples as C11"
$cxx -std=c++17 $strict $include -fsyntax-only "$work/examples.cpp" || fail "the headers' examples as C++17"
echo "the examples in the headers compile"

exports() {
    nm -D --defined-only "$1" | awk '{print $3}' | sort | tr '\n' ' '
}

shared="-O2 -fPIC -shared -fvisibility=hidden -Wl,--version-script=$source/sdk/cmake/weft-plugin.map"
$cxx -std=c++17 -Wall -Wextra -pedantic -Werror $include $shared "$source/tests/sdk/policy.cpp" -o "$work/policy.so" ||
    fail "a plugin in C++17"
[ "$(exports "$work/policy.so")" = "weft_plugin_entry weft_plugin_note " ] ||
    fail "exports: $(exports "$work/policy.so")"
echo "a plugin in C++ exports the two names and no other"

for id in sgd adamw; do
    $cc -std=c11 $strict $include -O2 -DWEFT_STATIC=$id -c "$source/plugins/optimizer/$id/$id.c" -o "$work/$id.o" ||
        fail "$id as a static plugin"
done
$cc -std=c11 $strict $include "$source/tests/sdk/static.c" "$work/sgd.o" "$work/adamw.o" -lm -o "$work/static" ||
    fail "two static plugins in one program"
[ "$("$work/static")" = "sgd adamw" ] || fail "static plugins: $("$work/static")"
echo "two plugins stand in one program"

printf '#define WEFT_MIN_SDK WEFT_SDK(%s)\n#include <weft/plugin.h>\n' "1, 0" > "$work/true.c"
printf '#define WEFT_MIN_SDK WEFT_SDK(%s)\n#include <weft/plugin.h>\n' "1, 7" > "$work/false.c"
$cc -std=c11 $include -fsyntax-only "$work/true.c" || fail "WEFT_MIN_SDK of SDK 1.0"
if $cc -std=c11 $include -fsyntax-only "$work/false.c" 2> "$work/said"; then
    fail "a WEFT_MIN_SDK that does not exist compiles"
fi
grep -q "WEFT_MIN_SDK names an SDK that does not exist" "$work/said" || fail "another message: $(cat "$work/said")"
echo "a false WEFT_MIN_SDK does not compile"
