#!/bin/sh
# Checks that the quick start's fine-tuning improves the model: over three seeds, its loss on unseen games is
# at least 0.05 nats below the base's. Takes three times the training of the quick start.
#   tests/bench/gain.sh [section.key=value ...]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
weft=${WEFT_BUILD_DIR:-$root/build}/weft
ini=$root/configs/chess.ini
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
loss() {
    json=$("$weft" eval "$ini" "model.path=$1" --json) || return
    echo "$json" | sed 's/.*"loss": \([0-9.]*\).*/\1/'
}

base=$(loss "$root/configs/chess/base")
echo "base    $base"
worst=9
for seed in 1 2 3; do
    "$weft" train "$ini" "run.out=$dir/$seed" "run.seed=$seed" --quiet "$@"
    tuned=$(loss "$dir/$seed/model")
    gain=$(awk "BEGIN { print $base - $tuned }")
    echo "seed $seed  $tuned  ($gain nats lower)"
    worst=$(awk "BEGIN { print ($gain < $worst) ? $gain : $worst }")
done
awk "BEGIN { exit !($worst >= 0.05) }" || { echo "the fine-tune gains too little: $worst nats, 0.05 are needed"; exit 1; }
