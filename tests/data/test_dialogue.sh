#!/bin/sh
# The SDK's example of a data plugin: built with the headers only, it reads its own format, renders it by the model's chat
# template, and has the loss of the plugin `instruct` for the same conversations. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
mkdir model plugins
code=$(grep -cvE '^ *(/\*.*|\*.*)?$' "$WEFT_SOURCE/sdk/template/data-dialogue/dialogue.c")
[ "$code" -lt 150 ] || failed "the example has $code lines of code"
cp "$WEFT_SOURCE"/configs/chess/base/* "$WEFT_SOURCE/tests/golden/instruct/chat_template.jinja" model/
build data dialogue cc -Wall -Wextra -Wpedantic -Werror "$WEFT_SOURCE/sdk/template/data-dialogue/dialogue.c"
cat >run.ini <<INI
[run]
out = out
[model]
plugin = llama
path   = model
[tokenizer]
plugin = bpe
[data]
plugin  = plugins/weft-data-dialogue.so
path    = talk.txt
context = 64
[train]
steps        = 2
global_batch = 2
micro_batch  = 2
[optimizer]
plugin = adamw
[device]
plugin = cpu
INI
printf 'e4 | e5 | f4 | exf4\nwhat </s> is it | d5\n' >talk.txt
printf '%s\n' '{"messages":[{"role":"user","content":"e4"},{"role":"assistant","content":"e5"},{"role":"user","content":"f4"},{"role":"assistant","content":"exf4"}]}' \
    '{"prompt":"what </s> is it","completion":"d5"}' >talk.jsonl
prints "$weft" data show run.ini -n 2
grep -qF '<user> f4' printed && grep -qF '[[exf4</s>]]' printed || failed "the dialogue is not shown" printed
loss() { # loss argument...
    prints "$weft" eval run.ini "$@" --json
    sed 's/, "seconds.*//' printed
}
mine=$(loss)
theirs=$(loss data.plugin=instruct data.path=talk.jsonl data.packing=no)
[ "$mine" = "$theirs" ] || failed "the example has $mine, instruct $theirs"
prints "$weft" train run.ini
# instruct reads names of any length: in columns, in ignore, and in paths of ignore
long=$(printf '%300s' '' | tr ' ' k)
echo "{\"${long}q\": \"e4\", \"${long}a\": \"e5\"}" >long.jsonl
prints "$weft" data show run.ini data.plugin=instruct data.path=long.jsonl "data.columns=${long}q, ${long}a"
grep -qF '[[e5</s>]]' printed || failed "a pair with long names is not shown" printed
echo "{\"messages\": [{\"role\": \"user\", \"content\": \"e4\", \"${long}x\": {\"${long}y\": 1}},
    {\"role\": \"assistant\", \"content\": \"e5\"}], \"${long}z\": 1}" | tr -d '\n' >long.jsonl
refused "ignore = ${long}z" "$weft" data show run.ini data.plugin=instruct data.path=long.jsonl
refused "ignore = ${long}x" "$weft" data show run.ini data.plugin=instruct data.path=long.jsonl "data.ignore=${long}z"
for ignored in "${long}x" "${long}x.${long}y"; do
    prints "$weft" data show run.ini data.plugin=instruct data.path=long.jsonl "data.ignore=${long}z, $ignored"
    grep -qF '[[e5</s>]]' printed || failed "a record with long ignored names is not shown" printed
done
refused 'talk.txt:1: in 8 positions: ' "$weft" data show run.ini data.context=8
[ "$failures" = 0 ]
