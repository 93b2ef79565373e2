#!/bin/sh
# Records of a run, their continuation by a resume, and the target of `best`. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

make_run <<'INI'
steps = 6
[eval]
every = 2
[checkpoint]
every = 2
keep  = 1
[optimizer]
lr = 3e-2
INI
train() { # train argument...: output in log
    limit "$weft" train run.ini "$@" >log 2>&1 || failed "train $*" log
}
fields() { # fields FILE NAME...: every line of the record has exactly these fields, in this order
    file=out/$1
    shift
    [ -s "$file" ] || failed "$file is empty"
    sed 's/"phases": {[^}]*}/"phases": 0/; s/"ranks": \[.*\]/"ranks": 0/; s/[^"]*"\([a-z_]*\)": [^,}]*[,}]/\1 /g' "$file" |
        sort -u >said
    [ "$(cat said)" = "$* " ] || failed "$file has other fields" said
}
value() { # value FILE LINE NAME: of record number LINE
    sed -n "$2s/.*\"$3\": \([^,}]*\).*/\1/p" "out/$1"
}
rises() { # rises FILE NAME: never decreases from line to line
    sed "s/.*\"$2\": \([^,}]*\).*/\1/" "out/$1" | sort -nc || failed "$2 of $1 goes back" "out/$1"
}
steps_are() { # steps_are FILE STEP...: one line each
    file=$1
    shift
    [ "$(sed 's/{"step": \([0-9]*\).*/\1/' "out/$file" | tr '\n' ' ')" = "$* " ] || failed "$file is not of steps $*" "out/$file"
}
holds() { # holds EXPRESSION: a numeric awk expression is true
    awk "BEGIN { exit !($1) }" || failed "not so: $1"
}

# ---- one run
began=$(date +%s)
train
steps_are metrics.jsonl 1 2 3 4 5 6
steps_are evaluations.jsonl 0 2 4 6
steps_are checkpoints.jsonl 2 4 6 6
steps_are phases.jsonl 2 4 6
steps_are starts.jsonl 0
fields metrics.jsonl step loss lr grad_norm tokens epoch tokens_per_second resident phases seconds time
fields evaluations.jsonl step loss perplexity tokens took seconds time
fields checkpoints.jsonl step what best took beside seconds time
fields phases.jsonl step steps ranks seconds time
for file in metrics evaluations checkpoints phases; do rises $file.jsonl seconds; done
rows=$(sed -n 's/.*"data": {"documents": [0-9]*, "rows": \([0-9]*\).*/\1/p' out/starts.jsonl)
holds "$(value metrics.jsonl 6 epoch) > 6 * 12 / $rows - 1e-5 && $(value metrics.jsonl 6 epoch) < 6 * 12 / $rows + 1e-5"
holds "$(value metrics.jsonl 6 time) >= $began && $(value metrics.jsonl 6 time) < $began + 1200"
holds "$(value metrics.jsonl 6 resident) > 1e6"
# The parts of a record's time add up to it: they determine the speed, with the targets of that one step.
sed 's/.*"tokens": \([0-9]*\).*"tokens_per_second": \([0-9.]*\).*"phases": {\(.*\)}, "sec.*/\1 \2 \3/; s/"[a-z]*": //g; s/,//g' out/metrics.jsonl >parts
awk '{ sum = 0; for (i = 3; i <= NF; i++) sum += $i; if (NF != 11 || sum <= 0 || $1 / sum < 0.99 * $2 || $1 / sum > 1.01 * $2) bad = 1 }
    END { exit !(NR == 6 && !bad) }' parts || failed "times that add up" parts
# Planned memory equals allocated memory.
planned=$(sed -n 's/.*"planned": \[{"first": 0, "last": 0, "total": \([0-9]*\), .*"lines": \({[^}]*}\).*/\1 \2/p' out/starts.jsonl)
taken=$(sed -n '1s/.*"taken": \({[^}]*}\).*/\1/p' out/phases.jsonl)
[ "${planned#* }" = "$taken" ] || failed "what is taken, $taken, is not what is planned, $planned"
holds "${planned%% *} > 0 && ${planned%% *} == $(echo "$taken" | grep -o '[0-9]*' | paste -sd+)"
grep -q '{"key": "optimizer.lr", "value": 0.03, "source": "run.ini:[0-9]*"}' out/starts.jsonl || failed "a value's source" out/starts.jsonl
grep -q '{"key": "run.metrics_every", "value": 1, "source": "default"}' out/starts.jsonl || failed "a default" out/starts.jsonl

# ---- the best checkpoint
leads() { # leads STEP: best points to it, and is usable as a model
    [ "$(readlink out/checkpoints/best)" = "step-$1" ] || failed "best leads to $(readlink out/checkpoints/best)" out/evaluations.jsonl
    [ -f out/checkpoints/best/model.safetensors ] || failed "best leads nowhere"
}
best() { # best [STEP]: the saved step with the lowest evaluation loss, from STEP on
    sed 's/{"step": \([0-9]*\), "loss": \([^,]*\).*/\2 \1/' out/evaluations.jsonl | awk -v from="${1:-1}" '$2 >= from' | sort -g | sed -n '1s/.* //p'
}
leads "$(best)"
[ "$(grep -c '"best": true' out/checkpoints.jsonl)" -ge 1 ] || failed "no save is the best" out/checkpoints.jsonl
prints "$weft" eval run.ini model.path=out/checkpoints/best model.start=weights
# A destructive learning rate: the best checkpoint is an early one, and is kept as long as the retention
# permits.
train --overwrite train.steps=10 optimizer.lr=3
[ "$(best)" -lt 10 ] || failed "the last step is the best, of a run that gets worse" out/evaluations.jsonl
leads "$(best)"
[ "$(ls out/checkpoints)" = "$(printf '%s\n' best "step-$(best)" step-10 | sort)" ] || failed "what is kept: $(ls out/checkpoints)"
train --overwrite train.steps=10 optimizer.lr=3 checkpoint.keep_best=no
[ "$(ls out/checkpoints)" = step-10 ] || failed "a link to what is gone: $(ls out/checkpoints)"
# No evaluation; an obstacle at the link's path.
train --overwrite train.steps=2 eval.every=none
[ "$(ls out/checkpoints)" = step-2 ] || failed "a best of nothing: $(ls out/checkpoints)"
rm -r out/checkpoints && mkdir -p out/checkpoints/best
train --overwrite train.steps=2
leads 2
rm out/checkpoints/best && mkdir out/checkpoints/best
train --resume train.steps=4
grep -q "out/checkpoints/best is not a link of this run" log || failed "a directory in the way" log
[ ! -L out/checkpoints/best ] || failed "a directory was replaced"

# ---- a resumed run
train --overwrite train.steps=5 train.schedule=constant checkpoint.keep=2
before=$(value metrics.jsonl 4 seconds)
rm -r out/checkpoints/step-5 # as if killed before the save
train --resume train.schedule=constant train.steps=8
steps_are metrics.jsonl 1 2 3 4 5 6 7 8
grep -q '"resumed": true, "steps": 8' out/starts.jsonl || failed "the second start" out/starts.jsonl
for file in starts metrics evaluations checkpoints phases; do
    rises $file.jsonl step
    rises $file.jsonl seconds
done
holds "$(value metrics.jsonl 5 seconds) > $before"

# ---- intervals
train --overwrite train.steps=7 run.metrics_every=3
steps_are metrics.jsonl 1 3 6 7
status=0
"$weft" train run.ini run.metrics_every=0 >log 2>&1 || status=$?
[ "$status" = 1 ] && grep -q '\[run\] metrics_every = 0 is outside \[1,1M\]' log || failed "a line every 0 steps" log
# Files for TensorBoard next to them, which report.tensorboard reads.
train --overwrite train.steps=2 run.tensorboard=yes
[ "$(ls out/tensorboard | wc -l)" = 1 ] || failed "event files: $(ls out/tensorboard)"
[ "$failures" = 0 ]
