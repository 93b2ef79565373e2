#!/bin/sh
# weft plugins check with several files, of which one is not a plugin or rejects a given key: the others are
# still checked, results are printed, and each exit status is as documented in the help. ctest sets WEFT_BUILD
# and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
good=$WEFT_BUILD/plugins/weft-policy-block.so
other=$WEFT_BUILD/plugins/weft-policy-size.so
echo "no plugin" >junk.so

checks() { # checks STATUS ARGUMENT...: output is in printed and printed.err
    want=$1 status=0
    shift
    limit "$weft" plugins check "$@" >printed 2>printed.err || status=$?
    [ "$status" = "$want" ] || failed "weft plugins check $*: status $status, not $want" printed printed.err
}
holds() { # holds N: this number of rules is reported to hold
    [ "$(grep -Ec '^  R[0-9]+ +holds' printed)" = "$1" ] || failed "not $1 rules hold" printed
}
of_json() { # of_json EXPRESSION: in Python, for the array `files`
    python3 -c "import json; files = json.load(open('printed')); assert $1, files" 2>log || failed "not $1" printed log
}

# ---- not a plugin, at every position
for files in "junk.so $good $other" "$good junk.so $other" "$good $other junk.so"; do
    # shellcheck disable=SC2086 # words
    checks 1 $files --rule R26
    holds 2
    grep -qxF junk.so printed || failed "the file that is no plugin is not named in its place" printed
    grep -q '^  refused .*junk.so .*ELF' printed || failed "why it is none is not told in its place" printed
    grep -q '^weft plugins check: junk.so ' printed.err || failed "the file is not named on stderr" printed.err
    # shellcheck disable=SC2086
    checks 1 $files --rule R26 --json
    of_json 'len(files) == 3'
    of_json '[f["id"] for f in files if "id" in f] == ["block", "size"]'
    of_json 'all([r["verdict"] for r in f["rules"]] == ["holds"] and "refused" not in f for f in files if "id" in f)'
    of_json '[f["file"] for f in files if "id" not in f] == ["junk.so"]'
    of_json 'all("junk.so" in f["refused"] for f in files if "id" not in f)'
    grep -q '^weft plugins check: junk.so ' printed.err || failed "the file is not named on stderr" printed.err
done
checks 1 "$good" nowhere.so junk.so --rule R26
grep -qF '2 cannot be tested, with the reasons above: nowhere.so ' printed.err || failed "two files are not counted" printed.err
holds 1

# ---- a key that one plugin rejects and the next one accepts
checks 1 "$good" "$other" size=4096 --rule R26 --json
of_json 'len(files) == 2 and "has no key size" in files[0]["refused"] and files[0]["rules"] == []'
of_json '[r["verdict"] for r in files[1]["rules"]] == ["holds"]'
grep -q 'has no key size' printed.err || failed "the key is not named on stderr" printed.err

# ---- the other exit statuses, each with a plugin that causes it
mkdir plugins
ends() { # ends ID CODE: a policy that runs the code in `units`
    sed "s/\"whole\"/\"$1\"/; s/^#include <weft.*/&\n#include <stdlib.h>\n#include <unistd.h>/" \
        "$WEFT_SOURCE/plugins/policy/whole/whole.c" | awk -v code="$2" '{ print } /weft_error \*err\) \{/ { print code }' >"$1.c"
    build policy "$1" "${CC:-cc}" -O1 "$1.c" >log 2>&1 || failed "$1 does not compile" log
}
ends wrong 'if (job != NULL) return WEFT_OK;'
ends dies '*(volatile int *)8 = 1;'
ends waits 'for (;;) (void)sleep(1);'
checks 0 "$good" --rule R40
checks 2 "$good" --rule R999
checks 2
checks 10 plugins/weft-policy-wrong.so --rule R40
checks 11 plugins/weft-policy-dies.so --rule R40
checks 12 plugins/weft-policy-waits.so --rule R40 --seconds 0.5
checks 12 plugins/weft-policy-wrong.so plugins/weft-policy-waits.so plugins/weft-policy-dies.so --rule R40 --seconds 0.5
checks 13 "$WEFT_BUILD/plugins/weft-policy-class.so" "$good" --rule R26
checks 10 "$WEFT_BUILD/plugins/weft-policy-class.so" plugins/weft-policy-wrong.so
checks 1 plugins/weft-policy-wrong.so junk.so --rule R40
prints "$weft" plugins check --help
tr '\n' ' ' <printed >help # a status and its description may be on two lines
for status in 0 1 2 10 11 12 13; do
    grep -Eq "(^|[ :;,])$status [a-z]" help || failed "the help does not say what status $status is" printed
done
[ "$failures" = 0 ]
