#!/bin/sh
# The program from outside, as a user runs it: train, stop, resume, evaluate, generate, and user errors. ctest
# sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
checks=0

check() { # check NAME command...: the command must succeed
    name=$1
    shift
    checks=$((checks + 1))
    if "$@" >check.log 2>&1; then return 0; fi
    failed "$name" check.log
}
exits() { # exits STATUS command...
    wanted=$1
    shift
    status=0
    "$@" || status=$?
    [ "$status" = "$wanted" ] || { echo "exit status $status, expected $wanted"; return 1; }
}
says() { # says TEXT command...: exit status 1, and an error on stderr that contains the text
    text=$1
    shift
    status=0
    "$@" >out.txt 2>err.txt || status=$?
    cat out.txt err.txt
    [ "$status" = 1 ] && grep -qF -- "$text" err.txt
}

make_model model 32 8 56 2 512
make_text 60
cat >run.ini <<'INI'
[run]
out  = one
seed = 3
[model]
plugin = llama
path   = model
start  = fresh
[tokenizer]
plugin = bpe
bos    = yes
[data]
plugin     = text
path       = games.txt
document   = line
context    = 64
validation = 6
[train]
steps        = 6
global_batch = 4
micro_batch  = 2
clip         = 1.0
schedule     = cosine
warmup       = 2
[optimizer]
plugin = adamw
lr     = 3e-3
[device]
plugin  = cpu
threads = 2
[eval]
every = 3
[checkpoint]
every = 2
keep  = 2
INI

# ---- components
linked() { # the program links no plugin, device library, OpenMP or MPI
    ldd "$weft" >ldd.txt && cat ldd.txt && grep -q 'libc\.so' ldd.txt && ! grep -Eiq 'dnnl|gomp|omp\.so|mpi|cuda|weft|plugin' ldd.txt
}
check "the program links no plugin and no device" linked
listed() { # the built-in plugins, each from its own file next to the program
    "$weft" plugins list >list.txt && cat list.txt || return 1
    for plugin in comm/self data/text device/cpu model/llama optimizer/adamw optimizer/anyprecision optimizer/sgd policy/block \
        policy/class policy/size policy/whole strategy/single tokenizer/bpe; do
        kind=${plugin%/*} id=${plugin#*/}
        grep -Eq "^$kind +$id +[0-9.]+ +ok +/.*/weft-$kind-$id\.so$" list.txt || { echo "no $plugin"; return 1; }
    done
}
check "plugins list" listed
described() {
    "$weft" plugins describe optimizer:adamw >described.txt && cat described.txt || return 1
    grep -q '^optimizer:adamw .*(optimizer/1)$' described.txt && grep -Eq '^sha256 +[0-9a-f]{64}$' described.txt || return 1
    for key in lr beta1 beta2 eps weight_decay decay; do
        grep -Eq "^  $key +[^ ]+ .*\.$" described.txt || { echo "no $key"; return 1; }
    done
}
check "plugins describe" described
check "a plugin that is not there" says "There are: adamw, anyprecision, sgd" "$weft" plugins describe optimizer:adam

keys_are_documented() { # the page contains every line of the host's key table as printed
    "$weft" config describe >described.txt && sed 's/^./    &/' described.txt >keys.txt || return 1
    [ "$(wc -l <keys.txt)" -gt 30 ] && ! grep -Fxv -f "$WEFT_SOURCE/docs/configuration.md" keys.txt
}
check "docs/configuration.md has the host's keys" keys_are_documented
commands_are_documented() { # the page of commands contains each command's complete help
    for words in train report eval generate plan profile tokenize "config check" "config explain" "config describe" \
        "plugins list" "plugins describe"; do
        # shellcheck disable=SC2086
        "$weft" $words --help >said.txt && sed 's/^./    &/' said.txt >help.txt || return 1
        grep -q "usage: weft $words" help.txt || { echo "no help of $words"; return 1; }
        ! grep -Fxv -f "$WEFT_SOURCE/docs/commands.md" help.txt || { echo "of $words"; return 1; }
    done
}
check "docs/commands.md has every command's help" commands_are_documented

# ---- a run, its records and its result
check "train" exits 0 "$weft" train run.ini
check "six records" [ "$(wc -l <one/metrics.jsonl)" = 6 ]
check "fields of a record" sh -c 'for f in step loss lr grad_norm tokens; do grep -q "\"$f\": " one/metrics.jsonl || exit 1; done'
check "evaluations" [ "$(wc -l <one/evaluations.jsonl)" -ge 3 ]
check "resolved configuration" grep -q '^global_batch *= *4' one/config.ini
check "result" test -f one/model/model.safetensors -a -f one/model/config.json -a -f one/model/tokenizer.json
check "the two newest checkpoints" sh -c 'test -f one/checkpoints/step-6/manifest.json -a -f one/checkpoints/step-4/manifest.json'
check "a checkpoint is a model" exits 0 "$weft" eval run.ini model.path=one/checkpoints/step-6 model.start=weights --json
check "the resolved configuration runs" exits 0 "$weft" train one/config.ini run.out=again --quiet
check "and gives the same bits" cmp one/model/model.safetensors again/model/model.safetensors

# ---- a directory that contains a run
check "refused without a word" says "already holds a run" "$weft" train run.ini
check "nothing was lost" [ "$(wc -l <one/metrics.jsonl)" = 6 ]
check "resume of nothing" says "holds no run" "$weft" train run.ini run.out=empty --resume
check "both words" exits 2 "$weft" train run.ini --resume --overwrite
check "overwrite" exits 0 "$weft" train run.ini train.steps=2 run.out=again --overwrite
counts_down() { # every step's line has the remaining time, except the last one
    grep -q '^step 1/2 .* tok/s  .* left$' check.before && grep -q '^step 2/2 .* tok/s$' check.before
}
cp check.log check.before
check "what is left" counts_down
check "overwritten" [ "$(wc -l <again/metrics.jsonl)" = 2 ]

# ---- inputs of a run are never removed or overwritten
check "a model of the run itself" says "is read by this run" "$weft" train run.ini run.out=one model.path=one/model model.start=weights --overwrite
check "is still there" test -f one/model/model.safetensors
mkdir -p own && sed 's/^out .*/out = ./; s/= model$/= ..\/model/; s/= games.txt/= ..\/games.txt/' run.ini >own/config.ini && cp own/config.ini own.copy && echo 'weft run' >own/.lock
check "an INI file in its own output" says "is read by this run" "$weft" train own/config.ini --overwrite
check "stays as it is" cmp own/config.ini own.copy

unmeasured() { # unmeasured EVERY VALIDATION: stderr is in err.txt
    "$weft" train run.ini run.out=unmeasured train.steps=1 train.warmup=0 eval.every="$1" data.validation="$2" --quiet \
        --overwrite >/dev/null 2>err.txt
}
check "a run without evaluations" exits 0 unmeasured 50 none
check "says that nothing is there for them" grep -q "\[eval\] every = 50, but \[data\] keeps no documents for validation: no evaluation is made" err.txt
check "one that asks for none" exits 0 unmeasured none none
check "says no word" [ ! -s err.txt ]
check "nor does one that makes them" exits 0 unmeasured 50 6
check "in which there are some" [ ! -s err.txt ]

# ---- stop and resume: same bits
check "first half" exits 0 "$weft" train run.ini run.out=half train.schedule=constant train.steps=4
check "whole" exits 0 "$weft" train run.ini run.out=whole train.schedule=constant train.steps=8
cp check.log whole.log
check "second half" exits 0 "$weft" train run.ini run.out=half train.schedule=constant train.steps=8 eval.every=100 checkpoint.every=100 --resume
cp check.log second.log
check "same weights" cmp half/model/model.safetensors whole/model/model.safetensors
learned() { # learned DIRECTORY...: each record up to the first machine-dependent field
    for run; do sed 's/, "tokens_per_second".*//' "$run/metrics.jsonl" >"$run.learned"; done
}
same_records() {
    learned half whole
    [ "$(wc -l <whole.learned)" = 8 ] && cmp half.learned whole.learned
}
check "same records" same_records
printf '{"step": 9, "loss": 1}\n{"st' >>half/metrics.jsonl
# The initial loss is that of the start, or of the checkpoint that the run continues.
check "two evaluations" sh -c 'grep -Eq "^loss +[0-9.]+ -> [0-9.]+ on validation$" "$1"' - whole.log
check "from the checkpoint" sh -c 'grep -Eq "^loss +[0-9.]+ after step 4 -> [0-9.]+ on validation$" "$1"' - second.log
check "records are cut back" exits 0 "$weft" train run.ini run.out=half train.schedule=constant train.steps=8 --resume
check "to the step of the checkpoint" same_records
check "another batch is refused" says "global_batch" "$weft" train run.ini run.out=half train.global_batch=2 train.steps=9 --resume
printf 'x' | dd of=half/checkpoints/step-8/model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
check "a damaged checkpoint is passed over" exits 0 "$weft" train run.ini run.out=half train.schedule=constant train.steps=8 --resume
check "same weights again" cmp half/model/model.safetensors whole/model/model.safetensors

# ---- --quiet
mkdir unsaved.too && : >unsaved.too/metrics.jsonl && echo 'weft run' >unsaved.too/.lock
silent() { # the command succeeds and prints nothing at all
    "$@" >out.txt 2>&1 || return 1
    cat out.txt
    [ ! -s out.txt ]
}
check "a quiet run" silent "$weft" train run.ini run.out=silent train.steps=4 --quiet
check "a quiet resume" silent "$weft" train run.ini run.out=silent train.steps=5 --resume --quiet
check "a quiet beginning" silent "$weft" train run.ini run.out=unsaved.too train.steps=4 --resume --quiet
warns() { # warns TEXT command...: it succeeds; stderr has the warning, stdout does not
    text=$1
    shift
    "$@" >out.txt 2>err.txt || return 1
    cat out.txt err.txt
    grep -qF -- "weft: warning: $text" err.txt && ! grep -qF -- "$text" out.txt
}
check "a warm-up that never ends" warns "the warm-up of 9 steps" "$weft" train run.ini run.out=warm train.steps=2 train.warmup=9
check "is told to a quiet run too" warns "the warm-up of 9 steps" "$weft" train run.ini run.out=warm train.steps=2 train.warmup=9 --overwrite --quiet
check "and alone" [ "$(wc -l <err.txt)-$(wc -c <out.txt)" = 1-0 ]

# ---- signals
signal_run() {
    rm -rf "$1"
    "$weft" train run.ini run.out="$1" train.schedule=constant train.steps=100000 eval.every=none checkpoint.every=none \
        >signal.log 2>&1 &
    pid=$!
    for _ in $(seq 3000); do [ -s "$1/metrics.jsonl" ] && break; sleep 0.1; done
    kill "-$2" $pid
    wait $pid
}
check "SIGTERM saves and stops" exits 75 signal_run stopped TERM
last=$(ls stopped/checkpoints | sed 's/step-//')
check "saved at the last record" [ "$(wc -l <stopped/metrics.jsonl)" = "$last" ]
check "SIGINT too" exits 75 signal_run stopped2 INT

mkdir -p unsaved && : >unsaved/metrics.jsonl && echo 'weft run' >unsaved/.lock
check "resume before anything was saved" exits 0 "$weft" train run.ini run.out=unsaved train.steps=2 --resume
check "begins anew" [ "$(wc -l <unsaved/metrics.jsonl)" = 2 ]
check "a run without checkpoints" exits 0 "$weft" train run.ini run.out=plain train.steps=2 checkpoint.every=none --quiet
cksum plain/model/* plain/metrics.jsonl >ended
check "resume after its end" says "plain/model is the result of a run that ended" "$weft" train run.ini run.out=plain train.steps=4 checkpoint.every=none --resume
check "changes nothing" sh -c 'cksum plain/model/* plain/metrics.jsonl | cmp - ended'

# ---- results
check "eval" exits 0 "$weft" eval run.ini model.path=one/model model.start=weights
check "generate" exits 0 "$weft" generate run.ini model.path=one/model model.start=weights --prompt "1. e4" --tokens 5 --temperature 0 --json
"$weft" generate run.ini model.path=one/model model.start=weights --prompt "1. e4" --tokens 12 --temperature 0 --ignore-eos --json >cached.json
"$weft" generate run.ini model.path=one/model model.start=weights --prompt "1. e4" --tokens 12 --temperature 0 --ignore-eos --no-cache --json >plain.json
check "ids and text" grep -Eq '^\{"ids": \[[0-9]+(, [0-9]+){11}\], "text": ".+"\}$' cached.json
check "the cache changes nothing" cmp cached.json plain.json
into_full() { "$weft" "$@" >/dev/full; }
check "a text that cannot be written" says "generate: the text cannot be written: No space left on device" into_full generate run.ini model.path=one/model model.start=weights --tokens 5
check "a table that cannot be written" says "the output cannot be written: No space left on device" into_full plan run.ini
check "steps that could not be shown" says "the output cannot be written: some bytes are lost" into_full train run.ini run.out=unseen train.steps=2
check "tokenize and back" sh -c '"$0" tokenize model <games.txt >ids.txt && "$0" tokenize model --decode <ids.txt | cmp - games.txt' "$weft"
check "plan" exits 0 "$weft" plan run.ini --print-program
planned() { # the JSON object agrees with the tables
    "$weft" plan run.ini --json --print-program >plan.json || return 1
    for field in '"grid": [0-9]+' '"padding_bytes": [0-9]+' '"rows": 4' '"micro_batch_rows": 2' '"micro_batches": 2' '"places": 64' '"use": "tape"'; do
        grep -Eq "$field" plan.json || { echo "no $field"; return 1; }
    done
    [ "$(grep -c '"queue": ' plan.json)" = "$(sed -n 's/^  "instructions": \([0-9]*\),$/\1/p' plan.json)" ]
}
check "plan as an object" planned
wrapped() { # wrapped N SUMMARY OVERRIDE...: the totals, N modules tagged as units, and the same number in the JSON object
    n=$1 summary=$2 && shift 2
    "$weft" plan run.ini --print-wrapping "$@" >wrapped.txt && "$weft" plan run.ini --json --print-wrapping "$@" >wrapped.json &&
        cat wrapped.txt || return 1
    grep -Eq "^wrapping +$n of [0-9]+ modules wrapped \([0-9.]+ %\) by policy $summary; [0-9,]+ of [0-9,]+ parameters \([0-9.]+ %\), the root unit has [0-9,]+\$" wrapped.txt || return 1
    [ "$(grep -c '^--fsdp_wrap_module: ' wrapped.txt)" = "$n" ] && [ "$(grep -c '"wrapped": true' wrapped.json)" = "$n" ] || return 1
    [ "$(grep -Ec '^(top_module|module group|--fsdp_wrap_module|--unwrap-module): ' wrapped.txt)" = "$(grep -c '"path":' wrapped.json)" ] || return 1
    all=$(grep -c '"path":' wrapped.json)
    grep -qx "Total modules: $all, FSDP wrapped modules: $(awk "BEGIN { printf \"%.2f\", 100 * $n / $all }")%" wrapped.txt
}
check "wrapping by block" wrapped 2 'block, in 3 units'
check "wrapping by class" wrapped 4 'class, in 5 units' policy.plugin=class policy.classes=LlamaAttention,mlp
check "wrapping by size" wrapped 4 'size, in 3 units' policy.plugin=size policy.size=9k
check "wrapping as a whole" wrapped 0 'whole, in 1 unit' policy.plugin=whole
check "a class that is not there" says "command line: [policy] classes has 'LlamaDecodeLayer'" "$weft" plan run.ini policy.plugin=class policy.classes=LlamaDecodeLayer
points() { # points N STEPS: each point of the schedule is shown once
    "$weft" plan run.ini train.warmup=0 "train.steps=$2" >plan.txt && cat plan.txt && [ "$(grep -c '^  step ' plan.txt)" = "$1" ]
}
check "a schedule of one step" points 1 1
check "a schedule of three steps" points 3 3
check "a schedule of nine steps" points 5 9
sed '/^out /d' run.ini >planned.ini
check "plan without a place for results" exits 0 "$weft" plan planned.ini

# ---- rules for training apply only to training
sed '/^global_batch/d; s/^micro_batch.*/micro_batch = 4/' run.ini >micro.ini
check "which train holds" says "is not a multiple of micro_batch = 4" "$weft" train micro.ini run.out=micro
check "and eval does not" exits 0 "$weft" eval micro.ini model.path=one/model model.start=weights --json
cp check.log micro.json
check "eval of four rows at once" grep -q '"loss": [0-9]' micro.json
check "nor does generate" exits 0 "$weft" generate micro.ini model.path=one/model model.start=weights --prompt "1. e4" --tokens 2

# ---- profile
sed '/^out /d' run.ini >quiet.ini
mkdir still
cp -r model games.txt quiet.ini still
profile_quietly() { # no new files appear
    (cd still && ls -R . | cksum >../before && "$weft" profile quiet.ini "$@" >../profile.txt && ls -R . | cksum | cmp - ../before)
}
check "profile" exits 0 profile_quietly --steps 2 --warmup 1
check "a row per operator" sh -c 'for row in "linear forward" "linear weight gradient" "attention backward" "lm_head backward" "optimizer" "rest"; do
    grep -q "^$row " profile.txt || exit 1; done'
check "profile as an object" exits 0 profile_quietly --json --steps 3 --warmup 0 --roofline
check "with its fields" sh -c 'for f in step_seconds median_seconds places targets flops resident_peak planned operators roofline register_flops_per_second; do
    grep -q "\"$f\": " profile.txt || exit 1; done'
check "weights that are in place" grep -q '"weight_pages_absent": 0,*$' profile.txt
check "and are counted" grep -q '"weight_pages": [1-9]' profile.txt
check "more steps than the run has" exits 0 profile_quietly train.steps=1 --steps 3
check "no step to measure" exits 2 "$weft" profile run.ini --steps 0

# ---- pins
pin=$(sha256sum "$WEFT_BUILD/plugins/weft-optimizer-adamw.so" | cut -c1-64)
check "a pin that holds" exits 0 "$weft" config check run.ini plugins.pin="optimizer:adamw=$pin"
check "a pin that does not" says "It is another build" "$weft" config check run.ini plugins.pin="device:cpu=$pin"
{ cat run.ini && printf '[plugins]\npin = optimizer:adamw=%s, optimizer:adamv=%s\n' "$pin" "$pin"; } >pin.ini
check "a pin of what nobody uses" says "pin.ini:36: [plugins] pin = optimizer:adamw=" "$weft" config check pin.ini
check "is named" says "pins optimizer:adamv, which this run does not use" "$weft" config check pin.ini
sed '/^\[optimizer\]/,/^lr/d' run.ini >short.ini
check "the pin of a part that a command leaves out" exits 0 "$weft" generate short.ini model.path=one/model \
    model.start=weights plugins.pin="optimizer:adamw=$pin" --prompt "1. e4" --tokens 1

# ---- a limit on the size of files
limited() { # the write fails without ending the process
    (ulimit -f 20 && "$weft" train run.ini run.out=limited)
}
check "a file that may not grow" says "File too large" limited

# ---- invalid input
check "no command" exits 2 "$weft" trian run.ini
check "unknown key" says "did you mean beta1" "$weft" train run.ini optimizer.betal=0.9
misspelt() { # misspelt FROM TO SENTENCE: run.ini with one edit; the error names the misspelt key, not a consequence
    sed "s/$1/$2/" run.ini >edited.ini && ! cmp -s run.ini edited.ini || { echo "nothing was edited"; return 1; }
    says "config check: edited.ini:$3" "$weft" config check edited.ini
}
check "before a rule across keys" misspelt "^global_batch" "global_bacth" "19: [train] has no key global_bacth; did you mean global_batch? Its keys are: steps"
check "before a key that another one needs" misspelt "^schedule .*" "schedule = step\nstep_evry = 3" "23: [train] has no key step_evry; did you mean step_every?"
check "before a key of the host that is missing" misspelt "^path   = model" "pth = model" "6: [model] has no key pth; did you mean path?"
check "before a key of a plugin that is missing" misspelt "^path       =" "pth =" "13: [data] has no key pth; did you mean path?"
check "before the plugin that is missing" misspelt "^plugin = llama" "pluign = llama" "5: [model] has no key pluign; did you mean plugin? Its keys are: path, start, base, plugin, ignore"
check "before the keys of that plugin" misspelt "^plugin = adamw" "momentum = 0.9\npluign = sgd" "26: [optimizer] has no key pluign; did you mean plugin?"
check "where plugins are searched" misspelt "^\[train\]" "[plugins]\npth = here\n[train]" "18: [plugins] has no key pth; did you mean path?"
check "batches that do not divide" says "micro_batch" "$weft" train run.ini train.micro_batch=3
check "context too long" says "train: command line: [data] context = 256 is longer than the model's 128" "$weft" train run.ini data.context=256 run.out=bad
check "no validation row" says "train: command line: [data] validation = 60 takes" "$weft" train run.ini data.validation=60 run.out=bad
sed '/^context /d' run.ini >default.ini
check "a default that is too long" says "train: default.ini: by default, [data] context = 256 is longer" "$weft" train default.ini run.out=bad
check "nothing to train" says "train: command line: [train] trainable = zzz cannot be used: 'zzz' is no parameter" "$weft" train run.ini train.trainable=zzz run.out=bad
sed 's/= games.txt/= none.txt/' run.ini >none.ini
check "no data" says "train: none.ini:13: [data] path = $dir/none.txt cannot be read" "$weft" train none.ini run.out=bad
check "a directory that is not there" says "train: command line: [model] path = nothere ($dir/nothere): No such file or directory" "$weft" train run.ini model.path=nothere run.out=bad
sed 's/= model$/= games.txt/' run.ini >file.ini
check "a model that is a file" says "generate: file.ini:6: [model] path = games.txt is no directory" "$weft" generate file.ini
check "nor a tokenizer's" says "train: command line: [tokenizer] path = nothere ($dir/nothere): No such file" "$weft" train run.ini tokenizer.path=nothere run.out=bad
check "no model" says "train: command line: [model] path = \"\" names no directory" "$weft" train run.ini model.path= run.out=bad
mkdir small && cp model/tokenizer*.json small && sed 's/"vocab_size": 512/"vocab_size": 500/' model/config.json >small/config.json
check "vocabularies that differ" says "has 512 ids and the model in $dir/small has a vocabulary of 500" "$weft" train run.ini \
    run.out=bad model.path=small
sed 's/"silu"/"relu"/' model/config.json >config.bad && mkdir -p odd && cp model/tokenizer*.json odd && cp config.bad odd/config.json
check "an activation that it does not know" says "hidden_act" "$weft" train run.ini model.path=odd run.out=bad
check "nothing is left of failed starts" [ ! -e bad/metrics.jsonl ]

echo "$((checks - failures)) passed, $failures failed"
[ "$failures" = 0 ]
