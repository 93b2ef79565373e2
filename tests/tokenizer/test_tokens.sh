#!/bin/sh
# `tokenizer.add` adds special tokens to a tokenizer, and rows to the model that are trained with an adapter; all are saved.
# The result can be read, resumed and merged, with the same bits on three ranks. Conversations end with such a token.
# adapter/test_peft_loads.sh tests that transformers and PEFT read it. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"
make_run <<'INI'
steps = 4
clip  = 1.0
[eval]
every = none
[checkpoint]
every = 2
[tokenizer]
add = <|im_start|>, <|im_end|>
[optimizer]
lr = 1e-2
[device]
threads = 1
INI
make_model fresh 40 10 88 3 512
sed -i 's/^path   = model/path   = base/; s/^start  = fresh/start  = weights/' run.ini
contains() { # contains FILE TEXT
    tr -d ' \n' <"$1" | grep -qF -- "$(echo "$2" | tr -d ' ')" || failed "$1 does not say $2" "$1"
}
train() { # train argument...: a run, with its words in log
    limit "$weft" train run.ini --overwrite "$@" >log 2>&1 || failed "train $*" log
}
train run.out=first model.path=fresh model.start=fresh tokenizer.add= checkpoint.every=none train.steps=2
mv first/model base

# ---- full training: additional rows, and tokenizer files with the tokens

train
grep -qF "2 tokens are added, with the ids 512 to 513: 2 more rows of embeddings (and of a head of its own), the mean of those there are" log ||
    failed "what is added is not told" log
contains out/model/config.json '"vocab_size": 514'
cmp -s out/checkpoints/step-4/model.safetensors out/model/model.safetensors || failed "another model in the checkpoint"
contains out/model/tokenizer.json '"id": 512, "content": "<|im_start|>"'
contains out/model/tokenizer.json '"id": 513, "content": "<|im_end|>"'
printf 'e4<|im_end|>' | "$weft" tokenize out/model >ids || failed "the saved tokenizer cannot be read"
grep -qw 513 ids || failed "<|im_end|> is no token" ids
whole=$(loss out)
near "what is saved, by itself" 1e-9 "$whole" "$(loss run.ini tokenizer.add= model.path=out/model)"
train run.out=pad tokenizer.pad=add checkpoint.every=none
contains pad/model/config.json '"vocab_size": 515'
contains pad/model/config.json '"pad_token_id": 514'
! grep -q '"pad_token"' out/model/tokenizer_config.json || failed "a pad token that nobody asked for" out/model/tokenizer_config.json
! grep -q pad_token_id out/model/config.json || failed "a pad token that nobody asked for" out/model/config.json
sed 's/"vocab_size": 512/"vocab_size": 513/' fresh/config.json >config.json && cp -r fresh spare && mv config.json spare/config.json
train run.out=spared model.path=spare model.start=fresh checkpoint.every=none
grep -qF "1 more row of embeddings (and of a head of its own), the mean of those there are; the model has rows for the others, which begin as they are" log ||
    failed "that a spare row is taken is not told" log
contains spared/model/config.json '"vocab_size": 514'

# A run with a separate tokenizer directory reads the saved tokenizer, which has tokens, pad and end.
sed '/^add = /d; s|^\[tokenizer\]|[tokenizer]\npath = base|' run.ini >elsewhere.ini
limit "$weft" train elsewhere.ini run.out=elsewhere tokenizer.add='<|im_start|>,<|im_end|>' tokenizer.pad=add checkpoint.every=none >log 2>&1 || failed "a tokenizer of its own" log
near "a run is read with the tokenizer that it saved" 1e-9 "$(loss elsewhere)" "$(loss run.ini tokenizer.add= model.path=elsewhere/model)"
for said in elsewhere "elsewhere tokenizer.path=elsewhere/model"; do
    # shellcheck disable=SC2086 # words on purpose
    limit "$weft" generate $said --prompt '<|im_start|>e4' --tokens 4 --temperature 0 --json >"said.${#said}" 2>log || failed "generate $said" log
done
cmp -s said.9 said.40 || failed "generate of a run reads another tokenizer" said.9 said.40

# ---- with an adapter: the embedding tables are trained too

adapter="adapter.plugin=lora adapter.r=4"
rows=$((514 * 40)) lora=$((3 * 4 * (2 * 80 + 2 * 60 + 3 * 128)))
trained() { # trained NUMBER argument...: elements that a plan says are trained
    number=$1
    shift
    "$weft" plan run.ini --json "$@" >plan.txt 2>log || failed "plan $*" log
    tr -d ' \n' <plan.txt | grep -qF "\"trained\":$number," || failed "plan $*: not $number trained" plan.txt
}
# shellcheck disable=SC2086 # a plugin and its keys
{
    trained $((lora + rows)) $adapter
    trained $lora $adapter train.trainable=adapter
    train $adapter train.steps=1 train.trainable=adapter checkpoint.every=none
    grep -qF "does not train the embeddings of the added tokens" log || failed "no word of untrained rows" log
    train run.out=tied $adapter
    with=$(loss tied)
    [ "$with" != "$(loss run.ini)" ] || failed "nothing was learned"
    near "an adapter and its tokens" 1e-9 "$with" "$(loss run.ini $adapter --adapter tied/model)"
    refused "[adapter] from = tied/model ($PWD/tied/model) was made with tokens that this run's tokenizer does not have. Fix: set [tokenizer] add = <|im_start|>,<|im_end|>, or path = $PWD/tied/model" \
        "$weft" eval run.ini tokenizer.add= --adapter tied/model
    for add in '<|im_end|>,<|im_start|>' '<|im_start|>' '<|im_start|>,<|im_end|>x' '<a>,<b>'; do
        refused "does not begin with the added tokens of the adapter in $PWD/tied/model, which would change their ids. Fix: set add = <|im_start|>,<|im_end|>, followed by others" \
            "$weft" eval run.ini tokenizer.add="$add" --adapter tied/model
    done
    cp -r tied/model untold
    rm untold/tokenizer.json
    refused "has 514 rows, and this model has 512: the adapter was trained with added tokens. Fix: set [tokenizer] add" \
        "$weft" eval run.ini tokenizer.add= --adapter untold
    limit "$weft" merge base tied/model merged >log 2>&1 || failed "merge" log
    contains merged/config.json '"vocab_size": 514'
    contains merged/tokenizer.json '"<|im_end|>"'
    near "merged" 1e-5 "$with" "$(loss run.ini tokenizer.add= model.path=merged)"
    train run.out=parts $adapter train.steps=2
    limit "$weft" train run.ini --resume run.out=parts $adapter >log 2>&1 || failed "a resume" log
    same_tensors "after a resume" tied/model parts/model
    # A packed base: linears are packed, embedding tables are not.
    train run.out=packed $adapter model.base=nf4 checkpoint.every=none train.steps=1
    near "on a packed base" 1e-9 "$(loss packed)" "$(loss run.ini $adapter model.base=nf4 --adapter packed/model)"
}

# ---- conversations: a template with tokens that the tokenizer lacked

for turn in 1 2 3 4 5 6 7 8; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$turn. e4\"}, {\"role\": \"assistant\", \"content\": \"e5\"}]}"
done >chat.jsonl
sed '/^document/d' run.ini >chat.ini
chat="data.plugin=instruct data.path=chat.jsonl data.template=chatml data.validation=none data.context=48"
# shellcheck disable=SC2086 # a plugin and its keys
{
    limit "$weft" train chat.ini --overwrite run.out=talks $chat $adapter checkpoint.every=none >log 2>&1 || failed "conversations" log
    grep -qF "the end token <|im_end|> (id 513) ends 8 of 8 answers and is trained" log || failed "no end token" log
    # The trained end token is saved: with an adapter, merged, and in a full model.
    grep -qF "ends its text with <|im_end|>: eos_token_id is 513, 2" log || failed "the new end is not logged" log
    contains talks/model/generation_config.json '"eos_token_id": [513, 2]'
    contains talks/model/tokenizer_config.json '"eos_token": "<|im_end|>"'
    limit "$weft" merge base talks/model ended >log 2>&1 || failed "merge with an end" log
    printf '{"_from_model_config": true, "eos_token_id": 2}' >generation_config.json
    cp -r base generating && mv generation_config.json generating
    printf '{"eos_token": {"content": "</s>"}, "bos_token": "<s>"}' >generating/special_tokens_map.json
    limit "$weft" train chat.ini --overwrite run.out=whole model.path=generating $chat >log 2>&1 || failed "a whole model's end" log
    for model in ended whole/model whole/checkpoints/step-4; do
        contains $model/config.json '"eos_token_id": [513, 2]'
        contains $model/tokenizer_config.json '"eos_token": "<|im_end|>"'
        [ $model = ended ] || contains $model/generation_config.json '"eos_token_id": [513, 2]'
        [ $model = ended ] || contains $model/special_tokens_map.json '"eos_token": "<|im_end|>"'
    done
    limit "$weft" train chat.ini --overwrite run.out=again model.path=whole/model tokenizer.add= $chat train.steps=1 >log 2>&1 ||
        failed "a model that has the end" log
    ! grep -qF "ends its text with" log || failed "an end that the model has is logged as new" log
    for file in config.json generation_config.json tokenizer_config.json; do
        cmp -s whole/model/$file again/model/$file || failed "$file of a model that has the end is another one" again/model/$file
    done
    limit "$weft" train chat.ini --overwrite run.out=kept model.path=generating $chat tokenizer.end=keep train.steps=1 >log 2>&1 || failed "end = keep" log
    cmp -s generating/generation_config.json kept/model/generation_config.json || failed "end = keep changes generation_config.json" kept/model/generation_config.json
    contains kept/model/config.json '"eos_token_id": 2,'
    ! grep -qF '"eos_token": "<|im_end|>"' kept/model/tokenizer_config.json || failed "end = keep changes the tokenizer" kept/model/tokenizer_config.json
    limit "$weft" train run.ini --overwrite run.out=named model.path=generating 'tokenizer.end=<|im_start|>' train.steps=1 >log 2>&1 || failed "end = TOKEN" log
    contains named/model/generation_config.json '"eos_token_id": [512, 2]'
    refused "[tokenizer] end = <|nope|>" "$weft" train chat.ini --overwrite run.out=bad $chat 'tokenizer.end=<|nope|>'
    # Training on text without a template keeps the files.
    limit "$weft" train run.ini --overwrite run.out=text model.path=generating train.steps=1 >log 2>&1 || failed "text" log
    cmp -s generating/generation_config.json text/model/generation_config.json || failed "text changes generation_config.json"
    cmp -s generating/special_tokens_map.json text/model/special_tokens_map.json || grep -q '"</s>"' text/model/special_tokens_map.json || failed "text changes the tokenizer's end"
    # A template with eos_token keeps the tokenizer's end token.
    cp -r generating writes
    printf '%s' '{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{{ eos_token }}' >writes/chat_template.jinja
    limit "$weft" train chat.ini --overwrite run.out=own model.path=writes $chat data.template=own train.steps=1 >log 2>&1 || failed "an own template" log
    contains own/model/generation_config.json '"eos_token_id": [513, 2]'
    ! grep -qF '"eos_token": "<|im_end|>"' own/model/tokenizer_config.json || failed "the template's eos_token is another one" own/model/tokenizer_config.json

    # generate --chat on a run with an adapter, or on its directory, uses the template there.
    for said in "talks --template chatml" talks "talks/model"; do
        echo "1. e4" | limit "$weft" generate $said --chat --tokens 4 --temperature 0 >said 2>log || failed "generate $said --chat" log
        [ "$said" = "talks --template chatml" ] && mv said expected || cmp -s expected said || failed "$said: another template" expected said
    done
    limit "$weft" train chat.ini --overwrite run.out=bare model.path=whole/model tokenizer.add= $chat $adapter checkpoint.every=none >log 2>&1 || failed "no tokens added" log
    printf '%s' '{% for m in messages %}({{ m.content }}<|im_end|>{% endfor %}' >bare/model/chat_template.jinja
    cp -r whole/model other && cp bare/model/chat_template.jinja other
    echo "1. e4" | limit "$weft" generate bare --chat --tokens 4 --temperature 0 >said 2>log || failed "a template of the adapter's directory" log
    echo "1. e4" | limit "$weft" generate bare tokenizer.path=other --chat --tokens 4 --temperature 0 >expected 2>log || failed "the same template" log
    cmp -s expected said || failed "the template of the adapter's directory is not read" expected said
    # Generation stops at the end tokens of the files.
    "$weft" generate talks --prompt "1. e4" --tokens 6 --temperature 0 --json --ignore-eos >all 2>log || failed "generate" log
    first=$(sed 's/.*"ids": \[\([0-9]*\).*/\1/' all)
    sed "s/513/$first/" talks/model/generation_config.json >generation_config.json
    mv generation_config.json talks/model
    "$weft" generate talks --prompt "1. e4" --tokens 6 --temperature 0 --json >one 2>log || failed "generate to an end" log
    ! cmp -s all one || failed "the adapter's eos_token_id is not read" all one
    limit "$weft" train chat.ini --overwrite run.out=plain $chat $adapter tokenizer.add= train.steps=1 checkpoint.every=none >log 2>&1 ||
        failed "conversations without tokens" log
    ! grep -qF "(id 513)" log || failed "a token that nobody added" log
}

# ---- errors

refused "[tokenizer] add = <|im_end|>,<unk> names <unk>, which the tokenizer in $PWD/base has already, with the id 0. Fix: remove it" \
    "$weft" plan run.ini 'tokenizer.add=<|im_end|>,<unk>'
refused "has \"e\" already, with the id" "$weft" plan run.ini tokenizer.add=e
refused "names <a> twice. Fix: remove one of them" "$weft" plan run.ini 'tokenizer.add=<a>, <b>, <a>'
refused "has an empty element" "$weft" plan run.ini 'tokenizer.add=<a>,,<b>'
refused "names <pad>, which pad = add adds. Fix: remove it from the list" "$weft" plan run.ini 'tokenizer.add=<pad>' tokenizer.pad=add
refused "names <|im_start|>, which the tokenizer in $PWD/out/model has already, with the id 512" "$weft" plan run.ini model.path=out/model
refused "add in [tokenizer]" "$weft" plan run.ini train.additional_special_tokens=x
# shellcheck disable=SC2086 # a plugin and its keys
refused "This checkpoint is of another model" "$weft" train run.ini --resume run.out=parts $adapter tokenizer.add= train.steps=6

# ---- several ranks

has mpich || exit $((failures > 0))
# shellcheck disable=SC2086 # a plugin and its keys
train run.out=many $adapter comm.plugin=mpi-mpich strategy.plugin=fsdp policy.plugin=class policy.classes=Linear --ranks 3
same_tensors "on three ranks" tied/model many/model
if is_full; then
    sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' fresh/config.json >config.json && cp -r fresh untied && mv config.json untied/config.json
    for at in "model.path=base" "model.path=untied model.start=fresh"; do
        # shellcheck disable=SC2086 # overrides
        limit "$weft" prove run.ini $at $adapter comm.plugin=mpi-mpich --ranks 3 --steps 2 >printed 2>printed.err || failed "prove $at" printed printed.err
        grep -qF " equal, 0 not covered, 0 different" printed || failed "prove $at" printed
    done
fi
exit $((failures > 0))
