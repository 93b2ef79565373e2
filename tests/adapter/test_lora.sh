#!/bin/sh
# The built-in adapter lora: what is trained and what is not, in plans and in runs; one result under all strategies and
# policies; and the sentences for what cannot be.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"

make_run <<'INI'
steps        = 6
clip         = 0.5
[eval]
every = none
[optimizer]
plugin = adamw
lr     = 3e-3
[adapter]
plugin = lora
r      = 3
[device]
threads = 1
INI
sed '/^\[adapter\]/,/^r /d' run.ini >bare.ini
plan() { # plan argument...: in plan.txt
    "$weft" plan run.ini "$@" >plan.txt 2>log || failed "plan $*" log
}

# ---- what cannot be is told

refused "[adapter] targets has 'q_prj', which is no module of this model that can be adapted; the nearest is q_proj" \
    "$weft" plan run.ini adapter.targets=q_prj
refused "[adapter] r is 30, and 'model.layers.0.self_attn.k_proj' is (20, 40): a rank is at most the smaller" \
    "$weft" plan run.ini adapter.r=30
refused "[adapter] layers is 'first:4'; it is all, first:N or last:N with N from 1 to 3" \
    "$weft" plan run.ini adapter.layers=first:4
refused "[adapter] regex '(' is no regular expression" "$weft" plan run.ini 'adapter.regex=('
refused "[adapter] has no key target; did you mean targets?" "$weft" plan run.ini adapter.target=q_proj
refused "[adapter] r = 3 is a key of another adapter than none, which is chosen: put it into [adapter.lora]" \
    "$weft" plan run.ini adapter.plugin=none
for section in adapter adapter.lora; do
    refused "[$section] r = 3 is a key of an adapter, and [adapter] names no plugin, so that it would do nothing: add plugin = lora there" \
        "$weft" plan bare.ini $section.r=3
done
prints "$weft" plan bare.ini adapter.lora.r=3 adapter.plugin=none
refused "all trains every linear of the layers: add an adapter, [adapter] plugin = lora, which is trained on it" \
    "$weft" plan bare.ini model.base=nf4
refused "all trains every linear of the layers: set trainable = adapter, and the adapter is trained on it" \
    "$weft" plan run.ini model.base=nf4 train.trainable=all
refused "[train] trainable = adapter cannot be used: 'adapter' names nothing" \
    "$weft" plan bare.ini train.trainable=adapter
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' model/config.json >config.json
cp -r model untied
mv config.json untied/config.json
refused "[adapter] targets has 'lm_head', which makes the logits; no adapter stands there" \
    "$weft" plan run.ini model.path=untied adapter.targets=lm_head

# ---- what is trained

trained() { # trained NUMBER argument...: elements that a plan says are trained
    number=$1
    shift
    plan --json "$@"
    tr -d ' \n' <plan.txt | grep -qF "\"trained\":$number," || failed "plan $*: not $number trained" plan.txt
}
# Of each block: q, o (40,40); k, v (20,40); gate, up (88,40); down (40,88).
block=$((3 * (2 * 80 + 2 * 60 + 3 * 128)))
trained $((3 * block))
trained $block adapter.layers=1
trained $((3 * 3 * 80)) adapter.targets=q_proj
trained $((3 * 3 * 140)) 'adapter.regex=.*\.(q|v)_proj'
trained $((3 * 3 * 140)) 'adapter.targets=*.q_proj, *attn.v*'
trained $((3 * block + 3 * (521 + 40))) adapter.targets=all-linear,embed_tokens
trained $((3 * block + 7 * 40)) train.trainable=adapter,*norm.weight

# Nothing below the lowest adapter is run backward.
plan adapter.layers=last:1 --print-program
says plan.txt "BACKWARD layers.2.attn"
! grep -qE "BACKWARD (embed|layers\.[01]\.)" plan.txt || failed "a backward below the lowest adapter" plan.txt

# ---- it learns, and the base stays as it is

limit "$weft" train run.ini --overwrite train.steps=12 >log 2>&1 || failed "train" log
grep -o '"loss": *[0-9.e+-]*' out/metrics.jsonl | sed 's/.*: *//' |
    awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 12 && last < first) }' ||
    failed "the adapter learns nothing" out/metrics.jsonl

# ---- several ranks

has mpich || exit $((failures > 0))
prove() { # prove CELLS argument...: as many cells, all equal
    cells=$1
    shift
    limit "$weft" prove run.ini comm.plugin=mpi-mpich --ranks 3 --steps 2 "$@" >out.txt 2>err.txt ||
        failed "prove $*" out.txt err.txt
    says out.txt "$cells equal, 0 not covered, 0 different"
}
prove 38
grep -q "3  fsdp full" out.txt || failed "no fsdp on 3 ranks" out.txt
# Base and adapter in units of their own, each matrix by itself.
prove 38 policy.plugin=class policy.classes=Linear,LlamaDecoderLayer adapter.targets=all-linear,embed_tokens \
    train.trainable=adapter,*norm.weight train.precision=bf16
exit $((failures > 0))
