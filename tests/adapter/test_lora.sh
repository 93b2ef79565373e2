#!/bin/sh
# The built-in adapter lora: trained and frozen parameters in plans and runs; one result under all strategies
# and policies; and errors. ctest sets WEFT_BUILD and WEFT_SOURCE.
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
plan() { # plan argument...: output in plan.txt
    "$weft" plan run.ini "$@" >plan.txt 2>log || failed "plan $*" log
}

# ---- errors

refused "[adapter] targets has 'q_prj', which is no module of this model that can be adapted; the nearest is q_proj" \
    "$weft" plan run.ini adapter.targets=q_prj
refused "[adapter] r is 30, and 'model.layers.0.self_attn.k_proj' is (20, 40): a rank is at most the smaller" \
    "$weft" plan run.ini adapter.r=30
refused "[adapter] layers is 'first:4'; it is all, first:N or last:N with N from 1 to 3" \
    "$weft" plan run.ini adapter.layers=first:4
refused "[adapter] regex '(' is no regular expression" "$weft" plan run.ini 'adapter.regex=('
# Ranks and alphas of single modules, and excluded modules.
refused "[adapter] rank_pattern has 'q_prj', which is no adapted module; the nearest is q_proj. Adapted are q_proj, k_proj" \
    "$weft" plan run.ini adapter.rank_pattern=q_prj:4
refused "[adapter] rank_pattern sets 'model.layers.0.self_attn.k_proj' to rank 30, and the matrix is (20, 40)" \
    "$weft" plan run.ini adapter.rank_pattern=q_proj:30,k_proj:30
refused "[adapter] rank_pattern has 'q_proj:0' with the rank '0'" \
    "$weft" plan run.ini adapter.rank_pattern=q_proj:0
refused "[adapter] rank_pattern has 'q_proj', which is no module and its rank: an entry is a name or pattern as targets has them" \
    "$weft" plan run.ini adapter.rank_pattern=q_proj
refused "[adapter] alpha_pattern has 'q_proj' more than once" "$weft" plan run.ini adapter.alpha_pattern=q_proj:2,q_proj:3
refused "[adapter] alpha_pattern has 'up_proj', which is no adapted module; the nearest is" \
    "$weft" plan run.ini adapter.alpha_pattern=up_proj:4 adapter.targets=q_proj,k_proj
refused "[adapter] exclude has 'q_prj', which is no module of this model that can be adapted; the nearest is q_proj" \
    "$weft" plan run.ini adapter.exclude=q_prj
refused "[adapter] exclude = *_proj excludes every module that targets = all-linear selects" "$weft" plan run.ini adapter.exclude=*_proj
refused "[adapter] exclude = *.q_proj excludes every module that regex = .*q_proj selects" \
    "$weft" plan run.ini 'adapter.regex=.*q_proj' adapter.exclude=*.q_proj
refused "did you mean exclude?" "$weft" plan run.ini adapter.excluded=q_proj
refused "[adapter] has no key target; did you mean targets?" "$weft" plan run.ini adapter.target=q_proj
refused "[adapter] r = 3 is a key of another adapter than the selected none. Fix: set plugin = lora, or move it to [adapter.lora]" \
    "$weft" plan run.ini adapter.plugin=none
for section in adapter adapter.lora; do
    refused "[$section] r = 3 is a key of an adapter, and [adapter] names no plugin. Fix: add plugin = lora there" \
        "$weft" plan bare.ini $section.r=3
done
prints "$weft" plan bare.ini adapter.lora.r=3 adapter.plugin=none
refused "all trains every linear of the layers. Fix: add an adapter, [adapter] plugin = lora, which is trained on it" \
    "$weft" plan bare.ini model.base=nf4
refused "all trains every linear of the layers. Fix: set trainable = adapter, which trains the adapter on the frozen model" \
    "$weft" plan run.ini model.base=nf4 train.trainable=all
refused "[train] trainable = adapter cannot be used: 'adapter'" \
    "$weft" plan bare.ini train.trainable=adapter
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' model/config.json >config.json
cp -r model untied
mv config.json untied/config.json
refused "[adapter] targets has 'lm_head'" \
    "$weft" plan run.ini model.path=untied adapter.targets=lm_head

# ---- trained parameters

trained() { # trained NUMBER argument...: number of trained elements in a plan
    number=$1
    shift
    plan --json "$@"
    tr -d ' \n' <plan.txt | grep -qF "\"trained\":$number," || failed "plan $*: not $number trained" plan.txt
}
# Per block: q, o (40,40); k, v (20,40); gate, up (88,40); down (40,88).
block=$((3 * (2 * 80 + 2 * 60 + 3 * 128)))
trained $((3 * block))
trained $block adapter.layers=1
trained $((3 * 3 * 80)) adapter.targets=q_proj
trained $((3 * 3 * 140)) 'adapter.regex=.*\.(q|v)_proj'
trained $((3 * 3 * 140)) 'adapter.targets=*.q_proj, *attn.v*'
trained $((3 * block + 3 * (521 + 40))) adapter.targets=all-linear,embed_tokens
trained $((3 * block + 7 * 40)) train.trainable=adapter,*norm.weight

# With r = 3: q_proj has 5, except 1 in block 0; down_proj has 40, its maximum.
trained $((3 * block + 2 * 2 * 80 - 2 * 80 + 3 * 37 * 128)) 'adapter.rank_pattern=*.0.self_attn.q_proj:1, q_proj:5, down_proj:40'
trained $((3 * block)) adapter.rank_pattern=none adapter.alpha_pattern=q_proj:2 adapter.exclude=none
trained $((3 * block - 3 * 3 * 80 - 3 * 3 * 128)) 'adapter.exclude=q_proj, *.1.mlp.*'
trained $((3 * block)) adapter.targets=all-linear,embed_tokens adapter.exclude=embed_tokens,lm_head

# No backward runs below the lowest adapter.
plan adapter.layers=last:1 --print-program
says plan.txt "BACKWARD layers.2.attn"
! grep -qE "BACKWARD (embed|layers\.[01]\.)" plan.txt || failed "a backward below the lowest adapter" plan.txt

# ---- it learns, and the base does not change

limit "$weft" train run.ini --overwrite train.steps=12 >log 2>&1 || failed "train" log
grep -o '"loss": *[0-9.e+-]*' out/metrics.jsonl | sed 's/.*: *//' |
    awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 12 && last < first) }' ||
    failed "the adapter learns nothing" out/metrics.jsonl

# ---- plugin = none evaluates the base of a directory with an adapter

loss() { # loss argument...: of an evaluation
    limit "$weft" eval "$@" --json 2>log | tr -d ' \n' | sed -n 's/.*"loss":\([^,}]*\).*/\1/p'
}
limit "$weft" train bare.ini adapter.plugin=lora adapter.lora.r=3 run.out=own train.steps=2 >log 2>&1 || failed "train" log
base=$(loss bare.ini)
[ -n "$base" ] && [ "$(loss own)" != "$base" ] || failed "own has the loss of its base" log
[ "$(loss own adapter.plugin=none)" = "$base" ] || failed "eval own adapter.plugin=none" log
[ "$(loss bare.ini --adapter own/model adapter.plugin=none)" = "$base" ] || failed "eval --adapter own/model adapter.plugin=none" log

# ---- several ranks

has mpich || exit $((failures > 0))
prove() { # prove CELLS argument...: this number of cells, all equal
    cells=$1
    shift
    limit "$weft" prove run.ini comm.plugin=mpi-mpich --ranks 3 --steps 2 "$@" >out.txt 2>err.txt ||
        failed "prove $*" out.txt err.txt
    says out.txt "$cells equal, 0 not covered, 0 different"
}
! is_full || prove 38
# Base and adapter in separate units, each matrix on its own, with several odd ranks.
patterns="adapter.rank_pattern=q_proj:5,layers.1.mlp.up_proj:1,*mlp*:7 adapter.alpha_pattern=v_proj:5,q_proj:3.5
    adapter.exclude=k_proj,layers.0.mlp.down_proj adapter.dropout=0.1 adapter.rank_stabilised=yes"
# shellcheck disable=SC2086 # keys
prove 38 policy.plugin=class policy.classes=Linear,LlamaDecoderLayer adapter.targets=all-linear,embed_tokens \
    train.trainable=adapter,*norm.weight train.precision=bf16 $patterns
grep -q "3  fsdp full" out.txt || failed "no fsdp on 3 ranks" out.txt
# shellcheck disable=SC2086 # keys
! is_full || prove 38 adapter.dora=yes $patterns
exit $((failures > 0))
