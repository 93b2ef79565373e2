#!/bin/sh
# Output of several ranks: before the run, after its first step, at its end, and which ranks print it. ctest
# sets WEFT_BUILD and WEFT_SOURCE.
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
train() { # train argument...: output in log
    limit "$weft" train run.ini --overwrite --verbose "$@" >log 2>&1 || failed "train $*" log
}
line() { # line TEXT [N]: N lines of the log, by default one, match that extended regular expression
    [ "$(grep -Ecx -- "$1" log)" = "${2:-1}" ] || failed "not ${2:-1} times: $1" log
}
plugins='model llama, policy block, strategy [a-z]+, optimizer adamw lr 0.001, data text, tokenizer bpe, device cpu, comm [a-z-]+'
loss='[0-9]+\.[0-9]{4}'
wrapping='wrapping +3 of [0-9]+ modules wrapped \([0-9.]+ %\) by policy block, in 4 units; [0-9,]+ of [0-9,]+ parameters \([0-9.]+ %\), the root unit has [0-9,]+'
step_memory='Step 1: Current memory usage: [0-9]+\.[0-9]{2} GiB, Peak memory usage: [0-9]+\.[0-9]{2} GiB, Total memory: [0-9]+\.[0-9]{2} GiB'
row='[0-9]+(, [0-9]+){31}' # of 32 positions

# ---- one rank, without a rank prefix
train
line "run +precision fp32, $plugins"
line "run +precision fp32, $plugins; 3 steps, loss $loss -> $loss in training, lr 0.000333 in the last"
line "$wrapping"
line 'memory +[0-9.]+ [KMG]iB planned \(weft plan shows it\)'
line 'memory .*after step.*' 0
line "$step_memory"
train train.precision=bf16 --print-batches
line "run +precision bf16, $plugins"
line 'Step 1: rank 0: Mini-batch size: 12 of the 12 rows of a step: 0, 1, 2, 3, 4, 5, 6, 7, ...'
line "Step 1: rank 0: 1st data in mini-batch: \[$row\]"
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

# ---- only rank 0
ranks 3 strategy.plugin=fsdp
line "\[0\] run +precision fp32, $plugins"
line "\[0\] run +precision fp32, $plugins; 3 steps, loss $loss -> $loss in training, lr 0.000333 in the last"
line "\[0\] $wrapping"
line "\[0\] memory +$B planned (on each rank|on rank [0-2], which takes the most) \(weft plan shows it\)"
line "\[0\] $step_memory"
line "\[0\] memory +$B \(rank [0-2]\) to $B \(rank [0-2]\) resident after step 1, $B at most \(rank [0-2]\)"
line "\[0\] memory +rank 0: $B planned, $B taken; .*"
line '\[[12]\].*' 0
line '\[0\] (Step 1: rank|parameters on|\[|top_module).*' 0
[ "$(wc -l <log)" = "$(grep -c '^\[0\]' log)" ] || failed "a line without its rank" log
prints "$weft" plan run.ini strategy.plugin=fsdp --ranks 3
grep -q '^wrapping ' printed || failed "plan has the line, too" printed
has_line() { # has_line N TEXT: N lines of ranks.json equal the text
    [ "$(sed 's/^ *//; s/,$//' out/ranks.json | grep -cxF -- "$2")" = "$1" ] || failed "ranks.json: not $1 times $2" out/ranks.json
}
has_line 1 '"world": 3'
has_line 1 '"strategy": "fsdp"'
has_line 1 '"comm": "mpi-mpich"'
has_line 1 '"shard": "full"'
has_line 4 '"steps": 3' # of the run, and the count of each rank
for rank in 0 1 2; do has_line 1 "\"local_rank\": $rank"; done
has_line 3 '"step": 1'
# After the first step a rank has allocated the planned memory, and its process has no more than at the end.
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
most=$(sed -n 's/.* imbalance: rank \([0-9]*\) takes .*/\1/p' log) # of the map, which uses the same plan
[ "$most" -gt 0 ] || failed "the rank that takes the most is the first" log
line "\[0\] memory +$B planned on rank $most, which takes the most \(weft plan shows it\)"

# ---- all ranks, or some
ranks 3 strategy.plugin=fsdp run.log_ranks=all --print-sharding --print-wrapping --print-batches
for rank in 0 1 2; do
    line "\[$rank\] $wrapping"
    line "\[$rank\] step 3/3 .*"
    line "\[$rank\] parameters on rank $rank"
    line "\[$rank\] --fsdp_wrap_module: model.layers.[0-2] \(LlamaDecoderLayer\) +unit model.layers.[0-2]" 3
    line "\[$rank\] Total modules: 42, FSDP wrapped modules: 7.14%"
    line "\[$rank\] \[FSDP Mode\] Unit: .*" 4
    line "\[$rank\] \[FSDP Mode\] Model Layer: .*" 29
    line "\[$rank\] \[FSDP Mode\] Model: LlamaForCausalLM, Total Parameter Count: 67200, Sharded Parameter Count on device: [0-9]+ \(33\.[0-9]{2}%\)"
    line "\[$rank\] $step_memory"
    line "\[$rank\] Step 1: rank $rank: Mini-batch size: 4 of the 12 rows of a step: ([0-9]+, ){3}[0-9]+"
    line "\[0\] Step 1: rank $rank: 1st data in mini-batch: \[$row\]"
done
line "\[[12]\] Step 1: rank [12]: 1st data in mini-batch: \[$row\]" 2
line '\[1\] Step 1: rank [02].*' 0
[ "$(sed -n 's/^\[0\] .*1st data in mini-batch//p' log | sort -u | wc -l)" = 3 ] || failed "ranks have other rows" log
[ "$(sed -n 's/.* rows of a step: //p' log | tr -d ' ' | tr , '\n' | sort -un | tr '\n' ' ')" = "0 1 2 3 4 5 6 7 8 9 10 11 " ] ||
    failed "the mini-batches are not the rows of the step" log
# Each line's share matches its numbers; the shards of a parameter add up to it; units, parameters and model
# have the same sums.
sed -n 's/^\[\([0-2]\)\] \[FSDP Mode\] \([A-Z][a-z]*\)\( Layer\)\{0,1\}: \(.*\), Total Parameter Count: \([0-9]*\), Sharded Parameter Count on device: \([0-9]*\) (\([0-9.]*\)%)$/\1 \2\3 \4 \5 \6 \7/p' log |
    sed 's/Model Layer/Layer/' >shares # rank, kind, name, total, shard, percent
awk '
    {
        if (sprintf("%.2f", 100 * $5 / $4) != $6) { bad = 1; print "share: " $0 }
        whole[$3] = $4
        sum[$3] += $5
        total[$2, $1] += $4
        here[$2, $1] += $5
    }
    END {
        for (name in whole) {
            n++
            if (sum[name] != whole[name]) { bad = 1; print name ": " sum[name] " of " whole[name] }
        }
        split("Unit Layer", kinds, " ")
        for (rank = 0; rank < 3; rank++)
            for (i = 1; i <= 2; i++)
                if (total[kinds[i], rank] != total["Model", rank] || here[kinds[i], rank] != here["Model", rank]) {
                    bad = 1
                    print kinds[i] " of rank " rank ": " here[kinds[i], rank] ", the model " here["Model", rank]
                }
        exit !(n == 34 && NR == 3 * n && !bad)
    }' shares >said || failed "what the ranks keep does not add up" said shares
# Printed memory of a rank equals that in the file.
awk 'BEGIN { n = 0 }
    /"after_first_step":/ { inside = 1 }
    inside && /"resident":/ { now = $2 / 1073741824 }
    inside && /"resident_peak":/ { peak[n] = $2 / 1073741824; was[n++] = now; inside = 0 }
    END {
        for (i = 0; i < n; i++)
            printf "[%d] Step 1: Current memory usage: %.2f GiB, Peak memory usage: %.2f GiB\n", i, was[i], peak[i]
    }' out/ranks.json >told
sed -n 's/\(.* Current memory usage.*\), Total memory.*/\1/p' log | sort >said
if [ "$(wc -l <told)" != 3 ] || ! cmp -s said told; then failed "memory is not that of ranks.json" said told; fi
line "\[[0-2]\] rank +planned, bytes .*"
[ "$(wc -l <log)" = "$(grep -c '^\[[012]\] \?' log)" ] || failed "a line without its rank" log
ranks 3 strategy.plugin=ddp run.log_ranks=0,2
line '\[[02]\] step 3/3 .*' 2
line '\[1\].*' 0
limit "$weft" train run.ini --overwrite --ranks 3 strategy.plugin=ddp comm.plugin=mpi-mpich run.log_ranks=all --quiet >log 2>&1 ||
    failed "a quiet run" log
[ ! -s log ] || failed "--quiet is quiet" log

# ---- of a deeper model the first and the last layer, and the location of the others
make_model deep 40 10 88 4 521
ranks 3 strategy.plugin=fsdp model.path=deep data.context=100 --print-sharding --print-batches
line '\[0\] \[FSDP Mode\] Model Layer: .*' 30
line '\[0\] \.\.\. and 8 more parameters: weft plan --ranks 3 --print-sharding --rank 0 shows all'
line '\[0\] \.\.\. and .* more units.*' 0
line "\[0\] Step 1: rank 0: 1st data in mini-batch: \[[0-9]+(, [0-9]+){63}, \.\.\.\] of [0-9]+ ids"
sed -n 's/^\[0\] \(.* Model Layer: .*\)/\1/p' log >said
prints "$weft" plan run.ini strategy.plugin=fsdp model.path=deep data.context=100 --ranks 3 --print-sharding --rank 0
grep ' Model Layer: ' printed >all
[ "$(wc -l <all)" = 38 ] || failed "a plan shows all" all
{ head -n 15 all && tail -n 15 all; } | cmp -s - said || failed "the first and the last 15" said

# ---- a resumed run prints the report of its own first step
ranks 3 strategy.plugin=mp checkpoint.every=2
limit "$weft" train run.ini --resume train.steps=5 strategy.plugin=mp --ranks 3 comm.plugin=mpi-mpich --print-batches --verbose >log 2>&1 ||
    failed "goes on" log
line '\[0\] Step 4: all ranks: Mini-batch size: 12 of the 12 rows of a step: .*'
line "\[0\] Step 4: all ranks: 1st data in mini-batch: \[$row\]"
line '\[0\] Step 4: Current memory usage: .*'
line '\[0\] memory .* resident after step 4, .*'
line "\[0\] run .*; 2 steps, loss $loss -> $loss in training, .*"
[ "$failures" = 0 ]
