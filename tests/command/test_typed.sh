#!/bin/sh
# Common user input: a directory instead of an INI file, a prompt on standard input, names of other programs;
# and the messages about likely mistakes. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

told() { # told TEXT: the last command printed it
    cat printed printed.err | grep -qF -- "$1" || failed "not told: $1" printed printed.err
}
same() { # same WHAT FILE FILE
    cmp "$2" "$3" >cmp.log 2>&1 || failed "$1" cmp.log
}

make_model model 32 8 56 2 512
make_text 60
cat >run.ini <<'INI'
[run]
out = one
[model]
plugin = llama
path   = model
start  = fresh
[tokenizer]
bos = yes
[data]
path       = games.txt
document   = line
context    = 64
validation = 6
[train]
steps        = 2
global_batch = 4
micro_batch  = 2
[device]
threads = 1
[checkpoint]
every = 2
INI
prints "$weft" train run.ini --quiet

# ---- a directory instead of an INI file
prints "$weft" eval run.ini model.path=one/model model.start=weights --json
sed 's/"seconds": [^,]*, //' printed >by_file
prints "$weft" eval one --json
sed 's/"seconds": [^,]*, //' printed >by_run
same "eval of a run is of its model on its own documents" by_file by_run
prints "$weft" eval one/model data.path=games.txt data.document=line data.context=64
told "all of [data] path: 60 documents"
refused "[data] path is missing" "$weft" eval one/model

for directory in run.ini one one/model; do # bos: in the run's configuration, and reported for the model
    prints "$weft" generate "$directory" model.path=one/model model.start=weights tokenizer.bos=yes --prompt "1. e4" --tokens 6 \
        --temperature 0 --json
    cp printed "$(basename "$directory").json"
done
same "generate of a run" run.ini.json one.json
same "generate of a model" run.ini.json model.json
prints "$weft" generate one/checkpoints/step-2 --tokens 1

prints "$weft" plan one
cp printed by_run
prints "$weft" plan run.ini model.start=weights model.path=one/model
same "plan of a run" printed by_run
prints "$weft" plan one/model data.path=games.txt data.document=line data.context=64
cp printed by_model
printf '[model]\nplugin = llama\npath = one/model\n[data]\npath = games.txt\ndocument = line\ncontext = 64\n[train]\nepochs = 1\n' >epoch.ini
prints "$weft" plan epoch.ini
same "a model is planned for one epoch" printed by_model
prints "$weft" plan one/model data.path=games.txt data.document=line data.context=64 train.steps=7
told "schedule    7 steps"
refused "--diff compares two configurations" "$weft" plan one/model --diff run.ini

mkdir neither unfinished && cp one/config.ini unfinished
refused "neither is neither a model's directory, which has a config.json, nor a run's" "$weft" generate neither
refused "unfinished is an unfinished run without model/" "$weft" generate unfinished
refused "unfinshed: cannot be opened: No such file or directory; did you mean unfinished?" "$weft" generate unfinshed
refused "no/where: cannot be opened: No such file or directory; weft eval takes an INI file, a model's directory or a run's" \
    "$weft" eval no/where
! grep -q usage: log || failed "how a command is used is no answer to that" log
refused "one is the directory of a run, and weft train takes an INI file: one/config.ini, with --resume to continue" "$weft" train one
refused "one/model is the directory of a model, and weft train takes an INI file: weft init one/model DATA writes one" \
    "$weft" train one/model
refused "neither is a directory, and weft profile takes an INI file" "$weft" profile neither
cp -r one/model stranger && sed -i 's/"llama"/"mistrel"/' stranger/config.json
refused "[model] plugin = mistrel (its default) is model_type of" "$weft" generate stranger
sed -i 's/"model_type"/"type_of_model"/' stranger/config.json
refused "[model] plugin is missing, and $PWD/stranger/config.json has no model_type that could be its id" "$weft" generate stranger

for broken in '{"model_type": "llama",}' '{"a": NaN, "model_type": "llama"}' '\357\273\277{"model_type": "llama"}' \
    '{"model_type": "llama", "a": 1\000}' '{"model_type": '; do
    printf "$broken" >stranger/config.json
    refused "stranger/config.json:1:" "$weft" generate stranger
    ! grep -q "no model_type" log || failed "a broken config.json is no missing key" log
done
cp one/model/config.json stranger/config.json
sed -i 's/"model_type"/"type_of_model"/' stranger/config.json

# ---- a configuration without a model plugin, which config.json selects; its model_type is not a path
grep -v '^plugin = llama' run.ini >short.ini
prints "$weft" plan run.ini
cp printed by_name
prints "$weft" plan short.ini
same "the plugin that config.json names" printed by_name
prints "$weft" config explain short.ini
grep -Eq '^model.plugin +llama +default' printed || failed "where the plugin comes from" printed
cp "$WEFT_BUILD/plugins/weft-model-llama.so" stranger/llama.so
sed -i 's|"type_of_model": *"[a-z]*"|"model_type": "stranger/llama.so"|' stranger/config.json
refused "stranger/config.json has no model_type that could be its id" "$weft" plan short.ini model.path=stranger
sed -i 's|"stranger/llama.so"|"mistrel"|' stranger/config.json
refused "[model] plugin = mistrel (its default) is model_type of the model's config.json and cannot be used: there is no model plugin" \
    "$weft" plan short.ini model.path=stranger
refused "[model] path = nowhere ($PWD/nowhere): No such file or directory" "$weft" plan short.ini model.path=nowhere
refused "[model] path = neither has no config.json" "$weft" plan short.ini model.path=neither

# ---- a model_type without a plugin: the error names it and lists the supported families
for type in mixtral deepseek_v3 gpt2; do
    sed -i "s|\"model_type\": *\"[^\"]*\"|\"model_type\": \"$type\"|" stranger/config.json
    for command in "plan short.ini model.path=stranger" "plan run.ini model.path=stranger" "generate stranger" "init stranger games.txt -o -"; do
        # shellcheck disable=SC2086 # words on purpose
        refused "$type" "$weft" $command
        for family in gemma gemma2 gemma3_text llama mistral olmo2 phi3 qwen2 qwen3 smollm3; do
            grep -qw "$family" log || failed "$command: $family is not listed" log
        done
    done
done

# ---- a prompt on standard input
for end in '' '\n' '\r\n'; do
    printf "1. e4$end" | "$weft" generate one --tokens 6 --temperature 0 --json >printed || failed "a prompt on standard input"
    same "a prompt on standard input that ends in '$end'" printed one.json
done
printf '1. e4\n\n' | "$weft" generate one --tokens 6 --temperature 0 --json >two_ends
"$weft" generate one --tokens 6 --temperature 0 --json --prompt '1. e4
' >printed
same "one line end is the shell's, and no more" printed two_ends
echo "not this" | "$weft" generate one --tokens 6 --temperature 0 --json --prompt "1. e4" >printed
same "--prompt counts more" printed one.json
head -c 17000000 /dev/zero >much
if "$weft" generate one <much >log 2>&1 || ! grep -q "more than 16 MiB" log; then failed "a prompt without end" log; fi

refused "'1. e4' is one argument too many; pass a text to continue with --prompt" "$weft" generate one "1. e4"
refused "'games.txt' is one argument too many; data.path=games.txt makes it the data" "$weft" eval one/model games.txt
for word in --version -V version; do
    prints "$weft" $word
    told "(SDK "
done

# ---- a text that exceeds the memory, and the length that would fit
prints "$weft" generate one/model --prompt "1. e4" --tokens 64 --temperature 0 --fit 1GB
refused "nothing was started. It would fit with --tokens " "$weft" generate one/model --prompt "1. e4" --tokens 120 --fit 260KB
fewer=$(grep -o -- '--tokens [0-9]*' log)
# shellcheck disable=SC2086 # two words
prints "$weft" generate one/model --prompt "1. e4" $fewer --fit 260KB
refused "No change that was tried is enough" "$weft" generate one/model --prompt "1. e4" --fit 1KB
prints "$weft" generate one/model --prompt "1. e4" --tokens 120 --no-fit

# ---- a padded vocabulary, and one of another model
for size in 520 600 510; do
    mkdir "of-$size" && cp model/tokenizer* "of-$size" && sed "s/\"vocab_size\": 512/\"vocab_size\": $size/" model/config.json >"of-$size/config.json"
done
prints "$weft" train run.ini run.out=padded model.path=of-520
told "the tokenizer has 512 ids and the model's vocabulary 520: it is padded"
[ "$(grep -c 'ids and the model' printed.err)" = 1 ] || failed "the notice comes once" printed.err
prints "$weft" generate padded --tokens 40 --temperature 1000 --ignore-eos --json # every id has the same probability
[ "$(tr ',' '\n' <printed | grep -Eo '^(\{"ids": \[)?[ 0-9]+' | wc -l)" -ge 39 ] || failed "40 ids" printed
prints "$weft" plan run.ini model.path=of-600
told "warning: the tokenizer has 512 ids and the model's vocabulary 600: is it the tokenizer of this model?"
prints "$weft" plan run.ini
if grep -q "ids and the model" printed.err; then failed "as many ids are no news" printed.err; fi
refused "of-510 has a vocabulary of 510: they do not belong together" "$weft" plan run.ini model.path=of-510
refused "[tokenizer] padded was removed: fewer ids than" "$weft" plan run.ini tokenizer.padded=yes

# ---- a JSON array
printf ' [\n  {"text": "1. e4 e5"},\n  {"text": "1. d4 d5"}\n]\n' >array.json
refused "array.json is an array of JSON, which is read as JSONL" "$weft" plan run.ini data.path=array.json data.validation=none
prints "$weft" plan run.ini data.path=array.json data.validation=none data.format=text
printf '[1. e4 e5] {"a": 1} is a text that begins with a bracket\n' >bracket.txt
prints "$weft" plan run.ini data.path=bracket.txt data.validation=none

# ---- learning-rate scaling for another batch
prints "$weft" plan run.ini train.global_batch=28 train.lr_scaling=sqrt train.lr_batch=10 optimizer.lr=1e-5
told "lr          1e-05 for 10 rows, times 1.67332 for 28 (sqrt): 1.67332e-05"
grep -q '^  step  *1  lr 1.67332e-05$' printed || failed "the scaled rate is used" printed
prints "$weft" train run.ini train.global_batch=40 train.lr_scaling=linear train.lr_batch=10 optimizer.lr=1e-5 run.out=scaled
told "lr         1e-05 for 10 rows, times 4 for 40 (linear): 4e-05"
grep -q '"step": 1, .*"lr": 4.0*[0-9]*e-05' scaled/metrics.jsonl || failed "and trained with" scaled/metrics.jsonl
refused "[train] lr_scaling = sqrt needs lr_batch" "$weft" plan run.ini train.lr_scaling=sqrt
refused "[train] lr_batch = 10 is not used" "$weft" plan run.ini train.lr_batch=10

# ---- names of other programs
refused "command line: [train] has no key num_train_epochs; Weft has it as epochs in [train]. Its keys are: steps" \
    "$weft" train run.ini train.num_train_epochs=3
refused "[optimizer] has no key learning_rate; Weft has it as lr in [optimizer]." "$weft" train run.ini optimizer.learning_rate=1
refused "has no key gradient_accumulation_steps; Weft has it as global_batch in [train] (micro_batch times accumulation times ranks)." \
    "$weft" train run.ini train.gradient_accumulation_steps=3
# A hint has the same meaning: it describes a key of that name elsewhere, or reports that no such setting
# exists.
refused "[eval] has no key steps; Weft has it as every in [eval] (" "$weft" train run.ini eval.steps=10
refused "[train] has no key patience; Weft has no such setting: " "$weft" train run.ini train.patience=3
refused "[train] has no key lr; [optimizer] has a key of that name: Step size" "$weft" train run.ini train.lr=1e-4
refused "[data] template = chatml is a key of another data than text, which is chosen: set plugin = instruct, or put it" \
    "$weft" train run.ini data.template=chatml
prints "$weft" plan run.ini data.instruct.template=chatml
told "warning: command line: [data.instruct] template = chatml is for data plugin instruct, and [data] plugin = text is selected"
echo '[data.instruct]' | cat run.ini - >waits.ini && echo 'template = chatml' >>waits.ini # in a file it is kept for later
prints "$weft" plan waits.ini
if grep -q warning printed.err; then failed "a key that waits in a file is no mistake" printed.err; fi

# ---- `config check` rejects everything that `train` rejects before it opens a device
prints "$weft" config check run.ini
refused "[data] context = 4096 is longer than the model's 128 places" "$weft" config check run.ini data.context=4096
refused "holds neither model.safetensors nor" "$weft" config check run.ini model.start=weights
make_model other 32 8 56 2 100
refused "has 512 ids and the model in" "$weft" config check run.ini model.path=other
echo '{"txt": "1"}' >bad.jsonl
refused "bad.jsonl:1: there is no field \"text\"" "$weft" config check run.ini data.path=bad.jsonl data.validation=none

# ---- the default learning rate is marked as a default
prints "$weft" train run.ini run.out=rate
told "0.001 is the default of adamw: [optimizer] lr is not set"
prints "$weft" train run.ini run.out=rate --overwrite optimizer.adamw.lr=1e-3
if grep -q "is the default of" printed; then failed "a rate that is set is no default" printed; fi

# ---- an inaccessible path is not a missing one
mkdir loop && ln -s config.json loop/config.json
refused "loop/config.json: cannot be read: Too many levels of symbolic links" "$weft" init loop games.txt -o -
refused "[model] path = loop has a config.json that cannot be read" "$weft" plan short.ini model.path=loop
sed -i 's|"model_type": *"[^"]*"|"model_type": "mixtral"|' stranger/config.json
refused "stranger/config.json: model_type = mixtral cannot be used: there is no model plugin" "$weft" init stranger games.txt -o -
sed -i 's|mixtral|mistrel|' stranger/config.json
refused "stranger/config.json: model_type = mistrel cannot be used: there is no model plugin \"mistrel\"" "$weft" init stranger games.txt -o -

refused "[data] has no key max_seq_length; Weft has it as context in [data]." "$weft" train run.ini data.max_seq_length=3
refused "[train] warmup = 5% is not a number: give a number of 0 or more; 5% is 0.05" "$weft" train run.ini train.warmup=5%
refused "did you mean *q_proj*, which is 2 of them?" "$weft" plan run.ini train.trainable=q_proj
prints "$weft" config explain run.ini --optimizer.lr=3e-4
grep -Eq "^ *lr *= *0?.0003 .*command line|lr.*3e-0?4.*command line|lr.*0\.0003.*command line" printed || failed "--optimizer.lr=3e-4" printed
refused "[strategy] plugin = zero2 is no strategy plugin; Weft has it as fsdp (shard = gradients)" \
    "$weft" plan run.ini strategy.plugin=zero2
refused "[device] plugin = GPU is no device plugin; Weft has it as cuda" "$weft" plan run.ini device.plugin=GPU
sed -n 's/^FOREIGN_ID("\([^"]*\)", "[^"]*", "\([^"]*\)".*/\1 \2/p' "$WEFT_SOURCE/host/config/foreign_ids.def" | sort -u >ids
while read -r kind id; do
    [ -d "$WEFT_SOURCE/plugins/$kind/$id" ] || "$weft" plugins describe "$kind:$id" >printed 2>&1 ||
        failed "$kind:$id is no plugin" printed
done <ids
[ "$(wc -l <ids)" -gt 6 ] || failed "the table of ids" ids
"$weft" config describe >keys # settings named in the table exist
for plugin in optimizer:adamw data:text tokenizer:bpe model:llama adapter:lora; do
    prints "$weft" plugins describe $plugin
    sed -n "/^  [a-z]/p; s/^$plugin .*/[${plugin%:*}]/p" printed >>keys
done
sed -n 's/^FOREIGN("\([^"]*\)", "\([^"]*\)", "\([^"]\{1,\}\)".*/\1 \3 \2/p' "$WEFT_SOURCE/host/config/foreign_names.def" >rows
[ "$(wc -l <rows)" -gt 50 ] || failed "the table's rows" rows
while read -r theirs key section; do
    case $key in
    plugin) ;;
    --*) "$weft" train --help >help && "$weft" generate --help >>help && grep -q -- "^  $key[[ ]" help || failed "$theirs: $key is no flag" ;;
    *) awk -v section="[$section]" -v key="$key" '/^\[/ {within = $1 == section} within && $1 == key {found = 1} END {exit !found}' keys ||
        failed "$theirs: [$section] has no $key" keys ;;
    esac
done <rows

# ---- messages
prints "$weft" train run.ini --resume
told "finished: none of its 2 steps is left; what goes on is more of them: train.steps=4 --resume"
if "$weft" train run.ini train.steps=3 train.global_batch=8 --resume >log 2>log.err || ! grep -q "differs from this one" log.err; then
    failed "another batch is refused" log.err
fi
[ ! -s log ] || failed "what is refused has no header" log
prints "$weft" train run.ini train.steps=3 --resume
if grep -q "finished" printed; then failed "one that goes on is not finished" printed; fi
prints "$weft" train run.ini run.out=losses eval.every=1
grep -Eq '^loss +[0-9.]+ -> [0-9.]+ on validation$' printed || failed "how far the loss went" printed
grep '^loss' printed | sed 's/.*> //' >last
prints "$weft" train run.ini run.out=losses eval.every=1 --resume
grep "^loss" printed | sed "s/^loss *//" >now
same "a finished run has the loss of its end" last now
prints "$weft" train run.ini run.out=losses eval.every=1 --resume train.steps=4
grep -Eq "^loss +$(cut -d' ' -f1 last) after step 2 -> [0-9.]+ on validation$" printed || failed "from where the loss went" printed
for command in plan "train --overwrite"; do
    # shellcheck disable=SC2086
    prints "$weft" ${command%% *} run.ini ${command#"${command%% *}"} strategy.plugin=fsdp
    told "strategy fsdp is for several ranks, and this run has one"
    # shellcheck disable=SC2086
    prints "$weft" ${command%% *} run.ini ${command#"${command%% *}"}
    if grep -q "is for several ranks" printed.err; then failed "$command: single is told nothing" printed.err; fi
done
for strategy in ddp mp; do
    prints "$weft" plan run.ini strategy.plugin=$strategy
    told "strategy $strategy is for several ranks, and this run has one"
done
# The sections of a plugin remain unused until it is selected: one line selects another device.
export WEFT_PLUGIN_PATH="$WEFT_BUILD/tests/faults:$WEFT_BUILD/plugins"
prints "$weft" config check "$WEFT_SOURCE/configs/prove.ini" device.plugin=crowd
# Reported if one thread is faster with the same results; not if it is slower, single, or the work is large.
alone="one thread is faster than 2 here: "
prints "$weft" train run.ini --overwrite device.plugin=crowd device.threads=2
told "$alone"
told "for a micro-batch, forward and backward, with the same results: device.threads=1"
[ "$(grep -c "$alone" printed.err)" = 1 ] || failed "it is told once" printed.err
told "crowd: 2 threads" # as before
sed 's/"tokens_per_second.*//' one/metrics.jsonl >by_two
prints "$weft" train run.ini --overwrite device.plugin=crowd device.threads=1
if grep -q "one thread is faster" printed.err; then failed "one thread has no news" printed.err; fi
sed 's/"tokens_per_second.*//' one/metrics.jsonl >by_one
same "one thread and two" by_one by_two
export CROWD=one
prints "$weft" train run.ini --overwrite device.plugin=crowd device.threads=2
if grep -q "one thread is faster" printed.err; then failed "two threads are faster" printed.err; fi
unset CROWD
prints "$weft" train run.ini --overwrite device.plugin=crowd device.threads=2 --quiet
if grep -q "one thread is faster" printed.err; then failed "it is no warning" printed.err; fi
# Train and plan report once if 16 bits are slower than fp32; only if 16 bits are requested.
slower="bf16 is slower than fp32 here: "
export CROWD=bf16
for command in "train run.ini --overwrite" "plan run.ini"; do
    # shellcheck disable=SC2086  # words on purpose
    prints "$weft" $command device.plugin=crowd device.threads=1 train.precision=bf16
    told "$slower"
    told "train.precision=fp32 takes less time, and more memory"
    [ "$(grep -c "$slower" printed.err)" = 1 ] || failed "it is told once" printed.err
    # shellcheck disable=SC2086
    prints "$weft" $command device.plugin=crowd device.threads=1
    if grep -q "$slower" printed.err; then failed "fp32 is what the run is in" printed.err; fi
done
prints "$weft" train run.ini --overwrite device.plugin=crowd device.threads=1 train.precision=bf16 --quiet
if grep -q "$slower" printed.err; then failed "it is no warning" printed.err; fi
export CROWD=fp32
prints "$weft" train run.ini --overwrite device.plugin=crowd device.threads=1 train.precision=bf16
if grep -q "$slower" printed.err; then failed "bf16 is faster" printed.err; fi
unset CROWD
mkdir wide && cp model/tokenizer* wide
sed 's/"vocab_size": 512/"vocab_size": 131072/; s/"hidden_size": 32/"hidden_size": 128/; s/"head_dim": 8/"head_dim": 32/' model/config.json >wide/config.json
prints "$weft" train run.ini --overwrite device.plugin=crowd device.threads=2 model.path=wide train.steps=1 train.global_batch=2 checkpoint.every=none
if grep -q "one thread is faster" printed.err; then failed "products that are worth any team" printed.err; fi
unset WEFT_PLUGIN_PATH

[ "$failures" = 0 ]
