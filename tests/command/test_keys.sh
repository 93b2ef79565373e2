#!/bin/sh
# Keys of selected and unselected plugins: one line of a file changes its strategy or policy, also to an
# external plugin and back. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

mkdir plugins
build strategy steady "${CC:-cc}" -O2 "$WEFT_SOURCE/tests/command/steady.c"
make_model model 32 8 56 2 512
make_text 40
cat >run.ini <<'INI'
[run]
out = one
[model]
plugin = llama
path   = model
start  = fresh
[tokenizer]
plugin = bpe
bos    = yes
[data]
plugin   = text
path     = games.txt
document = line
context  = 48
[train]
steps        = 4
global_batch = 4
[optimizer]
plugin = adamw
lr     = 3e-3
[optimizer.sgd]
momentum = 0.9
[device]
plugin  = cpu
threads = 1
[checkpoint]
every = 2
[plugins]
path = plugins
[strategy]
plugin = single
reduce = tree
[strategy.fsdp]
shard    = hybrid
prefetch = 2
[strategy.mp]
schedule = gpipe
[strategy.steady]
pace = slower
map  = maps/steady.txt
[policy]
plugin = block
[policy.class]
classes = LlamaMLP
[policy.size]
size = 9k
INI
edited() { # edited FROM TO: copies run.ini with one changed line to edited.ini
    sed "s/^$1\$/$2/" run.ini >edited.ini
    [ "$(diff run.ini edited.ini | grep -c '^>')" = 1 ] || failed "s/$1/$2/ is not one line"
}
says_of() { # says_of FROM TO TEXT: check and plan both reject that change with the text
    edited "$1" "$2"
    refused "$3" "$weft" config check edited.ini
    refused "$3" "$weft" plan edited.ini
}
wants() { # wants PATTERN: a line of `printed` matches
    grep -Eqx -- "$1" printed || failed "no line $1" printed
}

# ---- one line, also to an external plugin and back
prints "$weft" config check run.ini
prints "$weft" train run.ini --quiet
for strategy in steady fsdp ddp mp; do
    edited 'plugin = single' "plugin = $strategy"
    prints "$weft" config check edited.ini
    case $strategy in fsdp) change=strategy.shard=full ;; *) change=strategy.reduce=tree ;; esac # a group of one rank
    prints "$weft" train edited.ini run.out="of-$strategy" --quiet "$change"
    cmp one/model/model.safetensors "of-$strategy/model/model.safetensors" || failed "strategy $strategy gives other bits"
done
for policy in class size whole; do
    edited 'plugin = block' "plugin = $policy"
    prints "$weft" train edited.ini run.out="by-$policy" --quiet
    cmp one/model/model.safetensors "by-$policy/model/model.safetensors" || failed "policy $policy gives other bits"
done
edited 'plugin = adamw' 'plugin = sgd'
prints "$weft" config explain edited.ini
wants 'optimizer\.momentum +0\.9 +edited\.ini:[0-9]+, in \[optimizer\.sgd\]'
wants 'optimizer\.lr +0\.003 +edited\.ini:[0-9]+'

# ---- sources of values
prints "$weft" config explain run.ini
wants 'strategy\.reduce +tree +run\.ini:[0-9]+'
wants 'strategy\.fsdp\.prefetch +2 +run\.ini:[0-9]+, idle'
wants "strategy\\.steady\\.map +$(pwd -P)/maps/steady\\.txt +run\\.ini:[0-9]+, idle"
wants 'policy\.size\.size +9000 +run\.ini:[0-9]+, idle'
grep -q '^strategy\.prefetch' printed && failed "a key that single does not offer is told" printed
prints "$weft" config explain run.ini strategy.plugin=fsdp
wants 'strategy\.prefetch +2 +run\.ini:[0-9]+, in \[strategy\.fsdp\]'
wants 'strategy\.root +sharded +default'
prints "$weft" config explain run.ini strategy.plugin=fsdp strategy.fsdp.prefetch=3
wants 'strategy\.prefetch +3 +command line, in \[strategy\.fsdp\]'
prints "$weft" config explain run.ini strategy.plugin=fsdp strategy.fsdp.prefetch=3 strategy.prefetch=4
wants 'strategy\.prefetch +4 +command line'
prints "$weft" config explain run.ini strategy.fsdp.prefetch=3
wants 'strategy\.fsdp\.prefetch +3 +command line, idle'
prints "$weft" config explain run.ini --json
grep -A3 '"strategy.fsdp.prefetch"' printed | grep -q '"idle": true' || failed "JSON does not say idle" printed
prints "$weft" plan run.ini strategy.plugin=fsdp
grep -q '^world .*strategy fsdp: shard hybrid, .*reduce tree, reduce_dtype fp32, prefetch 2$' printed ||
    failed "plan does not use the plugin's own section" printed

# ---- saved configurations
for kept in one/config.ini one/checkpoints/step-4/state/config.ini; do
    for line in 'shard = hybrid' 'prefetch = 2' 'schedule = gpipe' 'pace = slower' "map = $(pwd -P)/maps/steady.txt" \
        'size = 9k' 'classes = LlamaMLP' 'momentum = 0.9'; do
        grep -qx -- "$line" $kept || failed "$kept has no line $line" $kept
    done
    [ "$(grep -c '^\[strategy\.' $kept)" = 3 ] || failed "$kept: other sections" $kept
done
for strategy in fsdp steady; do # a saved configuration is also changed with one line
    sed "s/^plugin = single\$/plugin = $strategy/" one/config.ini >kept.ini
    prints "$weft" config check kept.ini
done
prints "$weft" train one/config.ini run.out=again --quiet
cmp one/model/model.safetensors again/model/model.safetensors || failed "the resolved configuration gives other bits"
cp -r of-steady resumed
prints "$weft" train resumed/config.ini run.out=resumed train.steps=6 strategy.plugin=single --resume --quiet
prints "$weft" train run.ini run.out=six train.steps=6 --quiet
cmp six/model/model.safetensors resumed/model/model.safetensors || failed "a resume under another strategy"

# ---- errors
refused '[policy.block] has no key size. It has no keys' "$weft" config check run.ini policy.block.size=1
says_of 'schedule = gpipe' 'schedule = gpip' \
    'edited.ini:37: [strategy.mp] schedule = gpip is not one of: naive,gpipe,1f1b; did you mean gpipe?'
says_of 'prefetch = 2' 'prefetch = 99' 'edited.ini:35: [strategy.fsdp] prefetch = 99 is outside [0,16]'
says_of 'pace = slower' 'pcae = slower' 'edited.ini:39: [strategy.steady] has no key pcae; did you mean pace?'
says_of 'schedule = gpipe' 'prefetch = 1' \
    'edited.ini:37: [strategy.mp] prefetch = 1 is not supported by strategy mp. Fix: remove it'
says_of '\[strategy.fsdp\]' '[strategy.fdsp]' \
    'edited.ini:33: [strategy.fdsp] names no plugin: there is no strategy plugin "fdsp"; did you mean fsdp?'
says_of '\[strategy.fsdp\]' '[strategey.fsdp]' \
    'edited.ini:33: there is no section [strategey.fsdp]; did you mean strategy.fsdp?'
says_of '\[strategy.fsdp\]' '[train.fsdp]' 'edited.ini:33: there is no section [train.fsdp]. The sections are: '
says_of 'reduce = tree' 'shard = full' \
    'edited.ini:32: [strategy] shard = full is a key of another strategy than the selected single. Fix: set plugin = fsdp, or move it to [strategy.fsdp]'
says_of 'reduce = tree' 'reduce_at = last' 'move it to [strategy.ddp] or [strategy.fsdp]'
says_of 'reduce = tree' 'pace = slow' 'move it to [strategy.steady]'
says_of 'reduce = tree' 'prefetch = 2' \
    'edited.ini:32: [strategy] prefetch = 2 is not supported by strategy single. Fix: remove it, or move it to [strategy.fsdp]'
says_of 'reduce = tree' 'redcue = tree' 'edited.ini:32: [strategy] has no key redcue; did you mean reduce?'
edited 'reduce = tree' 'prefetch = 1' # its default is not reported
prints "$weft" config check edited.ini
refused '[strategy] reduce_dtype = bf16 is not supported by strategy steady' \
    "$weft" config check run.ini strategy.plugin=steady strategy.reduce_dtype=bf16
refused 'command line: [policy] classes = layer is a key of another policy than the selected block. Fix: set plugin = class, or move it to [policy.class]' \
    "$weft" plan run.ini policy.classes=layer
# In both sections: an error of the file, but not of an override.
sed 's/^reduce = tree$/prefetch = 3/; s/^plugin = single$/plugin = fsdp/' run.ini >both.ini
refused 'both.ini:35: [strategy.fsdp] prefetch is set in line 32 too, in [strategy]' "$weft" plan both.ini
sed 's/^plugin = single$/plugin = fsdp/' run.ini >own.ini
prints "$weft" config explain own.ini strategy.prefetch=3
wants 'strategy\.prefetch +3 +command line'

# ---- plugins outside the search path, or unusable on this machine
cp plugins/weft-strategy-steady.so steady.so
sed 's#^plugin = single$#plugin = ./steady.so#; /^path = plugins$/d' run.ini >by_path.ini
prints "$weft" config explain by_path.ini
wants 'strategy\.pace +slower +by_path\.ini:[0-9]+, in \[strategy\.steady\]'
sed '/^path = plugins$/d' run.ini >nowhere.ini
refused '[strategy.steady] names no plugin: there is no strategy plugin "steady"' "$weft" plan nowhere.ini
echo "no plugin" >plugins/weft-strategy-broken.so
printf '[strategy.broken]\nanything = 3\n' | cat run.ini - >broken.ini
prints "$weft" config check broken.ini
grep -q '\[strategy.broken\] is not validated: the plugin cannot be used here: ' printed.err ||
    failed "nobody says that it is not judged" printed.err
hash=$(sha256sum plugins/weft-strategy-steady.so | cut -c1-64)
prints "$weft" config check run.ini plugins.pin="strategy:steady=$hash" # a pin of an unselected plugin

# ---- an old configuration: `none` for each key of an unselected plugin
sed '/^\[strategy/,/^\[policy\]/d; /^classes/d; /^size/d; /^\[policy/d; s/^plugin = block$//; s/^\[optimizer.sgd\]//; s/^momentum.*//' \
    run.ini >former.ini
cat >>former.ini <<'INI'
[policy]
plugin = block
classes = none
size = none
[strategy]
plugin = single
reduce = tree
reduce_dtype = fp32
shard = none
shard_group = none
reshard_after_forward = none
root = none
prefetch = none
reduce_at = none
device_map = none
schedule = none
INI
prints "$weft" train former.ini run.out=former --quiet
cmp one/model/model.safetensors former/model/model.safetensors || failed "a configuration of before gives other bits"
grep -qE '^(shard|root|device_map|classes) = ' former/config.ini &&
    failed "what says nothing is kept" former/config.ini
exit "$((failures > 0))"
