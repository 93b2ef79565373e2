# `weft train --print-values N`: values of exactly N steps, for every micro-batch, and a run with unchanged
# bits.
. "$WEFT_SOURCE/tests/common/shell.sh"
make_run <<'INI'
steps = 3
[train]
INI
sed -i 's/^global_batch = 12/global_batch = 2/' run.ini

prints "$weft" train run.ini run.out=plain
prints "$weft" train run.ini run.out=told --print-values 2
cmp -s plain/model/model.safetensors told/model/model.safetensors || failed "values that were looked at changed the run"

count() { # count WANTED PATTERN
    n=$(grep -cE "$2" printed)
    [ "$n" = "$1" ] || failed "$2: $n lines in place of $1" printed
}
count 4 '^step [12]  FORWARD embed micro-batch [01]  +carry  '
count 4 '^step [12]  BACKWARD head micro-batch [01]  +loss  '
count 4 '^step [12]  BACKWARD layers.0.attn micro-batch [01]  +model.layers.0.self_attn.q_proj.weight, gradient  .*\.\.\. of 1600$'
count 2 '^step [12]  STEP  +model.layers.0.mlp.up_proj.weight, exp_avg_sq  '
count 2 '^step [12]  NORM  +norm  '
count 0 '^step 3  '

# A loss is the sum over the targets of its micro-batch. The sum of a step's losses divided by its targets is
# the recorded loss.
awk -F '  +' '/^step 1  BACKWARD head.*  loss  / { sum += $4 } /^step 1  NORM  +targets/ { n = $4 } END { printf "%.4f\n", sum / n }' printed >mean
loss=$(head -1 told/metrics.jsonl | sed 's/.*"loss": *\([0-9.]*\).*/\1/')
[ "$(cat mean)" = "$(printf '%.4f' "$loss")" ] || failed "the micro-batches' losses give $(cat mean), the run has $loss"

# On a device that replays captured graphs, the printed steps run instruction by instruction.
if [ -d "$WEFT_BUILD/tests/late" ]; then
    export WEFT_LATE_MODE=last WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/late"
    prints "$weft" train run.ini run.out=late train.steps=6
    prints "$weft" train run.ini run.out=late_told train.steps=6 --print-values 5
    count 10 '^step [1-5]  BACKWARD head micro-batch [01]  +loss  '
    cmp -s late/model/model.safetensors late_told/model/model.safetensors || failed "values changed a replayed run"
    unset WEFT_LATE_MODE WEFT_PLUGIN_PATH
fi

# In bf16 a carry has two bytes per element.
prints "$weft" train run.ini run.out=half train.precision=bf16 --print-values 1
count 2 '^step 1  FORWARD embed micro-batch [01]  +carry  '

refused "--print-values follows one rank, and --ranks asks for 2" "$weft" train run.ini run.out=two --ranks 2 --print-values 1
if has mpich; then # a launcher's ranks are not requested with a flag
    # shellcheck disable=SC2046  # a command and its arguments
    refused "--print-values follows one rank, and this run has 2" $(launcher mpich 2) "$weft" train run.ini run.out=two \
        strategy.plugin=ddp --print-values 1
fi
refused "--quiet prints no tables" "$weft" train run.ini run.out=two --quiet --print-values 1
[ ! -e two ] || failed "a run that was refused has left a directory"
[ "$failures" = 0 ]
