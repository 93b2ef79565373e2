#!/bin/sh
# What several ranks say of a run: before it, after its first step, at its end, and which of them say it.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

make_run <<'INI'
steps = 3
clip  = 1.0
schedule = linear
[eval]
every = 2
[optimizer]
plugin = adamw
lr     = 1e-3
INI
train() { # train argument...: its output is in log
    timeout 100 "$weft" train run.ini --overwrite "$@" >log 2>&1 || failed "train $*" log
}
line() { # line TEXT [N]: N lines of the log, one unless said otherwise, are that extended regular expression
    [ "$(grep -Ecx -- "$1" log)" = "${2:-1}" ] || failed "not ${2:-1} times: $1" log
}
plugins='model llama, policy block, strategy [a-z]+, optimizer adamw lr 0.001, data text, tokenizer bpe, device cpu, comm [a-z-]+'
loss='[0-9]+\.[0-9]{4}'
wrapping='wrapping +3 of [0-9]+ modules wrapped \([0-9.]+ %\) by policy block, in 4 units; [0-9,]+ of [0-9,]+ parameters \([0-9.]+ %\), the root unit has [0-9,]+'

# ---- one rank, without a rank in front
train
line "run +precision fp32, $plugins"
line "run +precision fp32, $plugins; 3 steps, loss $loss -> $loss in training, lr 0.000333 in the last"
line "$wrapping"
line 'memory +[0-9.]+ [KMG]iB planned \(weft plan shows it\)'
line 'memory .*after step.*' 0
train train.precision=bf16 --print-batches
line "run +precision bf16, $plugins"
line '  rank 0    12 of the 12 rows of a step: 0, 1, 2, 3, 4, 5, 6, 7, ...; ids( [0-9]+){8}'
status=0
"$weft" train run.ini --overwrite --quiet --print-sharding >log 2>&1 || status=$?
[ "$status" = 2 ] || failed "--quiet with a table ends with $status" log
line 'weft train: --quiet prints no tables: leave it or the --print-... out'

has mpich || exit "$failures"
ranks() { # ranks N argument...
    n=$1
    shift
    train --ranks "$n" comm.plugin=mpi-mpich "$@"
}
B='[0-9.]+ [KMG]iB'

# ---- rank 0 alone
ranks 3 strategy.plugin=fsdp
line "\[0\] run +precision fp32, $plugins"
line "\[0\] run +precision fp32, $plugins; 3 steps, loss $loss -> $loss in training, lr 0.000333 in the last"
line "\[0\] $wrapping"
line "\[0\] memory +$B planned (on each rank|on rank [0-2], which takes the most) \(weft plan shows it\)"
line "\[0\] memory +$B \(rank [0-2]\) to $B \(rank [0-2]\) resident after step 1, $B at most \(rank [0-2]\)"
line "\[0\] memory +rank 0: $B planned, $B taken; .*"
line '\[[12]\].*' 0
line '\[0\] (mini-batches|parameters on|  top_module).*' 0
[ "$(wc -l <log)" = "$(grep -c '^\[0\]' log)" ] || failed "a line without its rank" log
"$weft" plan run.ini strategy.plugin=fsdp --ranks 3 | grep -q '^wrapping ' || failed "plan has the line, too"
has_line() { # has_line N TEXT: N lines of ranks.json are that
    [ "$(sed 's/^ *//; s/,$//' out/ranks.json | grep -cxF -- "$2")" = "$1" ] || failed "ranks.json: not $1 times $2" out/ranks.json
}
has_line 1 '"world": 3'
has_line 1 '"strategy": "fsdp"'
has_line 1 '"comm": "mpi-mpich"'
has_line 1 '"shard": "full"'
has_line 4 '"steps": 3' # of the run, and what each rank counted
for rank in 0 1 2; do has_line 1 "\"local_rank\": $rank"; done
has_line 3 '"step": 1'
# After the first step a rank has taken what is planned, and its process no more than at the end.
awk '
    { value = $2 + 0 }
    /"planned":/ { planned = value }
    /"resident_peak":/ && !inside { peak = value }
    /"after_first_step":/ { inside = 1 }
    inside && /"taken":/ && value != planned { bad = 1 }
    inside && /"resident":/ { now = value }
    inside && /"resident_peak":/ { n++; inside = 0; if (now <= 0 || value < now || value > peak) bad = 1 }
    END { exit !(n == 3 && !bad) }' out/ranks.json || failed "memory after the first step" out/ranks.json

# ---- the largest rank's memory
ranks 3 strategy.plugin=mp
most=$(sed -n 's/.* imbalance: rank \([0-9]*\) takes .*/\1/p' log) # of the map, which is made of the same plan
[ "$most" -gt 0 ] || failed "the rank that takes the most is the first" log
line "\[0\] memory +$B planned on rank $most, which takes the most \(weft plan shows it\)"

# ---- all ranks, or some
ranks 3 strategy.plugin=fsdp run.log_ranks=all --print-sharding --print-wrapping --print-batches
for rank in 0 1 2; do
    line "\[$rank\] $wrapping"
    line "\[$rank\] step 3/3 .*"
    line "\[$rank\] parameters on rank $rank"
    line "\[$rank\] Total modules: [0-9]+, wrapped modules: [0-9.]+%"
    line "\[$rank\] mini-batches of step 1, and the ids with which the first row of each begins"
    line "\[$rank\]   all +[0-9,]+ +[0-9,]+ +33\.[0-9]{2} %"
done
line "\[0\]   rank [0-2]    4 of the 12 rows of a step: ([0-9]+, ){3}[0-9]+; ids( [0-9]+){8}" 3
line "\[[12]\]   rank [12]    4 of the 12 rows of a step: ([0-9]+, ){3}[0-9]+; ids( [0-9]+){8}" 2
[ "$(sed -n 's/^\[0\]   rank .*; ids//p' log | sort -u | wc -l)" = 3 ] || failed "ranks have other rows" log
line "\[1\] memory +$B resident after step 1, $B at most, on rank 1"
line "\[[0-2]\] rank +planned, bytes .*"
[ "$(wc -l <log)" = "$(grep -c '^\[[012]\] \?' log)" ] || failed "a line without its rank" log
ranks 3 strategy.plugin=ddp run.log_ranks=0,2
line '\[[02]\] step 3/3 .*' 2
line '\[1\].*' 0
ranks 3 strategy.plugin=ddp run.log_ranks=all --quiet
[ ! -s log ] || failed "--quiet is quiet" log

# ---- a run that goes on says what belongs to its own first step
ranks 3 strategy.plugin=mp checkpoint.every=2
timeout 100 "$weft" train run.ini --resume train.steps=5 strategy.plugin=mp --ranks 3 comm.plugin=mpi-mpich --print-batches >log 2>&1 ||
    failed "goes on" log
line '\[0\] mini-batches of step 4, .*'
line '\[0\]   all ranks 12 of the 12 rows of a step: .*; ids( [0-9]+){8}'
line '\[0\] memory .* resident after step 4, .*'
line "\[0\] run .*; 2 steps, loss $loss -> $loss in training, .*"
[ "$failures" = 0 ]
