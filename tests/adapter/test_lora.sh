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
# Ranks and alphas of single modules, and modules that are left out.
refused "[adapter] rank_pattern has 'q_prj', which is none of the modules that are adapted; the nearest is q_proj. Adapted are q_proj, k_proj" \
    "$weft" plan run.ini adapter.rank_pattern=q_prj:4
refused "[adapter] rank_pattern gives 'model.layers.0.self_attn.k_proj' rank 30, and it is (20, 40): a rank is at most the smaller" \
    "$weft" plan run.ini adapter.rank_pattern=q_proj:30,k_proj:30
refused "[adapter] rank_pattern has 'q_proj:0', whose rank is '0': it is a whole number from 1 to 65536" \
    "$weft" plan run.ini adapter.rank_pattern=q_proj:0
refused "[adapter] rank_pattern has 'q_proj', which is no module and its rank: an entry is a name or pattern as targets has them" \
    "$weft" plan run.ini adapter.rank_pattern=q_proj
refused "[adapter] alpha_pattern has 'q_proj' twice, and a module has one alpha" "$weft" plan run.ini adapter.alpha_pattern=q_proj:2,q_proj:3
refused "[adapter] alpha_pattern has 'up_proj', which is none of the modules that are adapted; the nearest is" \
    "$weft" plan run.ini adapter.alpha_pattern=up_proj:4 adapter.targets=q_proj,k_proj
refused "[adapter] exclude has 'q_prj', which is no module of this model that can be adapted; the nearest is q_proj" \
    "$weft" plan run.ini adapter.exclude=q_prj
refused "[adapter] exclude = *_proj leaves out every module that targets = all-linear chooses" "$weft" plan run.ini adapter.exclude=*_proj
refused "[adapter] exclude = *.q_proj leaves out every module that regex = .*q_proj chooses" \
    "$weft" plan run.ini 'adapter.regex=.*q_proj' adapter.exclude=*.q_proj
refused "did you mean exclude?" "$weft" plan run.ini adapter.excluded=q_proj
refused "[adapter] has no key target; did you mean targets?" "$weft" plan run.ini adapter.target=q_proj
refused "[adapter] r = 3 is a key of another adapter than none, which is chosen: set plugin = lora, or put it into [adapter.lora]" \
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

# Of r = 3: q_proj has 5 everywhere but in block 0, with 1; down_proj has 40, which is as much as it can.
trained $((3 * block + 2 * 2 * 80 - 2 * 80 + 3 * 37 * 128)) 'adapter.rank_pattern=*.0.self_attn.q_proj:1, q_proj:5, down_proj:40'
trained $((3 * block)) adapter.rank_pattern=none adapter.alpha_pattern=q_proj:2 adapter.exclude=none
trained $((3 * block - 3 * 3 * 80 - 3 * 3 * 128)) 'adapter.exclude=q_proj, *.1.mlp.*'
trained $((3 * block)) adapter.targets=all-linear,embed_tokens adapter.exclude=embed_tokens,lm_head

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
# Base and adapter in units of their own, each matrix by itself, of odd ranks side by side.
patterns="adapter.rank_pattern=q_proj:5,layers.1.mlp.up_proj:1,*mlp*:7 adapter.alpha_pattern=v_proj:5,q_proj:3.5
    adapter.exclude=k_proj,layers.0.mlp.down_proj adapter.dropout=0.1 adapter.rank_stabilised=yes"
# shellcheck disable=SC2086 # keys
prove 38 policy.plugin=class policy.classes=Linear,LlamaDecoderLayer adapter.targets=all-linear,embed_tokens \
    train.trainable=adapter,*norm.weight train.precision=bf16 $patterns
# shellcheck disable=SC2086 # keys
! is_full || prove 38 adapter.dora=yes $patterns
exit $((failures > 0))
