"""Adapters saved by Weft load in PEFT with the same loss: on their own; with fully trained norms, embedding and head;
with added tokens; DoRA; ranks and alphas of single modules; ia3; prefix; gated prompts; and lora with layers before the
head, which PEFT lacks and torch computes here. WEFT_PYTHON names a Python with peft."""
import os

import pytest
from harness import ANY, SOURCE, eval_loss, make_model, make_run, read, run, weft, write

PYTHON = os.environ.get("WEFT_PYTHON", "python3")
LOSSES = r'''
"""For each base and adapter: the loss over some.txt, as check_hf.py has it."""
import json
import os
import sys
import torch
import transformers
from peft import PeftModel
from check_hf import documents, encode, loss
from safetensors.torch import load_file
from torch.nn.functional import gelu, linear
torch.set_num_threads(1)
text = open("some.txt").read()


def put_before_head(head, where):
    """x + out(gelu(... fc_0(x))) for the x that the head reads."""
    layers = json.load(open(f"{where}/adapter_config.json"))["layers"]
    weights = {name.split("mlp_head.")[1]: value
               for name, value in load_file(f"{where}/adapter_model.safetensors").items()}

    def apply(module, arguments):
        h = arguments[0]
        for i in range(layers):
            h = gelu(linear(h, weights[f"fc_{i}.weight"], weights[f"fc_{i}.bias"]))
        return (arguments[0] + linear(h, weights["out.weight"], weights["out.bias"]),)

    head.register_forward_pre_hook(apply)


for base, where in (pair.split("+") for pair in sys.argv[1:]):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager", dtype=torch.float32)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(where)
    if len(tokenizer) > model.config.vocab_size:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    added = range(512, len(tokenizer))  # after the bases' tables
    first = [tables.weight[:512].double().mean(0)
             for tables in (model.get_input_embeddings(), model.get_output_embeddings())]
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
'''
MAKE = r'''
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
'''
TOKENS = "'tokenizer.add=<|im_start|>,<|im_end|>'"
LORA = "adapter.plugin=lora adapter.r=4 adapter.alpha=6"
ADAPTERS = [  # base, name, and words of a run
    ("tied", "lora", LORA), ("tied", "norms", f"{LORA} train.trainable=adapter,*norm.weight adapter.layers=0,2"),
    ("tied", "token", f"{LORA} tokenizer.pad=add train.trainable=adapter,model.embed_tokens.weight"),
    ("tied", "tokens", f"{LORA} {TOKENS} train.steps=4"),
    ("untied", "both", f"{LORA} {TOKENS} tokenizer.pad=add adapter.layers=0,2"),
    ("untied", "begin", f"{LORA} {TOKENS} train.steps=1 optimizer.lr=0"),
    ("untied", "head", f"{LORA} train.trainable=adapter,head,model.norm.weight"),
    ("untied", "all", f"{LORA} adapter.targets=q_proj,v_proj tokenizer.pad=add "
     "train.trainable=adapter,head,model.embed_tokens.weight,*norm.weight"),
    ("untied", "table", f"{LORA} adapter.targets=all-linear,embed_tokens"),
    ("tied", "dora", f"{LORA} adapter.dora=yes"),
    ("tied", "ranks", f"{LORA} adapter.rank_pattern=layers.0.self_attn.q_proj:1,*.q_proj:5,*.1.mlp.*:3 "
     "adapter.rank_stabilised=yes adapter.alpha_pattern=*.1.*:3,q_proj:2.5 "
     "adapter.exclude=k_proj,layers.2.mlp.down_proj adapter.dora=yes"),
    ("untied", "tables", f"{LORA} adapter.targets=all-linear,embed_tokens "
     "adapter.rank_pattern=embed_tokens:2,up_proj:7 adapter.alpha_pattern=embed_tokens:5,*.0.*:1 "
     "adapter.exclude=*.2.* train.trainable=adapter,*norm.weight"),
    ("tied", "ia3", "adapter.plugin=ia3 train.trainable=adapter,model.norm.weight"),
    ("untied", "stack", "adapter.plugin=mlp-head,lora adapter.mlp-head.layers=2 adapter.mlp-head.width=24 "
     "adapter.lora.r=4 train.trainable=adapter,model.norm.weight"),
    ("tied", "prefix", "adapter.plugin=prefix adapter.length=6"),
    ("tied", "rows", "adapter.plugin=prefix adapter.length=3 "
     "train.trainable=adapter,model.embed_tokens.weight,*norm.weight"),
    ("untied", "prompts", "adapter.plugin=llama-adapter adapter.length=4 adapter.layers=2"),
    ("untied", "keys", "adapter.plugin=llama-adapter adapter.length=2 adapter.layers=2 "
     "train.trainable=adapter,*k_proj.weight"),
    ("untied", "gates", "adapter.plugin=llama-adapter adapter.length=2 train.trainable=adapter,head,model.norm.weight"),
    ("tied", "again", "adapter.from=patterns")]  # an adapter of PEFT, continued by a run


def python(text, *words):
    return run(PYTHON, "-c", text, *words, env={
        "PYTHONPATH": SOURCE / "tests/golden", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": 1}).out


def loss(run):
    """Of a run or an adapter's directory."""
    return eval_loss(f"{run} data.path=some.txt data.validation=none data.document=line data.context=32 "
                     "tokenizer.bos=yes tokenizer.eos=no")


def test_losses():
    if run(PYTHON, "-c", "import torch, transformers, peft", status=ANY).status:
        pytest.skip(f"adapters in PEFT, which {PYTHON} lacks (WEFT_PYTHON names another)")
    make_run("steps = 3\n[eval]\nevery = none\n[optimizer]\nplugin = adamw\nlr = 2e-2\n[device]\nthreads = 1\n")
    # with the tokens that some of them add
    write("some.txt", "".join(read("games.txt").splitlines(keepends=True)[:8])
          + "<|im_start|>1. e4 e5<|im_end|>2. Nf3<|im_end|>\n")
    # Two bases: with tied and with untied head; tables of exactly the tokenizer's 512 rows.
    for kind in "tied", "untied":
        make_model(f"fresh-{kind}", 40, 10, 88, 3, 512, tie_word_embeddings=kind == "tied")
        weft(f"train run.ini model.path=fresh-{kind} run.out=made-{kind}")
        os.rename(f"made-{kind}/model", kind)
    write("run.ini", read("run.ini").replace("= fresh", "= weights"))
    python(MAKE)
    expected, pairs = {"patterns": loss("patterns")}, ["tied+patterns"]
    for base, name, words in ADAPTERS:
        weft(f"train run.ini model.path={base} run.out=saved/{name} {words}")
        expected[f"saved/{name}/model"] = loss(f"saved/{name}")
        pairs.append(f"{base}+saved/{name}/model")
    printed = [line.split() for line in python(LOSSES, *pairs).splitlines()]
    assert {words[0]: float(words[1]) for words in printed} == {
        name: pytest.approx(value, rel=1e-6) for name, value in expected.items()} and len(printed) == 21
