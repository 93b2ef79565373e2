#!/bin/sh
# A run over several ranks as a whole: files that have the same bytes whoever wrote them, a run that is killed, stopped and
# taken up again on fewer ranks, and what goes wrong on one rank told once. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
plugin=$WEFT_BUILD/plugins/weft-comm-mpi-mpich.so
if [ ! -f "$plugin" ]; then
    echo "skipped: this build has no mpi-mpich, whose packages configs/packages.sh tests installs"
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
cd "$dir"
failures=0
# The libraries of MPI keep some memory to the end, and say so under a sanitizer.
export WEFT_PLUGIN_PATH=$WEFT_BUILD/plugins
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

mkdir model
cp "$WEFT_SOURCE"/configs/chess/base/tokenizer*.json model/
cat >model/config.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 40, "intermediate_size": 88,
 "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 521,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true,
 "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
JSON
head -n 60 "$WEFT_SOURCE/configs/chess/train.txt" >games.txt
cat >run.ini <<'INI'
[model]
plugin = llama
path   = model
start  = fresh
[tokenizer]
padded = yes
[data]
path       = games.txt
document   = line
context    = 32
validation = 5
[train]
steps        = 100
global_batch = 12
micro_batch  = 1
clip         = 1.0
[eval]
every = 10
[optimizer]
plugin = adamw
lr     = 1e-3
[checkpoint]
every = 10
keep  = 99
[device]
threads = 1
[run]
out = out
INI

failed() { # failed WHAT
    failures=$((failures + 1))
    echo "FAILED: $1"
    sed 's/^/    /' log
}
train() { # train N OUT argument...: on N ranks, into OUT
    n=$1
    out=$2
    shift 2
    if [ "$n" != 1 ]; then set -- --ranks "$n" comm.plugin=mpi-mpich "$@"; fi
    timeout 100 "$WEFT_BUILD/weft" train run.ini "run.out=$out" "$@" >log 2>&1
}
once() { # once TEXT: one line of the log has it
    [ "$(grep -cF -- "$1" log)" = 1 ] || failed "not once: $1"
}
tensors() { # tensors DIRECTORY: hashes of the files of numbers in it
    [ ! -d "$1" ] || (cd "$1" && find . -name '*.safetensors' | sort | xargs sha256sum)
}
same() { # same WHAT A B: the same files of numbers
    tensors "$2" >a.txt
    tensors "$3" >b.txt
    [ -s a.txt ] && cmp -s a.txt b.txt || { cat a.txt b.txt >log; failed "$1"; }
}

# ---- the same bytes ----

train 1 single || failed "one rank"
strategies() { # strategies WHAT argument...: as one rank that runs with the same
    what=$1
    shift
    rm -rf one
    train 1 one train.steps=3 eval.every=none checkpoint.every=3 "$@" || failed "one rank, $what"
    while read -r n rest; do
        rm -rf many
        # shellcheck disable=SC2086  # words on purpose
        train "$n" many train.steps=3 eval.every=none checkpoint.every=3 $rest "$@" </dev/null || failed "$n ranks, $rest, $what"
        same "other bytes: $n ranks, $rest, $what" one many
    done
}
strategies "fp32" <<'ROWS'
4 strategy.plugin=fsdp
3 strategy.plugin=ddp
4 strategy.plugin=fsdp strategy.shard=hybrid strategy.shard_group=2
3 strategy.plugin=mp strategy.schedule=1f1b
ROWS
# Masters of all parameters, where frozen ones lose bits in the type that is saved.
strategies "bf16" checkpoint.dtype=bf16 train.trainable=last:1 <<'ROWS'
4 strategy.plugin=fsdp strategy.shard=optimizer
3 strategy.plugin=fsdp
2 strategy.plugin=mp
ROWS

# ---- a run on 4, then 2, then 1 rank, killed and stopped ----

wait_for() { # wait_for PATH: while $process lives
    while [ ! -e "$1" ] && kill -0 "$process" 2>/dev/null; do sleep 0.02; done
    [ -e "$1" ]
}
launch=$("$WEFT_BUILD/tests/ranks" launch "$plugin")
start() { # start N argument...: N ranks, by the launcher itself; rank R's process is in process.R
    command=$(echo "$launch" | sed "s/{ranks}/$1/")
    shift
    rm -f process.*
    # shellcheck disable=SC2016,SC2086  # words on purpose, and for the shell of each rank
    exec timeout 100 $command sh -c 'echo $$ >process.$PMI_RANK; exec "$@"' sh "$WEFT_BUILD/weft" train run.ini \
        run.out=run comm.plugin=mpi-mpich train.steps=400 "$@" >log 2>&1
}

start 4 strategy.plugin=fsdp &
process=$!
wait_for run/checkpoints/step-10 || failed "4 ranks come to step 10"
kill -9 $(cat process.0 process.1 process.2 process.3)
wait || true
for left in run/checkpoints/step-*; do [ "$left" = run/checkpoints/step-10 ] || rm -rf "$left"; done

start 2 strategy.plugin=ddp --resume &
process=$!
wait_for run/checkpoints/step-20 || failed "2 ranks come to step 20"
kill -TERM "$(cat process.1)"
status=0
wait $process || status=$?
[ $status = 75 ] || failed "a signal to one rank ends with $status"
once "stopped by a signal after step"
once "resumed from"
last=$(find run/checkpoints -name 'step-*' | sed 's/.*step-//' | sort -n | tail -n 1)
[ "$last" -lt 100 ] || failed "stopped at $last, behind the end of what it is compared with"
train 1 run --resume || failed "one rank goes on"
for name in model checkpoints/step-10 checkpoints/step-20 checkpoints/step-100; do
    same "not the run that never stopped: $name" single/$name run/$name
done
cut -d' ' -f1-4 single/evaluations.jsonl >a.txt
cut -d' ' -f1-4 run/evaluations.jsonl >b.txt
cmp -s a.txt b.txt || { cat a.txt b.txt >log; failed "other losses of validation"; }

# A strategy that is not covered is said, and kept with the checkpoint.
train 2 fast strategy.plugin=ddp strategy.reduce=fast train.steps=2 checkpoint.every=2 || failed "reduce = fast"
once "not covered"
grep -q '"the contract of equal bits": "not covered' fast/checkpoints/step-2/state/run.json || failed "the word is not kept"
grep -q '"the contract of equal bits": "covered"' run/checkpoints/step-100/state/run.json || failed "the word is not kept"

# ---- what goes wrong ----

refused() { # refused TEXT N OUT argument...: exit status 1, and the sentence once
    text=$1
    shift
    if train "$@"; then failed "not refused: $text"; fi
    once "$text"
}
refused "already holds a run" 3 run strategy.plugin=fsdp
refused "was made by a run that differs" 3 run strategy.plugin=fsdp train.global_batch=6 --resume
mkdir locked
(
    flock 9
    refused "is in use by another run" 2 locked strategy.plugin=ddp
    exit $failures
) 9>locked/.lock || failures=$?
mkdir blocked
: >blocked/checkpoints
refused "checkpoints/step-10 could not be saved" 2 blocked strategy.plugin=ddp --resume
cp -r run/model part
rm part/model.safetensors
refused "part: holds neither model.safetensors" 2 new strategy.plugin=fsdp model.path=part model.start=weights

# A number that is not finite: found by whichever ranks, told by one.
refused "the loss is not finite" 3 new strategy.plugin=fsdp optimizer.lr=1e30
rm -rf new
refused "the loss is not finite" 2 new strategy.plugin=mp optimizer.lr=1e30
rm -rf new

# Bytes that were spoiled after they were saved: the one before is taken, whichever rank finds it.
rm -rf run/model
printf 'x' | dd of=run/checkpoints/step-100/state/exp_avg.safetensors bs=1 seek=20000 conv=notrunc 2>dd.txt
train 3 run strategy.plugin=fsdp --resume || failed "3 ranks go on"
once "step-100 is passed over: "
once "is not the one that was saved"
same "not the run that never stopped" single/model run/model
rm -rf run/model
for left in run/checkpoints/step-*; do rm "$left/state/exp_avg.safetensors"; done
refused "holds no whole checkpoint" 2 run strategy.plugin=ddp --resume

# ---- the run's bits, and memory while it is saved ----

state() { # state N DIRECTORY STEPS run.ini argument...
    mkdir "$2"
    n=$1
    shift
    set -- "$@" comm.plugin=mpi-mpich
    # shellcheck disable=SC2046  # words on purpose
    timeout 100 $(echo "$launch" | sed "s/{ranks}/$n/") "$WEFT_BUILD/tests/rank_state" "$@" >log 2>&1
}
alike() { # alike WHAT N DIRECTORY: that many ranks have said the bits of one
    [ "$(cut -d' ' -f1 "$3"/rank.* | sort | uniq -c | sed 's/^ *//')" = "$2 $(cut -d' ' -f1 lone/rank.0)" ] || {
        cat "$3"/rank.* >log
        failed "$1: not the hash of one rank"
    }
}
mkdir lone
"$WEFT_BUILD/tests/rank_state" lone 2 run.ini >log 2>&1 || failed "the hash of one rank"
state 4 four 2 run.ini strategy.plugin=fsdp || failed "the hash of 4 ranks"
alike "fsdp" 4 four
state 3 three 2 run.ini strategy.plugin=ddp || failed "the hash of 3 ranks"
alike "ddp" 3 three
same "other bytes" lone/step-2 four/step-2

mkdir big # 60 MiB of weights, and twice as much of states
cp model/tokenizer*.json big/
sed 's/"hidden_size": 40/"hidden_size": 384/; s/"head_dim": 10/"head_dim": 96/; s/"vocab_size": 521/"vocab_size": 38000/' \
    model/config.json >big/config.json
state 4 wide 0 run.ini model.path=big strategy.plugin=fsdp || failed "a larger model is saved"
cat wide/rank.* >log
[ "$(wc -l <log)" = 4 ] || failed "not four ranks"
while read -r _ grown; do [ "$grown" -le 65536 ] || failed "a rank grows by $grown KiB while it saves"; done <log

[ "$failures" = 0 ] || exit 1
echo "checkpoints of several ranks hold"
