#!/bin/sh
# `weft train run.ini --ranks N` with a note-only communicator and a minimal launcher, and with each MPI of
# this build. Strategy single rejects several ranks: here before any is started, and otherwise in the ranks,
# which shows that the launcher started them. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

fail() {
    echo "FAILED: $1" >&2
    cat out.txt err.txt >&2
    exit 1
}
gives() { # gives STATUS command...: output in out.txt and err.txt
    wanted=$1 status=0
    shift
    "$@" >out.txt 2>err.txt || status=$?
    [ "$status" = "$wanted" ] || fail "exit status $status, expected $wanted: $*"
}
says() { # says TEXT: a line of stderr equals the text
    grep -qxF -- "$1" err.txt || fail "nobody says \"$1\""
}
lines() { # lines N of stderr
    [ "$(wc -l <err.txt)" = "$1" ] || fail "$(wc -l <err.txt) lines were said, expected $1"
}

mkdir plugins
cp "$WEFT_SOURCE/tests/launch/launcher.sh" launcher
chmod +x launcher
"${CC:-cc}" -std=c11 -fPIC -shared -fvisibility=hidden -I"$WEFT_SOURCE/sdk/include" \
    -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" '-DFAKE_ID="mpi-fake"' \
    "-DFAKE_LAUNCH=\"$dir/launcher -n {ranks}\"" '-DFAKE_LAUNCHED="FAKE_RANK FAKE_SIZE"' \
    "$WEFT_SOURCE/tests/launch/fake.c" -o plugins/weft-comm-mpi-fake.so
export WEFT_PLUGIN_PATH="$dir/plugins"
make_run <<'INI'
steps = 2
[strategy]
plugin = ddp
INI
no_world="comm:mpi-fake ($dir/plugins/weft-comm-mpi-fake.so): A fake communicator makes no world."
refusal() { # refusal N
    echo "strategy single runs on one rank, and this job has $1: start one process, or choose a strategy that spreads a model over ranks"
}

# ---- started by weft
gives 1 "$weft" train run.ini --ranks 3
for rank in 0 1 2; do says "[$rank] weft train: $no_world"; done
says "weft train: the 3 ranks ended with status 1; their errors are printed above"
lines 4
gives 1 "$weft" train run.ini --ranks 3 --verbose
grep -q "^weft: \[comm\] plugin = mpi is mpi-fake: its launcher is there" err.txt || fail "the choice is not explained"
lines 5
gives 1 "$weft" train run.ini --ranks 2 --quiet
lines 3
gives 1 "$weft" train run.ini --ranks=2 comm.plugin=mpi-fake # no launcher is selected automatically
lines 3
gives 1 "$weft" train run.ini --ranks 2 comm.plugin="$dir/plugins/weft-comm-mpi-fake.so"
says "[1] weft train: $no_world"
echo "ranks are started"

# ---- an error common to all ranks is reported once, and no rank is started
once() { # once TEXT argument...: only this text
    text=$1
    shift
    gives 1 "$weft" train run.ini run.out=three --ranks 3 "$@"
    grep -qF -- "weft train: $text" err.txt || fail "nobody says \"$text\""
    lines 1
}
once "command line: [optimizer] lr = fast" optimizer.lr=fast
mv model/config.json kept.json
once "$dir/model/config.json" run.seed=1
mv kept.json model/config.json
mv model/tokenizer.json kept.json
once "" run.seed=1
grep -q "tokenizer.json" err.txt || fail "the tokenizer is missing"
mv kept.json model/tokenizer.json
once "$(refusal 3)" strategy.plugin=single
once "$dir/model: " model.start=weights
printf '\002\0\0\0\0\0\0\0{}' >model/model.safetensors
once "$dir/model: its tensors do not fit the model that $dir/model/config.json describes: " model.start=weights
rm model/model.safetensors
echo "mistakes are told once"

# ---- stopped: the message about continuing fits the command
mv launcher kept
printf '#!/bin/sh\nexit 75\n' >launcher
chmod +x launcher
gives 75 "$weft" train run.ini --ranks 2 --quiet
says "weft train: the 2 ranks were stopped by a signal: --resume goes on"
gives 75 "$weft" prove run.ini --ranks 2
says "weft prove: the 2 ranks were stopped by a signal; no state was saved"
mv kept launcher
echo "stopped ranks are told of"

# ---- started by a launcher
gives 1 ./launcher -n 2 "$weft" train run.ini
lines 2
gives 1 ./launcher -n 2 "$weft" train run.ini --verbose
says "[0] weft: [comm] plugin = mpi is mpi-fake: its launcher set FAKE_RANK"
says "[0] weft train: $no_world"
says "[1] weft train: $no_world"
lines 3
gives 1 ./launcher -n 2 "$weft" train run.ini --ranks 3
says "[1] weft train: --ranks is 3, but the launcher started 2 (FAKE_SIZE). Fix: use the same number"
gives 1 ./launcher -n 2 "$weft" train run.ini --ranks 2 comm.plugin=self
grep -q "self cannot join the 2 ranks that the launcher of mpi-fake started" err.txt || fail "another communicator"
gives 1 ./launcher -n 2 "$weft" eval run.ini
grep -q "^\[1\] weft eval: this command runs on one rank, and it is rank 1 of the 2" err.txt || fail "eval of two"
gives 1 ./launcher -n 2 "$weft" train run.ini run.log_ranks=0,x
says "[1] weft train: command line: [run] log_ranks = 0,x is not a list of ranks. Allowed: 0, all, or numbers separated by commas (0,2)"
gives 1 "$weft" train run.ini --ranks 2 run.log_ranks=2 # reported once, before any rank is started
says "weft train: command line: [run] log_ranks = 2 contains rank 2, but this run has ranks 0 to 1. Fix: remove it, or set all"
lines 1
echo "launched ranks find themselves"

# ---- started by srun, where Open MPI's ranks see the variables of PMIx and Slurm
if has openmpi; then
    launched() { # launched R argument...: weft as the process of rank R of 2
        rank=$1
        shift
        gives 1 env PMIX_RANK="$rank" SLURM_STEP_NUM_TASKS=2 "$weft" "$@"
    }
    launched 1 train run.ini --ranks 3
    says "[1] weft train: --ranks is 3, but the launcher started 2 (SLURM_STEP_NUM_TASKS). Fix: use the same number"
    lines 1
    launched 1 eval run.ini
    says "[1] weft eval: this command runs on one rank, and it is rank 1 of the 2 that a launcher started (PMIX_RANK): start it without a launcher"
    for rank in 0 1; do
        launched "$rank" train run.ini run.log_ranks=0,x
        says "[$rank] weft train: command line: [run] log_ranks = 0,x is not a list of ranks. Allowed: 0, all, or numbers separated by commas (0,2)"
    done
    launched 0 train run.ini --verbose
    says "[0] weft: [comm] plugin = mpi is mpi-openmpi: its launcher set PMIX_RANK"
    launched 2 train run.ini
    says "weft train: the environment has PMIX_RANK=2 and SLURM_STEP_NUM_TASKS=2, which is no rank of a world: start the ranks with their launcher, or unset both"
    echo "ranks of srun find themselves"
fi

# ---- one rank, and zero ranks
gives 0 "$weft" train run.ini --ranks 1
gives 0 ./launcher -n 1 "$weft" train run.ini run.out=two
cmp out/model/model.safetensors two/model/model.safetensors
gives 1 "$weft" train run.ini run.out=three --ranks 2 comm.plugin=self
grep -q "\[comm\] plugin = self is a world of one rank, but --ranks is 2" err.txt || fail "self of two"
gives 2 "$weft" train run.ini run.out=three --ranks 0
gives 2 "$weft" eval run.ini --ranks 2
grep -q "eval runs on one rank; train and plan take --ranks" err.txt || fail "eval --ranks"
gives 0 "$weft" plan run.ini --ranks 1
gives 1 "$weft" plan run.ini --ranks 64 strategy.plugin=single # without starting processes
says "weft plan: $(refusal 64)"
lines 2 # with the note about a padded vocabulary
[ ! -e three ] || fail "a run that could not begin left something"
echo "one rank runs alone"

# ---- with MPI
cat >half.c <<'C'
/* A device that only the first rank of a machine has: the other one tells so, and waits for nobody. */
#include "fault.h"
#include <weft/device.h>
static weft_device_plugin real, table;
static weft_status create(weft_device **out, const weft_host *host, const void *config, int32_t index, weft_error *err) {
    if (index == 1) return weft_error_set(err, WEFT_E_DEVICE, "There is no second one.");
    return real.create(out, host, config, index, err);
}
FAULT_NOTE(device, "half")
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.create = create;
    return fault_list(plugin, "half", &table);
}
C
build device half "${CC:-cc}" -O2 half.c "-DFAULT_OF=\"$WEFT_BUILD/plugins/weft-device-cpu.so\"" -I"$WEFT_SOURCE/tests/ranks"
saved() { # saved DIRECTORY: it contains a checkpoint
    ls "$1"/checkpoints/step-* >/dev/null 2>&1 || fail "$1 holds no checkpoint"
}
# A run without a reader for its output: the same with one rank and with two.
loses_output() { # loses_output WHAT argument...
    what=$1
    shift
    status=0
    limit "$weft" train run.ini run.out=full-$what "$@" >/dev/full 2>err.txt || status=$?
    [ $status = 1 ] && grep -q "the output cannot be written" err.txt || fail "$what: stdout is full: status $status"
    [ -e full-$what/model/model.safetensors ] || fail "$what: stdout is full: no model"
    status=0
    limit "$weft" train run.ini run.out=closed-$what "$@" <&- >&- 2>&- || status=$?
    [ $status = 1 ] || fail "$what: closed streams: status $status"
    cmp closed-$what/model/model.safetensors full-$what/model/model.safetensors || fail "$what: other models"
    tail -n 1 closed-$what/metrics.jsonl | grep -q '"step": 2,' || fail "$what: closed streams: other metrics"
    { status=0; limit "$weft" train run.ini run.out=left-$what train.steps=400 "$@" 2>err.txt ||
        status=$?; echo $status >status.txt; } | grep -q "step  *[0-9]*/400"
    [ "$(cat status.txt)" = 75 ] || fail "$what: the reader has gone: status $(cat status.txt)"
    saved left-$what
    { status=0; limit "$weft" train run.ini run.out=both-$what train.steps=400 "$@" 2>&1 ||
        status=$?; echo $status >status.txt; } | grep -q "step  *[0-9]*/400"
    [ "$(cat status.txt)" = 75 ] || fail "$what: the reader of both streams has gone: status $(cat status.txt)"
    saved both-$what
}
loses_output one
for id in mpich openmpi; do
    has $id || continue
    loses_output $id --ranks 2 comm.plugin=mpi-$id
    gives 0 "$weft" train run.ini --ranks 2 comm.plugin=mpi-$id run.out=of-$id
    # shellcheck disable=SC2046
    gives 1 $(launcher $id 2) "$weft" train run.ini run.out=three strategy.plugin=single
    says "[0] weft train: $(refusal 2)" # once for both
    ! grep -q '^\[1\]' err.txt || fail "rank 1 says it, too"
    cat >early.sh <<'SH'
# early.sh ARGUMENT... -- ARGUMENT...: weft train with the second arguments on rank 1, else with the first ones
case ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} in
1) while [ "$1" != -- ]; do shift; done; shift; exec "$weft" train "$@" ;;
esac
other=
for word; do [ "$word" != -- ] || break; other="$other $word"; done
exec "$weft" train $other
SH
    for reason in run.ini\ tokenizer.path=nowhere missing.ini "run.ini optimizer.lr=fast"; do # before MPI is initialized
        # shellcheck disable=SC2046,SC2086
        # MPICH returns the status of the failed rank, or the signal by which it ended the other one.
        status=0
        env weft="$weft" timeout 120 $(launcher $id 2) sh early.sh run.ini run.out=early-$id -- $reason run.out=early-$id \
            >out.txt 2>err.txt || status=$?
        case $id:$status in *:1 | mpich:9) ;; *) fail "$reason: exit status $status, expected 1" ;; esac
        grep -q "^\(\[1\] \)\?weft train: " err.txt || fail "$reason: rank 1 does not say why"
    done
    echo "a rank of mpi-$id that fails early ends the job"
    echo "ranks are started by the launcher of mpi-$id"
    gives 1 limit "$weft" train run.ini --ranks 2 comm.plugin=mpi-$id run.out=three device.plugin=half
    says "[1] weft train: device:half ($dir/plugins/weft-device-half.so): There is no second one."
done
