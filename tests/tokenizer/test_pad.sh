#!/bin/sh
# `tokenizer.pad = add` adds a pad token to a tokenizer without one, and a row to the model; both are saved. Strategies and
# resuming keep the bits. checkpoint/test_transformers.sh tests that transformers reads the result. ctest sets
# WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
make_run <<'INI'
steps = 4
clip = 1.0
[tokenizer]
pad = add
[optimizer]
lr = 1e-3
[checkpoint]
every = 2
INI
cp "$WEFT_SOURCE"/configs/chess/base/config.json "$WEFT_SOURCE"/configs/chess/base/model.safetensors model/
echo '{"pad_token_id": null, "temperature": 0.7}' >model/generation_config.json
sed -i 's/^start  = fresh/start = weights/' run.ini
contains() { # contains FILE TEXT
    tr -d ' \n' <"$1" | grep -qF -- "$(echo "$2" | tr -d ' ')" || failed "$1 does not say $2" "$1"
}

# ---- an additional row
prints "$weft" train run.ini
grep -qF "the pad token <pad> has the id 512: embeddings (and a head of its own) get a row for it, the mean of the others" \
    printed printed.err || failed "what is added is not told" printed printed.err
contains out/model/config.json '"vocab_size": 513'
contains out/model/config.json '"pad_token_id": 512'
contains out/model/generation_config.json '"pad_token_id": 512'
contains out/model/generation_config.json '"temperature": 0.7'
contains out/model/tokenizer.json '{"id": 512, "content": "<pad>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]'
contains out/model/tokenizer_config.json '"pad_token": "<pad>"'
head -c 3000 out/model/model.safetensors | grep -aqF '"model.embed_tokens.weight":{"dtype":"F32","shape":[513,128]' ||
    failed "the embedding has no further row"
mv out one

# ---- the same bits after an interruption, and under every strategy
prints "$weft" train run.ini train.steps=2
prints "$weft" train run.ini --resume
cmp -s one/model/model.safetensors out/model/model.safetensors || failed "resuming gives other bits"
refused 'config.json' "$weft" train run.ini --resume tokenizer.pad=keep train.steps=6
rm -r out
if [ -e "$WEFT_BUILD/tests/faults/weft-comm-ring.so" ]; then
    for strategy in ddp fsdp mp; do
        is_full || [ "$strategy" = fsdp ] || continue
        prints "$weft" train run.ini --ranks 3 strategy.plugin="$strategy" run.out="$strategy"
        cmp -s one/model/model.safetensors "$strategy/model/model.safetensors" || failed "$strategy gives other bits"
        cmp -s one/model/tokenizer.json "$strategy/model/tokenizer.json" || failed "$strategy saves another tokenizer"
    done
fi

# ---- the saved model is used as any model, and its run as any run
printf 'e4<pad>' | "$weft" tokenize one/model >ids || failed "the saved tokenizer cannot be read"
grep -qw 512 ids || failed "<pad> is not the pad token" ids
prints "$weft" generate one --prompt "1. e4" --tokens 4
prints "$weft" eval one
prints "$weft" train run.ini model.path=one/model run.out=again train.steps=2
contains again/model/config.json '"vocab_size": 513'
cmp -s one/model/tokenizer.json again/model/tokenizer.json || failed "a token is added twice"

# ---- an unused row, and an existing token
make_model spare 40 10 88 3 521
prints "$weft" train run.ini model.path=spare model.start=fresh run.out=two tokenizer.pad_token='[PAD]' train.steps=2
grep -qF "the pad token [PAD] has the id 512: the model has a row for it, which stays as it is" printed printed.err ||
    failed "that a spare row is taken is not told" printed printed.err
contains two/model/config.json '"vocab_size": 521'
contains two/model/config.json '"pad_token_id": 512'
prints "$weft" train run.ini run.out=unk tokenizer.pad_token='<unk>' train.steps=2
contains unk/model/config.json '"vocab_size": 512'
contains unk/model/config.json '"pad_token_id": 0'

# ---- errors
refused "[tokenizer] pad = add adds a pad token, and the tokenizer in $PWD/one/model already has another one than [PAD], id 512" \
    "$weft" plan run.ini model.path=one/model tokenizer.pad_token='[PAD]'
refused 'pad_token' "$weft" plan run.ini tokenizer.pad_token=
mkdir bare && cp model/config.json model/model.safetensors model/tokenizer.json bare
refused 'tokenizer_config.json is missing' "$weft" plan run.ini model.path=bare
sed 's/"vocab_size": 512/"vocab_size": 511/' model/config.json >small && cp -r model smaller && mv small smaller/config.json
refused 'has 513 ids, but the model in' "$weft" plan run.ini model.path=smaller model.start=fresh
refused 'pad in [tokenizer]' "$weft" plan run.ini train.resize_vocab=yes
[ "$failures" = 0 ]
