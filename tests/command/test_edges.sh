#!/bin/sh
# The edges that a user falls over: what ends a run, where results may lie, what a run may remove, inputs that are none.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

make_model model 16 4 24 1 512
make_text 40
cat >run.ini <<'INI'
[model]
plugin = llama
path   = model
start  = fresh
[data]
path     = games.txt
document = line
context  = 32
[train]
steps        = 2
global_batch = 4
micro_batch  = 2
[optimizer]
plugin = adamw
[device]
threads = 1
INI
train() { # train OUT ARGUMENT...
    out=$1
    shift
    "$weft" train run.ini "run.out=$out" "$@"
}
await() { # await FILE: until something is in it
    while [ ! -s "$1" ]; do sleep 0.05; done
}
saved_at_its_end() { # saved_at_its_end OUT: one checkpoint, of the last record
    [ "$(ls "$1/checkpoints")" = "step-$(wc -l <"$1/metrics.jsonl")" ]
}

# ---- a terminal that closes, and a reader that goes away, stop a run as SIGTERM does
"$weft" train run.ini run.out=hung train.steps=1000000 checkpoint.every=none --quiet >log 2>&1 &
pid=$!
await hung/metrics.jsonl
kill -HUP $pid
status=0
wait $pid || status=$?
[ "$status" = 75 ] && saved_at_its_end hung || failed "SIGHUP: exit status $status" log
grep -q 'hung up: stopping after this step and saving' log || failed "SIGHUP says nothing" log
train hung --quiet --resume train.steps="$(($(wc -l <hung/metrics.jsonl) + 1))" || failed "no resume after SIGHUP"

# a line for each 1,000 steps: the first one that nobody reads ends it
{ train piped train.steps=20000 checkpoint.every=none 2>log || echo $? >status; } | { read -r _ && await piped/metrics.jsonl; }
await status
[ "$(cat status)" = 75 ] && saved_at_its_end piped || failed "SIGPIPE: exit status $(cat status)" log
grep -q 'nobody reads what is printed: stopping after this step and saving' log || failed "SIGPIPE says nothing" log

# ---- where results may lie
refused '[run] out = / is the root of the file system' "$weft" train run.ini run.out=/
refused 'is the directory of the model that this run reads' "$weft" train run.ini run.out=model
cp -r model words
refused 'is the directory of the tokenizer that this run reads' "$weft" train run.ini run.out=words tokenizer.path=words
diff -r model words || failed "model/ has changed"
refused 'holds no run to resume' "$weft" train run.ini run.out=here/mistyped --resume
[ ! -e here ] || failed "a mistyped run.out leaves a directory"

# ---- --overwrite removes what a run wrote, and nothing else
train one --quiet checkpoint.every=1 || failed "a run"
for mine in model/notes.txt checkpoints/notes.txt checkpoints/step-1/notes.txt checkpoints/step-1/state/notes.txt; do
    echo mine >"one/$mine"
    find one | sort >before
    refused "no run wrote $PWD/one/$mine" "$weft" train run.ini run.out=one --overwrite
    find one | sort | cmp - before || failed "--overwrite removes something beside $mine"
    rm "one/$mine"
done
mkdir one/checkpoints/.step-7.tmp
train one --quiet --overwrite || failed "--overwrite"

# ---- a record that is damaged is told; one that was cut short is not
train half --quiet train.steps=3 checkpoint.every=1 || failed "a run"
sed -i '2s/loss/x"/' half/metrics.jsonl
printf '{"step": 4, "lo' >>half/metrics.jsonl
train half --quiet --resume train.steps=4 checkpoint.every=1 >log 2>&1 || failed "a resume with a damaged record" log
grep -q "^weft: warning: $PWD/half/metrics.jsonl:2 is no whole record and is left out$" log && [ "$(wc -l <log)" = 1 ] ||
    failed "a damaged record" log

[ "$failures" = 0 ]
