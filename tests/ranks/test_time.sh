#!/bin/sh
# `weft plan --time` measures the available ranks and predicts their step; `--rates` predicts for others. A
# run reports the overlapped share of its communication. The benchmarks test the accuracy of predictions, not
# this test. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH=$WEFT_BUILD/plugins
export OMP_NUM_THREADS=1

make_run <<'INI'
steps = 3
[optimizer]
plugin = adamw
lr     = 1e-3
[device]
threads = 1
INI

# A measurement is valid if every rank has computed, within a step of positive duration, and overlaps are
# fractions.
is_sound() { # is_sound RANKS FILE
    awk -v ranks="$1" '
        /"step_seconds"/ { step = $2 + 0 }
        /"compute"/ { n++; if ($2 + 0 <= 0 || $2 + 0 > step * 1.000001) bad = 1 }
        /"exposed"|"idle"/ { if ($2 + 0 < 0 || $2 + 0 > step) bad = 1 }
        /_hidden"/ && $2 !~ /null/ { if ($2 + 0 < -1e-9 || $2 + 0 > 100) bad = 1 }
        END { exit !(step > 0 && n == ranks && !bad) }' "$2" || failed "times of $1 ranks" "$2"
}
predicts() { # predicts RANKS [section.key=value ...]
    n=$1
    shift
    "$weft" plan run.ini "$@" --ranks "$n" --time --json >time.json 2>log || { cat log; failed "plan --time $n $*"; return; }
    is_sound "$n" time.json
    echo "$n ranks, $*: $(grep step_seconds time.json)"
}
# For a kind of communication, on every rank of the run: minimum and maximum of `hidden` are in this range.
hides() { # hides KIND LEAST MOST WHAT
    awk -v kind="\"$1\":" -v least="$2" -v most="$3" '
        $1 == kind && $2 == "{" { on = 1 }
        on && /"hidden"/ { n++; if ($2 + 0 < least + 0 || $2 + 0 > most + 0) bad = 1; on = 0 }
        END { exit !(n > 0 && !bad) }' out/ranks.json || failed "hidden: $4" out/ranks.json
}
runs() { # runs RANKS [section.key=value ...]
    n=$1
    shift
    "$weft" train run.ini "$@" --ranks "$n" --overwrite >log 2>&1 || failed "train $n $*" log
}

# ---- costs that can be summed by hand: a forward takes 1 s and a backward 2 s
priced() { # priced FILE ELEMENT EXCHANGE: the same rates, with EXCHANGE seconds per communication and costs per ELEMENT
    # ELEMENT seconds to copy an element, twice that to add one, 4 times to square and 8 times to update one
    awk -v element="$2" -v exchange="$3" '
        /"forward": \[/ { price = 1 }
        /"backward": \[/ { price = 2 }
        /"copy": \[/ { price = element }
        /"add": \[/ { price = 2 * element }
        /"squares": \[/ { price = 4 * element }
        /"update": \[/ { price = 8 * element }
        /"convert": \[/ { price = "0.0" }
        /"exchanges": \{$/ { price = exchange; pairs = 1 }
        /\[$/ { place = 0 }
        price != "" && /^ *[0-9][-+.0-9e]*,?$/ { place++; if (!pairs || place == 2) sub(/[0-9][-+.0-9e]*/, price) }
        { print }' "$1"
}
instructions() { # instructions KIND: instructions of rank 0, in program.json
    grep -c "\"instruction\": \"$1[ \"]" program.json || true
}
value() { # value NAME [N]: the N-th value of that name in paper.json
    awk -v name="\"$1\":" -v n="${2:-1}" '$1 == name && ++found == n { sub(/,$/, "", $2); print $2 }' paper.json
}
is_near() { # is_near WHAT WANTED FOUND
    awk -v a="$2" -v b="$3" 'BEGIN { exit !(b != "" && a > 0 && (a - b) / a < 1e-6 && (b - a) / a < 1e-6) }' ||
        failed "$1: $3 s, not $2" paper.json
}
on_paper() { # on_paper RATES [section.key=value ...]: writes the prediction to paper.json, and rank 0's program
    rates=$1
    shift
    prints "$weft" plan run.ini "$@" --rates "$rates" --json
    mv printed paper.json
    prints "$weft" plan run.ini "$@" --json --print-program
    mv printed program.json
}
calculate() { awk "BEGIN { printf \"%.9f\", $1 }"; }

# ---- one rank needs no communicator
predicts 1 strategy.plugin=single
cp time.json one.json
grep -q '"exchanges": {}' one.json || failed "one rank has measured exchanges"
"$weft" plan run.ini --rates one.json --json >again.json
is_sound 1 again.json
[ "$(grep step_seconds again.json)" = "$(grep step_seconds one.json)" ] || failed "the same rates give another time"
"$weft" plan run.ini --rates one.json train.activation_checkpointing=yes --json >slower.json
priced one.json 0.001 1000 >priced.json
on_paper priced.json
[ "$(instructions BACKWARD)" = 96 ] || failed "12 micro-batches of 8 segments have no 96 backwards" program.json
padded=$(calculate "$(value trained) + $(value padding_bytes) / 4") # with padding
work="$(instructions FORWARD) + 2 * $(instructions BACKWARD) + $padded * (0.001 + 11 * 0.002 + 0.004) + $(value trained) * 0.008"
is_near "one rank's step" "$(calculate "$work")" "$(value step_seconds)"
is_near "what one rank computes" "$(value step_seconds)" "$(value compute)"
awk '/step_seconds/ { if (NR == FNR) a = $2 + 0; else b = $2 + 0 } END { exit !(b > a) }' one.json slower.json ||
    failed "what is computed again takes no time"

# ---- errors
refused "--time measures rates and --rates reads" "$weft" plan run.ini --time --rates one.json
refused "--nodes plans for other machines" "$weft" plan run.ini strategy.plugin=ddp --ranks 4 --nodes 2 --time
refused "leave --rates out" "$weft" plan run.ini --rates one.json --diff run.ini
refused "this run has micro-batches of 2 x 32 places in fp32" "$weft" plan run.ini --rates one.json train.micro_batch=2
refused "this run has micro-batches of 1 x 32 places in fp32, optimizer sgd, trainable = all" \
    "$weft" plan run.ini --rates one.json optimizer.plugin=sgd
refused "trainable = last:1" "$weft" plan run.ini --rates one.json train.trainable=last:1
refused "threads = 2" "$weft" plan run.ini --rates one.json device.threads=2
refused "in bf16" "$weft" plan run.ini --rates one.json train.precision=bf16
refused "the rates of one rank, without exchanges" "$weft" plan run.ini strategy.plugin=ddp --ranks 2 --rates one.json
refused "there.json" "$weft" plan run.ini --rates there.json
echo '{"rates": {"ranks": 1}}' >half.json
refused "half.json has no complete \`rates\`" "$weft" plan run.ini --rates half.json
sed 's/"layers.2.mlp"/"layers.9.mlp"/' one.json >other.json
refused "a model with other segments" "$weft" plan run.ini --rates other.json

# ---- several ranks
if has mpich; then
    MPI=comm.plugin=mpi-mpich
    predicts 2 $MPI strategy.plugin=ddp
    cp time.json two.json
    priced two.json 0.001 1000 >priced.json
    # Each of two ranks has half of the micro-batches, sums half of the numbers and updates all. It waits only
    # for its communication: that of its instructions, and the losses, which are sent with the norm.
    on_paper priced.json $MPI strategy.plugin=ddp --ranks 2
    [ "$(instructions BACKWARD)" = 48 ] || failed "6 micro-batches of 8 segments have no 48 backwards" program.json
    shared=$(calculate "$(value trained) + $(value padding_bytes 2) / 4") # with padding for two shards
    for rank in 1 2; do
        work="$(instructions FORWARD) + 2 * $(instructions BACKWARD) + $shared / 2 * (0.001 + 11 * 0.002) + $padded * 0.004"
        is_near "what one of two computes" "$(calculate "$work + $(value trained) * 0.008")" "$(value compute $rank)"
        exchanges="$(instructions REDUCE) + $(instructions GATHER) + 1"
        is_near "what it waits for" "$(calculate "1000 * ($exchanges)")" "$(value exposed $rank)"
    done
    is_near "the step of both" "$(calculate "$(value compute) + $(value exposed)")" "$(value step_seconds)"
    # Under naive one of them works at a time, while the other is idle.
    priced two.json 0 0 >priced.json
    on_paper priced.json $MPI strategy.plugin=mp strategy.schedule=naive --ranks 2
    idle=$(calculate "$(value idle 1) + $(value idle 2)")
    is_near "what two that take turns do not do" "$(calculate "$(value compute 1) + $(value compute 2)")" "$idle"
    predicts 2 $MPI strategy.plugin=fsdp
    predicts 2 $MPI strategy.plugin=mp strategy.schedule=gpipe
    predicts 2 $MPI strategy.plugin=fsdp train.precision=bf16 strategy.reduce_dtype=bf16
    "$weft" plan run.ini strategy.plugin=fsdp --ranks 6 --nodes 3 --rates two.json --json >six.json
    is_sound 6 six.json
    grep -q 'exchanges between machines are as fast' six.json || failed "what is assumed of machines"
    prints "$weft" plan run.ini strategy.plugin=ddp train.global_batch=120 --ranks 60 --rates two.json
    grep -q 'share them evenly' printed || failed "what is assumed of 60 ranks on one machine" printed

    runs 2 $MPI strategy.plugin=ddp
    hides reduce 0.001 100 "a REDUCE beside BACKWARDs"
    hides gather 0 0 "what ddp does not do"
    grep -q 'reduce hidden  gather hidden' log || failed "the table of a run"
    runs 2 $MPI strategy.plugin=fsdp
    hides gather 0.001 100 "a GATHER that is fetched ahead"
    runs 2 $MPI strategy.plugin=fsdp strategy.prefetch=0
    hides gather 0 0 "a GATHER that ends in its place"
    runs 2 $MPI strategy.plugin=mp
    hides reduce 0 0 "sums of one rank"
fi
[ "$failures" = 0 ]
