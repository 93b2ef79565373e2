#!/bin/sh
# Models saved by Weft load in transformers 4 and 5 with the same loss: a small model of each family, from a
# config.json in either spelling, in fp32 and bf16, and one with an added pad token. WEFT_PYTHONS are
# interpreters with transformers, one per release; without any the test is skipped. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
pythons=
for python in ${WEFT_PYTHONS:-python3}; do
    if "$python" -c 'import torch, transformers' 2>/dev/null; then pythons="$pythons $python"; fi
done
if [ -z "$pythons" ]; then
    echo "skipped: no interpreter of WEFT_PYTHONS (or python3) has torch and transformers"
    exit 77
fi
make_run <<'INI'
steps = 2
[optimizer]
lr = 1e-2
INI
head -n 8 games.txt >some.txt
export PYTHONPATH="$WEFT_SOURCE/tests/golden" TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1
cat >respell.py <<'PY'
import sys
import transformers
for name in sys.argv[1:]:
    config = transformers.AutoConfig.from_pretrained("models/" + name)
    config.save_pretrained(f"models/{name}-by{transformers.__version__[0]}")
PY
cat >losses.py <<'PY'
"""For each directory: its loss over some.txt, as check_hf.py has it."""
import sys
import torch
import transformers
from check_hf import documents, encode, loss
torch.set_num_threads(1)
text = open("some.txt").read()
for where in sys.argv[1:]:
    model, said = transformers.AutoModelForCausalLM.from_pretrained(where, attn_implementation="eager", output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), (where, said)
    model = model.float().eval()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(where)  # the tokenizer class of its files
    options = type("", (), dict(bos=True, eos=False))
    total, count = loss(model, [encode(tokenizer, d, options) for d in documents(text, "line", None)], 32)
    print(where, total / count, count)
    if "pad" in where:
        rows = model.get_input_embeddings().weight
        print(where, "pad", tokenizer.pad_token, tokenizer.pad_token_id, model.config.pad_token_id, len(tokenizer),
              len(rows), tokenizer("e4<pad>", add_special_tokens=False)["input_ids"][-1], model.generation_config.pad_token_id)
PY

# ---- models, each in the spelling of its golden file and in that of each release
mkdir models
for name in llama-tied family-llama3 family-mistral family-qwen2 family-qwen3 family-smollm3 family-olmo2 family-gemma \
    family-gemma2 family-gemma3 family-phi3; do
    cp -r model "models/$name"
    sed -E 's/"vocab_size": [0-9]+/"vocab_size": 521/' "$WEFT_SOURCE/tests/golden/$name/config.json" >"models/$name/config.json"
done
for python in $pythons; do
    # shellcheck disable=SC2046
    "$python" respell.py $(ls models | grep -v -e -by) >log 2>&1 || failed "$python: respell.py" log
done
for directory in models/*-by*; do
    cp model/tokenizer*.json "$directory"
done

# ---- training with Weft, and its loss
saved=
train() { # train NAME arguments...: saved/NAME, and its loss in losses
    name=$1
    shift
    prints "$weft" train run.ini run.out="saved/$name" "$@"
    prints "$weft" eval "saved/$name/model" data.path=some.txt data.document=line data.context=32 \
        tokenizer.bos=yes tokenizer.eos=no --json
    loss=$(sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' printed)
    echo "saved/$name/model $loss" >>losses
    saved="$saved saved/$name/model"
}
for directory in models/*; do
    name=$(basename "$directory")
    plugin=$(sed -n 's/.*"model_type": "\(.*\)".*/\1/p' "$directory/config.json")
    train "$name" model.path="$directory" model.plugin="$plugin"
    case $name in *-by*) ;; *) train "$name-bf16" model.path="$directory" model.plugin="$plugin" checkpoint.dtype=bf16 ;; esac
done
train pad model.path="$WEFT_SOURCE/configs/chess/base" model.start=weights tokenizer.pad=add
train pad-spare model.path=models/family-qwen2 model.plugin=qwen2 tokenizer.pad=add tokenizer.pad_token='[PAD]'
# A model trained on the end token of a template stops there: generate of transformers ends at its first
# token.
echo '{"prompt": "1. e4", "completion": "e5"}' >chat.jsonl
sed '/^document/d; /^path       = games/d' run.ini >chat.ini
prints "$weft" train chat.ini run.out=saved/ends model.path="$WEFT_SOURCE/configs/chess/base" model.start=weights \
    'tokenizer.add=<|im_start|>,<|im_end|>' data.plugin=instruct data.path=chat.jsonl data.template=chatml data.validation=none
cat >ends.py <<'PY'
import torch
import transformers
where = "saved/ends/model"
tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(where)
model = transformers.AutoModelForCausalLM.from_pretrained(where)
model.lm_head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size)  # predicts <|im_end|> after any input
with torch.no_grad():
    model.lm_head.weight.zero_()
    model.lm_head.bias.zero_()[tokenizer.convert_tokens_to_ids("<|im_end|>")] = 1
out = model.generate(torch.tensor([[1, 5]]), attention_mask=torch.ones(1, 2), max_new_tokens=9, do_sample=False, pad_token_id=0)
print(tokenizer.eos_token, tokenizer.eos_token_id, model.generation_config.eos_token_id, out.shape[1])
PY

# ---- results of transformers
for python in $pythons; do
    # shellcheck disable=SC2086
    "$python" losses.py $saved >theirs 2>log || failed "$python: losses.py" theirs log
    awk 'FNR == NR { mine[$1] = $2; n++; next } $2 == "pad" { next }
        { apart = $2 / mine[$1] - 1; m++; if (apart > 1e-6 || apart < -1e-6) { print $1 ": Weft " mine[$1] ", transformers " $2; bad = 1 } }
        END { if (n != m) { print m " of " n " models were compared"; bad = 1 } exit bad }' losses theirs >log ||
        failed "$python: other losses" log
    grep -qxF 'saved/pad/model pad <pad> 512 512 513 513 512 512' theirs || grep -qxF 'saved/pad/model pad <pad> 512 512 513 513 512 None' theirs ||
        failed "$python: the pad token" theirs
    grep -q '^saved/pad-spare/model pad \[PAD\] 512 512 513 521 ' theirs || failed "$python: the pad token in a spare row" theirs
    "$python" ends.py >ends 2>log || failed "$python: ends.py" log
    grep -qxF '<|im_end|> 513 [513, 2] 3' ends || failed "$python: the end that was taught" ends
    echo "$("$python" -c 'import transformers; print("transformers", transformers.__version__)'): $(wc -l <losses) models"
done
[ "$failures" = 0 ]
