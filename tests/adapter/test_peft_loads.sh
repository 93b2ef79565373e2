#!/bin/sh
# Adapters saved by Weft load in PEFT with the same loss: on their own; with fully trained norms, embedding
# and head; with added tokens; DoRA; ranks and alphas of single modules; ia3; prefix; gated prompts; and lora
# with layers before the head, which PEFT lacks and torch computes here. WEFT_PYTHON names a Python with peft.
# ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
python=${WEFT_PYTHON:-python3}
if ! "$python" -c 'import torch, transformers, peft' 2>/dev/null; then
    echo "skipped: adapters in PEFT, which $python lacks (WEFT_PYTHON names another)"
    exit 77
fi
make_run <<'INI'
steps = 3
[eval]
every = none
[optimizer]
plugin = adamw
lr     = 2e-2
[device]
threads = 1
INI
{
    head -n 8 games.txt
    echo '<|im_start|>1. e4 e5<|im_end|>2. Nf3<|im_end|>' # the tokens that some of them add
} >some.txt
export PYTHONPATH="$WEFT_SOURCE/tests/golden" TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1
cat >losses.py <<'PY'
"""For each base and adapter: the loss over some.txt, as check_hf.py has it."""
import json
import os
import sys
import torch
import transformers
from peft import PeftModel
from check_hf import documents, encode, loss
from safetensors.torch import load_file
torch.set_num_threads(1)
text = open("some.txt").read()


def put_before_head(head, where):
    """x + out(gelu(... fc_0(x))) for the x that the head reads."""
    layers = json.load(open(f"{where}/adapter_config.json"))["layers"]
    weights = {name.split("mlp_head.")[1]: value for name, value in load_file(f"{where}/adapter_model.safetensors").items()}

    def apply(module, arguments):
        h = arguments[0]
        for i in range(layers):
            h = torch.nn.functional.gelu(torch.nn.functional.linear(h, weights[f"fc_{i}.weight"], weights[f"fc_{i}.bias"]))
        return (arguments[0] + torch.nn.functional.linear(h, weights["out.weight"], weights["out.bias"]),)

    head.register_forward_pre_hook(apply)


for base, where in (pair.split("+") for pair in sys.argv[1:]):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager", dtype=torch.float32)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(where)
    if len(tokenizer) > model.config.vocab_size:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    added = range(512, len(tokenizer))  # after the bases' tables
    first = [tables.weight[:512].double().mean(0) for tables in (model.get_input_embeddings(), model.get_output_embeddings())]
    model = PeftModel.from_pretrained(model, where).float().eval()
    if where.endswith("begin/model"):  # untrained: added rows are the mean of the others
        for mean, tables in zip(first, (model.get_input_embeddings(), model.get_output_embeddings())):
            for id in added:
                torch.testing.assert_close(tables.weight[id].double(), mean, rtol=0, atol=1e-7)
    if "<|im_end|>" in tokenizer.get_vocab():
        assert tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]) == [512, 513]
        assert tokenizer.decode([512, 320, 513], skip_special_tokens=True) == tokenizer.decode([320])
    if os.path.exists(f"{where}/mlp-head"):
        put_before_head(model.get_base_model().lm_head, f"{where}/mlp-head")
    options = type("", (), dict(bos=True, eos=False))
    total, count = loss(model, [encode(tokenizer, d, options) for d in documents(text, "line", None)], 32)
    print(where, total / count, count)
PY
cat >make.py <<'PY'
"""patterns: an adapter of PEFT's on tied, whose ranks, alphas and exclusions stand as expressions that overlap."""
import glob
import shutil
import torch
import transformers
from peft import LoraConfig, get_peft_model
torch.manual_seed(5)
model = transformers.AutoModelForCausalLM.from_pretrained("tied", dtype=torch.float32)
model = get_peft_model(model, LoraConfig(
    task_type="CAUSAL_LM", r=4, lora_alpha=6, target_modules=r".*\.(self_attn|mlp)\.\w+_proj", use_rslora=True,
    exclude_modules=["o_proj", "layers.2.mlp.up_proj"],
    rank_pattern={r"layers\.0\..*(q|v)_proj": 1, r"layers\.[01]\..*": 5, "q_proj": 3},
    alpha_pattern={"(up|down)_proj": 2, r"^model\.layers\.\d\.mlp\..*": 7}))
for name, parameter in model.named_parameters():
    if "lora_B" in name:
        torch.nn.init.normal_(parameter, std=0.2)
model.save_pretrained("patterns")
for file in glob.glob("tied/tokenizer*"):
    shutil.copy(file, "patterns")
PY

# Two bases: with tied and with untied head; tables of exactly the tokenizer's 512 rows.
for kind in tied untied; do
    make_model "fresh-$kind" 40 10 88 3 512
    if [ $kind = untied ]; then
        sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "fresh-$kind/config.json" >config.json
        mv config.json "fresh-$kind/config.json"
    fi
    prints "$weft" train run.ini model.path="fresh-$kind" run.out="made-$kind"
    mv "made-$kind/model" $kind
done
sed -i 's/^start  = fresh/start  = weights/' run.ini

pairs=
train() { # train BASE NAME argument...: saved/NAME, and its loss in losses
    base=$1 name=$2
    shift 2
    prints "$weft" train run.ini model.path="$base" run.out="saved/$name" "$@"
    measure "saved/$name" "saved/$name/model"
    pairs="$pairs $base+saved/$name/model"
}
measure() { # measure RUN NAME: the loss of a run or an adapter's directory, in losses
    prints "$weft" eval "$1" data.path=some.txt data.validation=none data.document=line data.context=32 \
        tokenizer.bos=yes tokenizer.eos=no --json
    echo "$2 $(sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' printed)" >>losses
}
lora="adapter.plugin=lora adapter.r=4 adapter.alpha=6"
# shellcheck disable=SC2086 # a plugin and its keys
{
    train tied lora $lora
    train tied norms $lora train.trainable='adapter,*norm.weight' adapter.layers=0,2
    train tied token $lora tokenizer.pad=add train.trainable='adapter,model.embed_tokens.weight'
    train tied tokens $lora tokenizer.add='<|im_start|>,<|im_end|>' train.steps=4
    train untied both $lora tokenizer.add='<|im_start|>,<|im_end|>' tokenizer.pad=add adapter.layers=0,2
    train untied begin $lora tokenizer.add='<|im_start|>,<|im_end|>' train.steps=1 optimizer.lr=0
    train untied head $lora train.trainable='adapter,head,model.norm.weight'
    train untied all $lora adapter.targets=q_proj,v_proj tokenizer.pad=add \
        train.trainable='adapter,head,model.embed_tokens.weight,*norm.weight'
    train untied table $lora adapter.targets=all-linear,embed_tokens
    train tied dora $lora adapter.dora=yes
    train tied ranks $lora adapter.rank_pattern='layers.0.self_attn.q_proj:1,*.q_proj:5,*.1.mlp.*:3' adapter.rank_stabilised=yes \
        adapter.alpha_pattern='*.1.*:3,q_proj:2.5' adapter.exclude=k_proj,layers.2.mlp.down_proj adapter.dora=yes
    train untied tables $lora adapter.targets=all-linear,embed_tokens adapter.rank_pattern=embed_tokens:2,up_proj:7 \
        adapter.alpha_pattern=embed_tokens:5,*.0.*:1 adapter.exclude='*.2.*' train.trainable='adapter,*norm.weight'
    train tied ia3 adapter.plugin=ia3 train.trainable='adapter,model.norm.weight'
    train untied stack adapter.plugin=mlp-head,lora adapter.mlp-head.layers=2 adapter.mlp-head.width=24 adapter.lora.r=4 \
        train.trainable='adapter,model.norm.weight'
    train tied prefix adapter.plugin=prefix adapter.length=6
    train tied rows adapter.plugin=prefix adapter.length=3 train.trainable='adapter,model.embed_tokens.weight,*norm.weight'
    train untied prompts adapter.plugin=llama-adapter adapter.length=4 adapter.layers=2
    train untied keys adapter.plugin=llama-adapter adapter.length=2 adapter.layers=2 train.trainable='adapter,*k_proj.weight'
    train untied gates adapter.plugin=llama-adapter adapter.length=2 train.trainable='adapter,head,model.norm.weight'
}
# An adapter of PEFT, continued by a run.
"$python" make.py >log 2>&1 || failed "make.py" log
measure patterns patterns
pairs="$pairs tied+patterns"
train tied again adapter.from=patterns
# shellcheck disable=SC2086
"$python" losses.py $pairs >theirs 2>log || failed "losses.py" theirs log
awk 'FNR == NR { mine[$1] = $2; n++; next }
    { apart = $2 / mine[$1] - 1; m++; if (apart > 1e-6 || apart < -1e-6) { print $1 ": Weft " mine[$1] ", PEFT " $2; bad = 1 } }
    END { if (n != m || n != 21) { print m " of " n " adapters were compared"; bad = 1 } exit bad }' losses theirs >log ||
    failed "other losses" log
[ "$failures" = 0 ]
