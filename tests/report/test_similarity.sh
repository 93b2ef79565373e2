#!/bin/sh
# [run] similarity: reported by every evaluation, relative to the run's start; the same on any number of ranks
# and after a resume; an error if it cannot be measured. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

make_run <<'INI'
steps = 4
[run]
similarity = yes
[eval]
every = 2
[checkpoint]
every = 2
keep  = 9
[optimizer]
lr = 1e-2
[device]
threads = 1
INI
train() { # train OUT argument...
    out=$1
    shift
    limit "$weft" train run.ini run.out="$out" "$@" >log 2>&1 || failed "train $out $*" log
}
told() { # told OUT: values reported by its evaluations
    sed -n 's/{"step": \([0-9]*\),.*"similarity": \([^,]*\),.*/\1 \2/p' "$1/evaluations.jsonl"
}
are_same() { # are_same OUT: equal to those of the run on one rank
    told one >expected
    told "$1" >found
    cmp expected found >cmp.log 2>&1 || failed "the similarities of $1" expected found
}

train one
told one >found
awk '{ bad = bad || $1 != 2 * (NR - 1) || (NR == 1) != ($2 == 0) || $2 < 0 || $2 > 2 } END { exit !(NR == 3 && !bad) }' found ||
    failed "0 at first and more then" found one/evaluations.jsonl
last=$(printf %.4g "$(sed -n '3s/.* //p' found)")
grep -qx "similarity $last, 1 less the cosine of the mean last hidden states before and after" log || failed "the end does not say $last" log

# ---- tools that show it
prints "$weft" report one
grep -Eq "^similarity +$last$" printed || failed "report in the terminal" printed
grep -qF "similarity $last" one/report.html && grep -qF "<b>$last</b>" one/report.html || failed "the page" one/report.html
prints "$weft" report one --csv
[ "$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "similarity") at = i } NR == 2 { printf "%.4g", $at }' printed)" = "$last" ] ||
    failed "the bare number" printed
train tensorboard train.steps=2 run.tensorboard=yes
grep -qa eval/similarity tensorboard/tensorboard/* || failed "the files for TensorBoard"

# ---- an unchanged model, and a run without the measurement
train still optimizer.lr=0
[ "$(told still | cut -d' ' -f2 | sort -u)" = 0 ] || failed "a model that does not move" still/evaluations.jsonl
train without run.similarity=no
if grep -q similarity log without/evaluations.jsonl || [ -e without/similarity.json ]; then failed "nobody asked" log; fi
prints "$weft" report without
if grep -q "^similarity" printed || grep -q "less the cosine" without/report.html; then failed "a row of nothing" printed; fi
for field in loss perplexity; do # nothing else differs
    sed "s/.*\"$field\": \([^,]*\),.*/\1/" one/evaluations.jsonl >with
    sed "s/.*\"$field\": \([^,]*\),.*/\1/" without/evaluations.jsonl | cmp - with || failed "$field is another"
done

# ---- a resumed run
cp -r one resumed
rm -r resumed/checkpoints/step-4 resumed/model
train resumed --resume
are_same resumed
grep -qx "similarity $last, .*" log || failed "the end of a run that went on" log
rm -r resumed/checkpoints/step-4
echo '{"mean_last_hidden_state": [1, 2]}' >resumed/similarity.json
train resumed --resume
grep -qF "[run] similarity: $dir/resumed/similarity.json does not contain the mean hidden state at step 0" log || failed "no word of a beginning that is not there" log
[ "$(told resumed | tail -n 1 | cut -d' ' -f1)" = 2 ] || failed "a similarity to nothing" resumed/evaluations.jsonl
train one --overwrite run.similarity=no
[ ! -e one/similarity.json ] || failed "--overwrite leaves similarity.json"
train one --overwrite

# ---- not measurable
refused "[run] similarity = yes is measured by evaluations, and [eval] every = none disables them. Fix: set it to 100%" \
    "$weft" config check run.ini eval.every=none
train ends --overwrite eval.every=100%
[ "$(told ends | cut -d' ' -f1 | paste -sd' ')" = "0 2 4" ] || failed "with each save too" ends/evaluations.jsonl

# ---- several ranks: the same digits
if has mpich; then
    for strategy in ddp fsdp; do
        train "$strategy" --ranks 3 comm.plugin=mpi-mpich strategy.plugin="$strategy"
        are_same "$strategy"
    done
    train mp --ranks 2 comm.plugin=mpi-mpich strategy.plugin=mp
    are_same mp
fi
[ "$failures" = 0 ]
