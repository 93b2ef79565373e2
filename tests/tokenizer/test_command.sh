#!/bin/sh
# `weft tokenize`: text to ids and back, and wrong usage. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
sp=$WEFT_SOURCE/tests/golden/tokenizer/sp-bpe
gpt2=$WEFT_SOURCE/tests/golden/tokenizer/gpt2-style

same() { # same NAME EXPECTED FOUND
    [ "$2" = "$3" ] || failed "$1: expected \"$2\", found \"$3\""
}
gives() { # gives NAME EXPECTED command...: it succeeds, of what stands in input
    name=$1 wanted=$2
    shift 2
    prints "$@" <input
    same "$name" "$wanted" "$(cat printed)"
}
refuses() { # refuses NAME STATUS TEXT arguments...: nothing on stdout, a sentence with the text on stderr
    name=$1 wanted=$2 text=$3
    shift 3
    status=0
    "$weft" tokenize "$@" <input >out 2>err || status=$?
    [ "$status" = "$wanted" ] || failed "$name: exit status $status, expected $wanted"
    grep -qF -- "$text" err || failed "$name: \"$text\" is not in: $(cat err)"
    [ ! -s out ] || failed "$name: printed something"
}

# One line of blank-separated ids for any text. Special tokens are added only on request.
printf 'a the\n' >input
prints "$weft" tokenize "$sp" <input
ids=$(cat printed)
same "a line of numbers" "" "$(printf '%s' "$ids" | tr -d '0-9 ')"
same "one line" 1 "$(wc -l <printed | tr -d ' ')"
gives "BOS and EOS" "1 $ids 2" "$weft" tokenize "$sp" --bos --eos
gives "a relative directory" "$ids" env -C "$sp" "$weft" tokenize .
: >input
gives "nothing" "" "$weft" tokenize "$sp"

# Every byte is restored: NUL, invalid UTF-8, a missing line end.
printf 'the \000\377 harbour\n\n\303\251 ' >input
for tokenizer in "$sp" "$gpt2"; do
    "$weft" tokenize "$tokenizer" <input >ids
    "$weft" tokenize "$tokenizer" --decode <ids >back
    cmp -s input back || failed "there and back with $tokenizer"
done
printf the >input
prints "$weft" tokenize "$sp" <input
{ printf '1 ' && cat printed; } >input
gives "special tokens have names" "<s> the" "$weft" tokenize "$sp" --decode
prints "$weft" tokenize "$sp" --decode <ids
mv printed one.line
tr ' ' '\n' <ids >lines
prints "$weft" tokenize "$sp" --decode <lines
cmp -s one.line printed || failed "ids on several lines" one.line printed

{ cat ids && printf ' 4000'; } >more
prints "$weft" tokenize "$sp" --decode <more
cmp -s one.line printed || failed "an id past the tokenizer's has no text" one.line printed
grep -q "^weft: an id of the input is past the tokenizer's" printed.err || failed "and is told" printed.err

printf '1 2 x' >input
refuses "a word" 1 "at byte 4 is not an id" "$sp" --decode
printf '99999999999' >input
refuses "a large number" 1 "at byte 0 is not an id" "$sp" --decode
refuses "no BOS" 1 "no BOS token" "$gpt2" --bos
refuses "no directory" 1 "No such file or directory" "$dir/nothing"
refuses "no tokenizer" 1 "tokenizer.json is missing" "$dir"
refuses "two ways at once" 2 "without --decode" "$sp" --decode --bos
refuses "no argument" 2 "argument is missing"
refuses "two directories" 2 "usage: weft tokenize" "$sp" "$gpt2"
if [ -w /dev/full ]; then
    status=0
    "$weft" tokenize "$sp" <input >/dev/full 2>err || status=$?
    same "a full disk" 1 "$status"
    grep -qF "cannot be written" err || failed "a full disk: $(cat err)"
fi

[ "$failures" = 0 ] || exit 1
echo "weft tokenize: all checks passed"
