#!/bin/sh
# `weft plan --time` measures the ranks that are there and predicts their step; `--rates` does it for others. A run tells
# how much of its exchanges was hidden behind work. Whether a prediction is near is the bench's matter, not this test's.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
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

# The parts of each rank's time add up to the step's, and what is hidden is a share.
adds_up() { # adds_up RANKS FILE
    awk -v ranks="$1" '
        /"step_seconds"/ { step = $2 + 0 }
        /"compute"/ { c = $2 + 0 }
        /"exposed"/ { e = $2 + 0 }
        /"idle"/ { n++; d = c + e + $2 - step; if (d > 1e-6 || d < -1e-6 || c <= 0) bad = 1 }
        /_hidden"/ && $2 !~ /null/ { if ($2 + 0 < -1e-9 || $2 + 0 > 100) bad = 1 }
        END { exit !(step > 0 && n == ranks && !bad) }' "$2" || { cat "$2"; failed "times of $1 ranks do not add up"; }
}
predicts() { # predicts RANKS [section.key=value ...]
    n=$1
    shift
    "$weft" plan run.ini "$@" --ranks "$n" --time --json >time.json 2>log || { cat log; failed "plan --time $n $*"; return; }
    adds_up "$n" time.json
    echo "$n ranks, $*: $(grep step_seconds time.json)"
}
# Of a kind of exchange, on every rank of the run: the least and the most of `hidden` lie between these.
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

# ---- one rank needs no communicator
predicts 1 strategy.plugin=single
cp time.json one.json
grep -q '"exchanges": {}' one.json || failed "one rank has measured exchanges"
"$weft" plan run.ini --rates one.json --json >again.json
adds_up 1 again.json
[ "$(grep step_seconds again.json)" = "$(grep step_seconds one.json)" ] || failed "the same rates give another time"
"$weft" plan run.ini --rates one.json train.activation_checkpointing=yes --json >slower.json
awk '/step_seconds/ { if (NR == FNR) a = $2 + 0; else b = $2 + 0 } END { exit !(b > a) }' one.json slower.json ||
    failed "what is computed again takes no time"

# ---- what is refused
refused "--time measures and --rates reads" "$weft" plan run.ini --time --rates one.json
refused "--nodes says where they would be" "$weft" plan run.ini strategy.plugin=ddp --ranks 4 --nodes 2 --time
refused "leave --rates out" "$weft" plan run.ini --rates one.json --diff run.ini
refused "leaves of 1 x 32 places in fp32, and this run's have 2 x 32" "$weft" plan run.ini --rates one.json train.micro_batch=2
refused "of optimizer adamw and trainable = all, and this run has sgd and all" \
    "$weft" plan run.ini --rates one.json optimizer.plugin=sgd
refused "this run has adamw and last:1" "$weft" plan run.ini --rates one.json train.trainable=last:1
refused "threads = 1, and this run's have 2" "$weft" plan run.ini --rates one.json device.threads=2
refused "in bf16" "$weft" plan run.ini --rates one.json train.precision=bf16
refused "no exchange was measured" "$weft" plan run.ini strategy.plugin=ddp --ranks 2 --rates one.json
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
    predicts 2 $MPI strategy.plugin=fsdp
    predicts 2 $MPI strategy.plugin=mp strategy.schedule=gpipe
    predicts 2 $MPI strategy.plugin=fsdp train.precision=bf16 strategy.reduce_dtype=bf16
    "$weft" plan run.ini strategy.plugin=fsdp --ranks 6 --nodes 3 --rates two.json --json >six.json
    adds_up 6 six.json
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
