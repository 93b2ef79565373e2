#!/bin/sh
# check.sh FILE: the plugin is loaded and described; a small model is trained with it, once in one go and once with a stop
# and a resume between, and both must be the same model to the byte; and every strategy that is there must give the
# bits of every other. WEFT=<program> where weft is not in PATH.
set -eu
weft=${WEFT:-weft}
here=$(cd "$(dirname "$0")" && pwd)
plugin=$(realpath "${1:-weft-weftnew-kind-weftnew-id.so}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cp -r "$here/try" "$work/"
cd "$work/try"

"$weft" plugins describe "weftnew-kind:$plugin"
"$weft" train run.ini "weftnew-kind.plugin=$plugin" run.out=whole train.steps=4
"$weft" train run.ini "weftnew-kind.plugin=$plugin" run.out=halves train.steps=2
"$weft" train run.ini "weftnew-kind.plugin=$plugin" run.out=halves train.steps=4 --resume
cmp whole/model/model.safetensors halves/model/model.safetensors
"$weft" prove run.ini "weftnew-kind.plugin=$plugin" --steps 2 --ranks "${RANKS:-2}"
echo "check.sh: weftnew-kind:weftnew-id trains, resumes and is proved"
