#!/bin/sh
# Files of a run with an adapter and their use: an adapter directory of a few files, checkpoints without the
# base, a resume on other ranks, evaluation and generation, several adapters by name, another base, and a
# merged model. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$WEFT_BUILD/plugins"

make_run <<'INI'
steps        = 6
[eval]
every = none
[checkpoint]
every = 3
[optimizer]
plugin = adamw
lr     = 1e-2
[device]
threads = 1
INI
train() { # train argument...: a run, with its output in log
    limit "$weft" train run.ini --overwrite "$@" >log 2>&1 || failed "train $*" log
}
same() { # same WHAT A B: the same file
    cmp -s "$2" "$3" || failed "$1: $2 and $3 differ"
}

# A base with tied head, and one with other training.
train run.out=first train.steps=2 checkpoint.every=none
mv first/model base
cp run.ini fresh.ini
sed 's|^path   = model|path   = base|; s|^start  = fresh|start  = weights|' fresh.ini >plain.ini
cat plain.ini - >run.ini <<'INI'
[adapter]
plugin  = lora
r       = 4
alpha   = 8
named   = one:out/model, two:other/model
INI

# ---- files of a run

# After a fresh start: base and adapter in one directory, which is usable as both.
limit "$weft" train fresh.ini --overwrite run.out=both adapter.plugin=lora checkpoint.every=none >log 2>&1 || failed "a fresh base" log
of_both="data.path=games.txt data.document=line data.context=32 data.validation=5"
# shellcheck disable=SC2086 # words on purpose
{
    near "a directory with base and adapter" 1e-5 "$(loss both)" "$(loss both/model $of_both)"
    [ "$(loss both/model $of_both adapter.plugin=none)" != "$(loss both/model $of_both)" ] || failed "the adapter changes nothing" log
}

! grep -q '"base": ""' both/model/weft_adapter.json || failed "no fingerprint of the base beside it" both/model/weft_adapter.json
refused "was made on other weights than those in $dir/base: set [model] path to its base" "$weft" eval plain.ini --adapter both/model
near "its base by itself" 1e-5 "$(loss both)" "$(loss plain.ini --adapter both/model model.path=both/model)"

train run.out=out train.trainable=adapter,model.norm.weight adapter.targets=all-linear,embed_tokens
# The base's hash covers all bytes, also within a tensor and with a reset modification time.
cp base/model.safetensors sound
header=$(od -A n -t u8 -N 8 base/model.safetensors)
touch -r base/model.safetensors time
dd if=/dev/zero of=base/model.safetensors bs=1 seek=$((8 + header + 40000)) count=2000 conv=notrunc 2>/dev/null
touch -r time base/model.safetensors
! cmp -s sound base/model.safetensors || failed "zeros change nothing"
refused "was made on other weights than those in $dir/base: set [model] path to its base" "$weft" eval plain.ini --adapter out/model
limit "$weft" train run.ini --resume run.out=out train.steps=7 train.trainable=adapter,model.norm.weight \
    adapter.targets=all-linear,embed_tokens >log 2>&1 && failed "a base with zeros was resumed" log
says log "the base's weights"
cat sound >base/model.safetensors # the same bytes with another time
near "the base is back" 1e-9 "$(loss plain.ini --adapter out/model)" "$(loss plain.ini adapter.from=out/model)"
! grep -q '"base_files": ""' out/model/weft_adapter.json || failed "no state of the base's files" out/model/weft_adapter.json
for file in adapter_config.json adapter_model.safetensors weft_adapter.json tokenizer.json; do
    [ -s "out/model/$file" ] || failed "no out/model/$file"
done
[ ! -e out/model/model.safetensors ] && [ ! -e out/checkpoints/step-6/model.safetensors ] || failed "the base was saved again"
says out/model/adapter_config.json '"model.norm"'
says out/checkpoints/step-6/state/exp_avg.safetensors 'q_proj.lora_A.weight'
! grep -qF 'q_proj.weight' out/checkpoints/step-6/state/exp_avg.safetensors || failed "states of what is frozen"
train run.out=other run.seed=9 adapter.r=2 adapter.alpha=auto 'adapter.targets=*.q_proj' adapter.layers=0,2
says other/model/adapter_config.json '"model.layers.2.self_attn.q_proj"' # not all modules of that name, so each by its path
! grep -qE '"q_proj"|layers.1' other/model/adapter_config.json || failed "modules that were left out" other/model/adapter_config.json

# ---- reading

with=$(loss run.ini --adapter out/model adapter.r=auto train.trainable=all)
near "by name" 1e-9 "$with" "$(loss run.ini --adapter one)"
near "as a run's directory" 1e-9 "$with" "$(loss out)"
[ "$with" != "$(loss run.ini)" ] || failed "an adapter that changes nothing"
[ "$with" != "$(loss run.ini --adapter two adapter.r=auto adapter.alpha=auto)" ] || failed "two adapters that are one"
limit "$weft" generate run.ini --adapter one --prompt e2 --tokens 8 --temperature 0 --json >a.txt 2>log || failed "generate" log
limit "$weft" generate out --prompt e2 --tokens 8 --temperature 0 --json --no-cache >b.txt 2>log || failed "generate of a run" log
same "with the cache and without" a.txt b.txt
train run.out=again train.steps=1 optimizer.lr=0 checkpoint.every=none adapter.from=out/model \
    train.trainable=adapter,model.norm.weight
same "an adapter that was read and saved" out/model/adapter_model.safetensors again/model/adapter_model.safetensors

# Fully trained parameters of the adapter are trained further, and remain in it.
train run.out=whole train.steps=1 optimizer.lr=0 checkpoint.every=none adapter.from=out/model
same "an adapter that was read and saved, with what trainable = auto is" out/model/adapter_model.safetensors whole/model/adapter_model.safetensors
says whole/model/adapter_config.json '"model.norm"'
lost="'model.norm.weight' was trained completely with the adapter, and [train] trainable does not contain it, so that the files of this run would lack it. Fix: [train] trainable = adapter, model.norm.weight"
refused "$dir/out/model: $lost" "$weft" train run.ini --overwrite run.out=lost adapter.from=out/model train.trainable=adapter
refused "$dir/out/checkpoints/step-6: $lost" "$weft" train run.ini --resume run.out=out train.steps=8 adapter.targets=all-linear,embed_tokens
near "it may be left out where nothing is saved" 1e-9 "$with" "$(loss run.ini --adapter one train.trainable=adapter)"

# ---- mismatches

refused "[adapter] use = three is no name of an adapter; [adapter] named has one, two" "$weft" eval run.ini --adapter three
refused "[adapter] named = one:out/model,two:other/model,one:base has two directories by the name one: give each a name of its own" \
    "$weft" eval run.ini --adapter two adapter.named=one:out/model,two:other/model,one:base
refused "[adapter] r differs from the value in $dir/out/model/adapter_config.json" "$weft" eval run.ini --adapter one adapter.r=3
refused "[adapter] from = base cannot be used: $dir/base/adapter_config.json: cannot be opened" "$weft" eval run.ini adapter.from=base
limit "$weft" train plain.ini --overwrite run.out=changed train.steps=3 checkpoint.every=none >log 2>&1 || failed "another base" log
refused "was made on other weights than those in $dir/changed/model: set [model] path to its base, or any_base = yes" \
    "$weft" eval run.ini --adapter one model.path=changed/model
limit "$weft" eval run.ini --adapter one model.path=changed/model adapter.any_base=yes >log 2>&1 || failed "any base" log
refused "which has no adapter_config.json: a run writes its adapter to its directory's model/" "$weft" merge base out merged
refused "ADAPTER = nowhere ($dir/nowhere): No such file or directory" "$weft" merge base nowhere merged
refused "BASE = nowhere ($dir/nowhere): No such file or directory" "$weft" merge nowhere out/model merged
refused "[adapter] from = nowhere ($dir/nowhere): No such file or directory" "$weft" eval plain.ini adapter.from=nowhere
sed 's/"r": 4/"r": 5/' out/model/adapter_config.json >config.json
cp -r out/model wrong
mv config.json wrong/adapter_config.json
refused "is (4, 521), and this model with this adapter needs (5, 521): the adapter was made for another base" "$weft" eval run.ini adapter.r=auto --adapter wrong
sed 's/"use_dora": false/"use_dora": true/' out/model/adapter_config.json >wrong/adapter_config.json
refused "dora = yes, and 'model.embed_tokens' is an embedding" "$weft" eval run.ini --adapter wrong
# Flags are evaluated as in Python: 1 and a non-empty string are true.
sed 's/"use_dora": false/"use_dora": 1/' out/model/adapter_config.json >wrong/adapter_config.json
refused "dora = yes, and 'model.embed_tokens' is an embedding" "$weft" eval run.ini --adapter wrong
sed 's/"use_rslora": false/"use_rslora": true/' out/model/adapter_config.json >wrong/adapter_config.json
stabilised=$(loss run.ini --adapter wrong)
[ "$stabilised" != "$with" ] || failed "use_rslora changes nothing" log
sed 's/"use_rslora": false/"use_rslora": "true"/' out/model/adapter_config.json >wrong/adapter_config.json
near "use_rslora as a text" 1e-9 "$stabilised" "$(loss run.ini --adapter wrong)"
sed 's/"use_rslora": false/"use_rslora": 0/' out/model/adapter_config.json >wrong/adapter_config.json
near "use_rslora that is 0" 1e-9 "$with" "$(loss run.ini --adapter wrong)"

# Module selection: by both keys, by a key that disagrees with the file, and by rules that only PEFT's file
# can express.
refused "[adapter] regex and targets both select modules" \
    "$weft" plan run.ini 'adapter.regex=.*q_proj' adapter.targets=q_proj
refused "[adapter] targets or layers select other modules than $dir/out/model/adapter_config.json, which is continued" \
    "$weft" eval run.ini --adapter one adapter.targets=q_proj
refused "[adapter] targets or layers select other modules than" "$weft" eval run.ini --adapter one adapter.layers=0,1
refused "[adapter] regex or layers select other modules than" "$weft" eval run.ini --adapter one 'adapter.regex=.*q_proj'
near "the same modules by a key" 1e-9 "$with" "$(loss run.ini --adapter one adapter.targets=embed_tokens,all-linear)"
their() { # their SED: wrong/adapter_config.json is that of out/model with this change
    sed "$1" out/model/adapter_config.json >wrong/adapter_config.json
    ! cmp -s out/model/adapter_config.json wrong/adapter_config.json || failed "sed $1 changes nothing" wrong/adapter_config.json
}
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' model/config.json >config.json
cp -r model untied
mv config.json untied/config.json
for tied in model untied; do
    their 's/"q_proj"/"q_proj", "lm_head"/'
    refused "$dir/wrong/adapter_config.json: target_modules has 'lm_head'" \
        "$weft" plan fresh.ini model.path=$tied adapter.from=wrong
    refused "[adapter] targets has 'lm_head'" \
        "$weft" plan fresh.ini model.path=$tied adapter.plugin=lora adapter.targets=q_proj,lm_head
done
their 's/"LORA"/"TRAINABLE_TOKENS"/'
rm wrong/weft_adapter.json
refused "[adapter] from = wrong is an adapter of a kind that cannot be used: there is no adapter plugin \"trainable-tokens\"" \
    "$weft" eval plain.ini adapter.from=wrong
their 's/"bias": "none"/"bias": "none", "trainable_token_indices": [1, 2]/'
refused "$dir/wrong/adapter_config.json: trainable_token_indices = [1,2]: " \
    "$weft" eval run.ini adapter.from=wrong
their 's/"q_proj"/"q_proj", "query_key_value"/'
near "a name that other models have" 1e-9 "$with" "$(loss run.ini adapter.from=wrong)"
their 's/"q_proj"/"q_proj", "norm"/'
near "a module that is trained whole is not adapted as well" 1e-9 "$with" "$(loss run.ini adapter.from=wrong)"
# modules_to_save: each name has its tensors in the file.
for name in model.embed_tokens lm_head mlp nrm score; do
    their "s/\"model.norm\"/\"model.norm\", \"$name\"/"
    for trained in adapter auto; do
        refused "$dir/wrong/adapter_config.json: modules_to_save = \"$name\": " "$weft" eval run.ini adapter.from=wrong train.trainable=$trained
    done
done
# Values that PEFT does not write.
for given in 'target_modules [1,"q_proj"]' 'r "4"' 'lora_alpha 0' 'lora_dropout "x"' 'lora_dropout 1.5' 'fan_in_fan_out true' \
    'layers_to_transform [7]' 'layers_to_transform [0,-1]' 'layers_to_transform "x"' 'layers_to_transform [0.5]' \
    'layers_pattern 3' 'modules_to_save "norm"' 'modules_to_save [1]'; do
    key=${given%% *} value=${given#* }
    their "1s/{/{\"$key\": $value,/; /^ *\"$key\": \\[\$/,/\\]/d; /^ *\"$key\": /d"
    says wrong/adapter_config.json "\"$key\": $value,"
    refused "$dir/wrong/adapter_config.json: $key " "$weft" eval run.ini adapter.from=wrong train.trainable=adapter
    [ "$key" = modules_to_save ] || says log ": $key = $value: "
done
their 's/"layers_to_transform": null/"layers_to_transform": []/'
near "no list of layers" 1e-9 "$with" "$(loss run.ini adapter.from=wrong)"
# Keys that PEFT has and Weft does not implement, known or not, and what says nothing.
for value in true 1 '"x"' '[0]' '{"a": 1}'; do
    for key in kasa_config use_newthing; do
        their "s/\"bias\": \"none\"/\"bias\": \"none\", \"$key\": $value/"
        refused "$dir/wrong/adapter_config.json: $key = " "$weft" eval run.ini adapter.from=wrong
    done
done
their 's/"bias": "none"/"bias": "none", "kasa_config": null, "use_newthing": false, "a": 0, "b": "", "c": [], "d": {}, "qalora_group_size": 16/'
near "keys that say nothing" 1e-9 "$with" "$(loss run.ini adapter.from=wrong)"
their 's/"bias": "none"/"bias": "none", "layers_pattern": "blocks"/; s/"layers_to_transform": null/"layers_to_transform": [0, 1, 2]/'
refused "$dir/wrong/adapter_config.json: layers_pattern = blocks" "$weft" eval run.ini adapter.from=wrong
sed 's/"layers_to_transform": null/"layers_to_transform": [0, 1, 2]/' other/model/adapter_config.json >config.json
cp -r other/model below
for name in '"layers"' '["h", "layers"]' '[]'; do
    sed "s/\"bias\": \"none\"/\"bias\": \"none\", \"layers_pattern\": $name/" config.json >below/adapter_config.json
    near "layers_pattern = $name" 1e-9 "$(loss run.ini --adapter two adapter.r=auto adapter.alpha=auto)" \
        "$(loss run.ini adapter.from=below adapter.r=auto adapter.alpha=auto)"
done
their '/"target_modules": \[/,/\]/c "target_modules": ["query_key_value"],'
refused "$dir/wrong/adapter_config.json: target_modules has 'query_key_value', which is no module of this model that can be adapted" \
    "$weft" eval run.ini adapter.from=wrong
their '/"target_modules": \[/,/\]/c "target_modules": ".*(q_proj|lm_head)",'
refused "$dir/wrong/adapter_config.json: target_modules has 'lm_head'" "$weft" plan fresh.ini model.path=untied adapter.from=wrong
their '/"target_modules": \[/,/\]/c "target_modules": "(",'
refused "$dir/wrong/adapter_config.json: target_modules '(' is no regular expression" "$weft" eval run.ini adapter.from=wrong

# ---- ranks and alphas of single modules, and excluded modules

sed '/^alpha   = /,$d' run.ini >ranks.ini
cat >>ranks.ini <<'INI'
rank_stabilised = yes
rank_pattern    = layers.0.self_attn.q_proj:1, *.q_proj:5, up_proj:3
alpha_pattern   = *.1.*:3, q_proj:2.5
exclude         = k_proj, layers.2.mlp.down_proj
INI
ranked() { # ranked argument...: a run of ranks.ini, with its output in log
    limit "$weft" train ranks.ini --overwrite "$@" >log 2>&1 || failed "train ranks.ini $*" log
}
ranked run.out=ranked
config=ranked/model/adapter_config.json
tr -d ' \n' <$config >written
# Written as names if they suffice, else as paths; the result in PEFT does not depend on an order.
for text in '"rank_pattern":{"model.layers.0.self_attn.q_proj":1,"model.layers.1.self_attn.q_proj":5,"model.layers.2.self_attn.q_proj":5,"up_proj":3}' \
    '"model.layers.1.self_attn.v_proj":3.0' '"model.layers.0.self_attn.q_proj":2.5' '"exclude_modules":null' '"r":4'; do
    says written "$text"
done
! grep -q 'k_proj\|"down_proj\|layers.2.mlp.down_proj' written || failed "modules that were left out" $config
with_ranks=$(loss plain.ini adapter.from=ranked/model)
near "ranks that were read" 1e-9 "$with_ranks" "$(loss ranks.ini adapter.from=ranked/model)"
near "as a run's directory, with ranks" 1e-9 "$with_ranks" "$(loss ranked)"
[ "$with_ranks" != "$(loss plain.ini)" ] || failed "an adapter with ranks that changes nothing"
for cached in '' --no-cache; do
    limit "$weft" generate ranked --prompt e2 --tokens 8 --temperature 0 --json $cached >ranked$cached.txt 2>log || failed "generate with ranks" log
done
same "with ranks, with the cache and without" ranked.txt ranked--no-cache.txt
for keys in ranks.ini plain.ini; do
    limit "$weft" train $keys --overwrite run.out=again train.steps=1 optimizer.lr=0 checkpoint.every=none adapter.from=ranked/model \
        >log 2>&1 || failed "$keys goes on with ranks" log
    same "ranks that were read and saved, $keys" ranked/model/adapter_model.safetensors again/model/adapter_model.safetensors
    same "ranks in the configuration, $keys" $config again/model/adapter_config.json
done
ranked run.out=resumed train.steps=3
limit "$weft" train ranks.ini --resume run.out=resumed >log 2>&1 || failed "resume with ranks" log
same "a resume with ranks" ranked/model/adapter_model.safetensors resumed/model/adapter_model.safetensors
limit "$weft" merge base ranked/model merged >log 2>&1 || failed "merge with ranks" log
near "a merged model, with ranks" 1e-5 "$with_ranks" "$(loss plain.ini model.path=merged)"
rm -rf merged

# A rank has the same effect in each key: initial values, factor, and learning.
for rank in adapter.r=2 adapter.rank_pattern=q_proj:2; do
    train run.out="${rank#*.}" train.steps=2 checkpoint.every=none adapter.targets=q_proj adapter.init=gaussian $rank
done
same "a rank of all, and of each" r=2/model/adapter_model.safetensors rank_pattern=q_proj:2/model/adapter_model.safetensors

# Contradicting values are rejected, equivalent ones are not.
refused "[adapter] rank_pattern differs from the value in $dir/$config" \
    "$weft" eval ranks.ini adapter.from=ranked/model adapter.rank_pattern=q_proj:5,up_proj:3
refused "[adapter] rank_pattern differs from the value in" "$weft" eval ranks.ini adapter.from=ranked/model adapter.rank_pattern=none
refused "[adapter] alpha_pattern differs from the value in" "$weft" eval ranks.ini adapter.from=ranked/model adapter.alpha_pattern=q_proj:2.5
refused "[adapter] rank_pattern differs from the value in $dir/out/model/adapter_config.json" \
    "$weft" eval run.ini --adapter one adapter.rank_pattern=q_proj:5
near "a rank that all have" 1e-9 "$with" "$(loss run.ini --adapter one adapter.rank_pattern=q_proj:4 adapter.alpha_pattern=none)"
refused "[adapter] targets or layers or exclude select other modules than $dir/$config, which is continued" \
    "$weft" eval ranks.ini adapter.from=ranked/model adapter.targets=all-linear adapter.exclude=k_proj
refused "[adapter] targets or layers or exclude select other modules" "$weft" eval run.ini --adapter one adapter.exclude=q_proj

# In PEFT's files the first key that matches a module holds. A key that matches no adapted module is refused, and a head
# that is left out is not.
for key in rank_pattern alpha_pattern; do
    their "s/\"$key\": {}/\"$key\": {\"q_proj\": 4, \"k_prj\": 8}/"
    refused "$dir/wrong/adapter_config.json: $key has 'k_prj'" "$weft" eval plain.ini adapter.from=wrong
    for entry in 'norm|lm_head' lm_head self_attn; do
        their "s/\"$key\": {}/\"$key\": {\"q_proj\": 4, \"$entry\": 8}/"
        refused "$dir/wrong/adapter_config.json: $key has '$entry'" "$weft" eval plain.ini adapter.from=wrong
    done
    their "s/\"$key\": {}/\"$key\": {\"q_proj\": 4, \"embed_tokens\": 8}/; /^ *\"embed_tokens\",*\$/d"
    refused "$dir/wrong/adapter_config.json: $key has 'embed_tokens', which matches modules without an adapter" \
        "$weft" eval plain.ini adapter.from=wrong
done
their 's/"rank_pattern": {}/"rank_pattern": {"mlp.*|q_proj": 4}/; s/"r": 4/"r": 7/; s/"alpha_pattern": {}/"alpha_pattern": {"layers\\\\.[12]\\\\..*": 8}/'
refused "is (4, 521), and this model with this adapter needs (7, 521): the adapter was made for another base" "$weft" eval plain.ini adapter.from=wrong
their 's/"rank_pattern": {}/"rank_pattern": {"(mlp|self_attn|model).*": 4}/; s/"r": 4/"r": 7/; s/"alpha_pattern": {}/"alpha_pattern": {"layers\\\\.[12]\\\\..*": 8}/'
near "ranks of a file" 1e-9 "$with" "$(loss plain.ini adapter.from=wrong)"
their 's/"alpha_pattern": {}/"alpha_pattern": {"layers\\\\.[12]\\\\..*": 9}/'
[ "$with" != "$(loss plain.ini adapter.from=wrong)" ] || failed "alphas of a file change nothing" log
their 's/"exclude_modules": null/"exclude_modules": ["lm_head", "mlp"]/; s/"q_proj"/"q_proj", "lm_head"/'
near "a head that is left out" 1e-9 "$with" "$(loss plain.ini adapter.from=wrong)"
their '/"exclude_modules": null/d; /"target_modules": \[/,/\]/c "target_modules": ".*", "exclude_modules": ".*(head|norm|self_attn|mlp)",'
near "an expression of all" 1e-9 "$with" "$(loss plain.ini adapter.from=wrong)"
# An adapter's files are strict JSON, for every reader.
their 's/"r": 4,/"r": 4,,/'
refused "wrong/adapter_config.json:" "$weft" eval plain.ini adapter.from=wrong
refused ": is not JSON" "$weft" eval plain.ini adapter.from=wrong adapter.plugin=lora
their 's/"r": 4,/"r": 4, "r": 5,/'
refused "duplicate object key" "$weft" eval plain.ini adapter.from=wrong adapter.plugin=lora
their 's/"exclude_modules": null/"exclude_modules": ".*"/'
refused "$dir/wrong/adapter_config.json: exclude_modules = .* excludes every module that target_modules = " "$weft" eval plain.ini adapter.from=wrong
their 's/"exclude_modules": null/"exclude_modules": ".*[[:alpha:]]"/'
refused "$dir/wrong/adapter_config.json: exclude_modules '.*[[:alpha:]]' contains '[[:alpha:]]', which Python's re" "$weft" eval plain.ini adapter.from=wrong
their 's/"exclude_modules": null/"exclude_modules": [7]/'
refused "$dir/wrong/adapter_config.json: exclude_modules = " "$weft" eval plain.ini adapter.from=wrong
their 's/"rank_pattern": {}/"rank_pattern": {"q_proj": 0.5}/'
refused "$dir/wrong/adapter_config.json: rank_pattern sets 'q_proj' to an invalid rank" "$weft" eval plain.ini adapter.from=wrong
their 's/"alpha_pattern": {}/"alpha_pattern": {"q_proj": -1}/'
refused "$dir/wrong/adapter_config.json: alpha_pattern sets 'q_proj' to an invalid alpha" "$weft" eval plain.ini adapter.from=wrong
their 's/"rank_pattern": {}/"rank_pattern": {"q_proj{,2}": 4}/'
refused "$dir/wrong/adapter_config.json: rank_pattern 'q_proj{,2}' contains '{,2}', which Python's re" "$weft" eval plain.ini adapter.from=wrong
their '/"target_modules": \[/,/\]/c "target_modules": "\\\\Q.*",'
refused "$dir/wrong/adapter_config.json: target_modules '\Q.*' contains '\Q.*', which Python's re" "$weft" eval plain.ini adapter.from=wrong

# ---- merging

refused "'model.embed_tokens' is tied to the head" "$weft" merge base out/model merged
[ ! -e merged ] || failed "a refused merge left something"
train run.out=plain train.trainable=adapter,*norm.weight
mkdir base/additional_chat_templates
echo '{{ messages }}' >base/additional_chat_templates/tool_use.jinja
limit "$weft" merge base plain/model merged >log 2>&1 || failed "merge" log
cmp -s base/additional_chat_templates/tool_use.jinja merged/additional_chat_templates/tool_use.jinja ||
    failed "a merged model lacks the additional templates of its base"
rm -r base/additional_chat_templates
near "a merged model" 1e-5 "$(loss run.ini adapter.from=plain/model)" "$(loss plain.ini model.path=merged)"
for file in config.json tokenizer.json model.safetensors; do [ -s "merged/$file" ] || failed "no merged/$file"; done
limit "$weft" merge base plain/model narrow --dtype bf16 >log 2>&1 || failed "merge to bf16" log
says narrow/config.json '"bfloat16"'
near "merged to bf16" 1e-2 "$(loss run.ini adapter.from=plain/model)" "$(loss plain.ini model.path=narrow)"
refused "plain/model was made on other weights than those in changed/model. Fix: name its own base, or use --any-base" \
    "$weft" merge changed/model plain/model never
limit "$weft" merge changed/model plain/model any --any-base >log 2>&1 || failed "merge on any base" log
refused "--dtype = nf4. Allowed: fp32, bf16, fp16" "$weft" merge base plain/model never --dtype nf4
refused "merged exists. Fix: name a new directory" "$weft" merge base plain/model merged

# Non-finite values, also after merging, are reported with the tensor, and no file remains.
last() { # last DIRECTORY FILE BYTES: replaces the last number of DIRECTORY/FILE
    printf "$3" | dd of="$1/$2" bs=1 seek=$(($(wc -c <"$1/$2") - 4)) conv=notrunc 2>/dev/null
}
for bytes in '\000\000\300\177 NaN' '\000\000\200\177 infinity'; do
    rm -rf bad
    cp -r plain/model bad
    last bad adapter_model.safetensors "${bytes% *}"
    refused "bad: 'model.layers.2.mlp.down_proj.lora_B.weight' contains ${bytes#* }" \
        "$weft" merge base bad never
done
last bad adapter_model.safetensors '\040\274\276\114' # 1e8
refused "which fp16 cannot represent. Fix: --dtype bf16" "$weft" merge base bad never --dtype fp16
says log "'model.layers.2.mlp.down_proj.weight' has "
says log " in row 39, column "
[ "$(ls -d never* .never* 2>/dev/null)" = "" ] || failed "a refused merge left something"
limit "$weft" merge base bad wide --dtype bf16 >log 2>&1 || failed "1e8 in bf16" log
cp -r base nobase
last nobase model.safetensors '\000\000\300\177'
rm -rf bad
cp -r other/model bad
rm bad/weft_adapter.json
refused "'model.norm.weight' would have NaN in element 39, which is no number: the base in" \
    "$weft" merge nobase bad never --dtype bf16

# ---- with an added token: its row, and a tokenizer that contains it

sed 's/"vocab_size": 521/"vocab_size": 512/' model/config.json >config.json
cp -r model narrower
mv config.json narrower/config.json
limit "$weft" train fresh.ini --overwrite model.path=narrower run.out=exact train.steps=2 >log 2>&1 || failed "a base of 512 rows" log
token="model.path=exact/model tokenizer.pad=add train.trainable=adapter,*norm.weight"
for rows in mean trained; do
    [ $rows = mean ] || token="$token,model.embed_tokens.weight"
    train run.out=token $token checkpoint.every=none
    limit "$weft" merge exact/model token/model grown >log 2>&1 || failed "merge with a token, $rows" log
    says grown/config.json '"vocab_size": 513'
    says grown/config.json '"pad_token_id": 512'
    says grown/tokenizer.json '"<pad>"'
    near "merged with a token, $rows" 1e-5 "$(loss token)" "$(loss plain.ini model.path=grown)"
    rm -rf grown
done
says token/model/adapter_config.json '"ensure_weight_tying": true'
# Vocabularies with the piece "\u0000", whose added tokens are compared.
train run.out=token model.path=exact/model 'tokenizer.add=<x>' train.trainable=adapter,*norm.weight checkpoint.every=none
for name in exact token; do
    sed -i 's/"Ā"/"\\u0000"/' $name/model/tokenizer.json
    says $name/model/tokenizer.json '"\u0000"'
done
refused "was made with tokens that this run's tokenizer does not have: set [tokenizer] add = <x>" \
    "$weft" eval plain.ini model.path=exact/model adapter.from=token/model
limit "$weft" merge exact/model token/model grown >log 2>&1 || failed "merge with a piece of NUL" log
says grown/config.json '"vocab_size": 513'
says grown/tokenizer.json '"<x>"'

# ---- other ranks: the same bytes, also after resumes on fewer ranks

has mpich || exit $((failures > 0))
many="comm.plugin=mpi-mpich strategy.plugin=fsdp"
part="train.trainable=adapter,model.norm.weight adapter.targets=all-linear,embed_tokens"
train run.out=many $part $many --ranks 4 train.steps=2 checkpoint.every=2
for ranks in 2 1; do
    steps=$((8 - 2 * ranks))
    [ $ranks = 2 ] || steps=6
    where=$many
    [ $ranks != 1 ] || where=
    limit "$weft" train run.ini --resume run.out=many $part $where $([ $ranks = 1 ] || echo --ranks $ranks) train.steps=$steps \
        checkpoint.every=2 >log 2>&1 || failed "a resume on $ranks ranks" log
done
same "resumed on 4, 2 and 1 ranks" out/model/adapter_model.safetensors many/model/adapter_model.safetensors
limit "$weft" train run.ini --resume run.out=many $part model.path=changed/model train.steps=8 >log 2>&1 && failed "another base was resumed"
says log "the base's weights"
exit $((failures > 0))
