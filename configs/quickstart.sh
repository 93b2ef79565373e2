#!/bin/sh
# The main job, from nothing: installs what is needed, builds, and fine-tunes a small chess model on games that it has not
# seen. Takes two to five minutes on two cores.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-runs/quickstart}
weft=${WEFT_BUILD_DIR:-$root/build}/weft
ini=$root/configs/chess.ini
cd "$root"

sh configs/packages.sh
sh configs/build.sh -DWEFT_TESTS=OFF

game() { "$weft" generate "$ini" "model.path=$1" --prompt "1. e4 e5" --tokens 60 --temperature 0.5; }
loss() {
    json=$("$weft" eval "$ini" "model.path=$1" --json) || return
    echo "$json" | LC_ALL=C awk -F '[:,]' '{ printf "%.4f\n", $2 }'
}

echo
echo "A base model that has seen weak games of every opening. On King's Gambit games of a strong player:"
before=$(loss configs/chess/base)
echo "  loss $before"
echo "  $(game configs/chess/base)"
echo
"$weft" train "$ini" "run.out=$out" --overwrite
echo
after=$(loss "$out/model")
echo "Games that neither base nor fine-tune has seen: loss $before before, $after after."
echo "  $(game "$out/model")"
cat <<TEXT

What to do next
  edit configs/chess.ini: steps, lr, schedule, [train] trainable = last:2, [data] path = your own text
  build/weft plan configs/chess.ini                       what it takes, before it runs
  build/weft plugins describe optimizer:adamw             every key of a plugin
  build/weft generate configs/chess.ini model.path=$out/model --prompt "1. e4 e5 2. f4"
TEXT
