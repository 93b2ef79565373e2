#!/bin/sh
# An adapter built only against the SDK's headers (sdk/template/adapter-core): it trains, has one result under
# every strategy, is saved and continued; and violations of adapter rules are reported with its name. ctest
# sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$dir/plugins:$WEFT_BUILD/plugins"

mkdir plugins
source=$WEFT_SOURCE/sdk/template/adapter-core/core.c
build adapter core "${CC:-cc}" -O2 -Wall -Wextra -Wpedantic -Werror "$source" -lm || failed "core.c does not build"
make_run <<'INI'
steps = 6
[eval]
every = none
[optimizer]
plugin = adamw
lr     = 1e-2
[adapter]
plugin = core
rank   = 3
[device]
threads = 1
INI

"$weft" plan run.ini --json >plan.json 2>log || failed "plan" log
tr -d ' \n' <plan.json | grep -qF "\"trained\":$((3 * 7 * 9))," || failed "the cores alone are trained" plan.json
limit "$weft" train run.ini --overwrite train.steps=12 >log 2>&1 || failed "train" log
grep -o '"loss": *[0-9.e+-]*' out/metrics.jsonl | sed 's/.*: *//' |
    awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 12 && last < first) }' || failed "it learns nothing" out/metrics.jsonl
says out/model/adapter_config.json '"peft_type": "CORE"'
mv out/model first
limit "$weft" train run.ini --overwrite model.path=first model.start=weights adapter.from=first train.steps=1 optimizer.lr=0 \
    >log 2>&1 || failed "continue" log
"$weft" eval run.ini model.path=first model.start=weights adapter.from=first adapter.plugin=core --json >log 2>&1 || failed "eval" log
refused "cannot be merged into a model's weights" "$weft" merge first first merged

# ---- violations

broken() { # broken ID SED TEXT: core.c with this change is rejected with the text
    sed "s/\"core\", \"0/\"$1\", \"0/; $2" "$source" >"$1.c"
    ! cmp -s "$1.c" "$source" || failed "$1 is not broken"
    build adapter "$1" "${CC:-cc}" -O1 "$1.c" -lm
    refused "$3" "$weft" plan run.ini "adapter.plugin=$1"
    says log "adapter:$1"
}
broken narrow 's/return ops->add(g, y, b);/return a;/' "it returns 3 fp32 per position; the model requires 40 fp32"
broken nothing 's/return ops->add(g, y, b);/return (weft_value){0};/' "it returns no value of this segment"
broken idle 's/job->claim(b->ctx, i);//' "the adapter plugin claims no site"
broken beyond 's/job->claim(b->ctx, i);/job->claim(b->ctx, job->n_sites);/' "claims site 26 of 26"
broken shape 's/job->claim(b->ctx, i);/b->carry(b->ctx, 8);/' "declares a carry, which only a model has"
broken twice 's/"core_R", self/"core_R", 0 * self/' "with the shape (0,"
broken silent 's/.create = core_create,//' "leaves the required slot create of adapter:silent empty"

# ---- several ranks

has mpich || exit $((failures > 0))
limit "$weft" prove run.ini comm.plugin=mpi-mpich --ranks 3 --steps 2 >out.txt 2>err.txt || failed "prove" out.txt err.txt
says out.txt "equal, 0 not covered, 0 different"
exit $((failures > 0))
