"""Models saved by Weft load in transformers 4 and 5 with the same loss: a small model of each family, from a
config.json in either spelling, in fp32 and bf16, and one with an added pad token. WEFT_PYTHONS are interpreters with
transformers, one per release; without any the test is skipped."""
import os
import pathlib
import re
import shutil

import pytest
from harness import ANY, SOURCE, eval_loss, make_run, read, read_json, run, weft, write, write_json

CHESS = f"model.path={SOURCE}/configs/chess/base model.start=weights"
FAMILIES = ["llama-tied", *(f"family-{name}" for name in (
    "llama3 mistral qwen2 qwen3 smollm3 olmo2 gemma gemma2 gemma3 phi3").split())]
RESPELL = """
import sys
import transformers
for name in sys.argv[1:]:
    config = transformers.AutoConfig.from_pretrained("models/" + name)
    config.save_pretrained(f"models/{name}-by{transformers.__version__[0]}")
"""
LOSSES = '''
"""For each directory: its loss over the ids of some.txt, as check_hf.py has it. The ids are Weft's: releases of
transformers choose different classes of tokenizers for some families."""
import json
import sys
import torch
import transformers
from check_hf import loss
torch.set_num_threads(1)
lists = json.load(open("ids.json"))
for where in sys.argv[1:]:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(where, attn_implementation="eager",
                                                                    output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), (where, info)
    model = model.float().eval()
    total, count = loss(model, lists[where], 32)
    print(where, total / count)
    if "pad" in where:
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(where)  # the tokenizer class of its files
        rows = model.get_input_embeddings().weight
        print(where, "pad", tokenizer.pad_token, tokenizer.pad_token_id, model.config.pad_token_id, len(tokenizer),
              len(rows), tokenizer("e4<pad>", add_special_tokens=False)["input_ids"][-1],
              model.generation_config.pad_token_id)
'''
ENDS = '''
import torch
import transformers
where = "saved/ends/model"
tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(where)
model = transformers.AutoModelForCausalLM.from_pretrained(where)
head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size)  # predicts <|im_end|> after any input
model.lm_head = head
with torch.no_grad():
    head.weight.zero_()
    head.bias.zero_()[tokenizer.convert_tokens_to_ids("<|im_end|>")] = 1
out = model.generate(torch.tensor([[1, 5]]), attention_mask=torch.ones(1, 2), max_new_tokens=9, do_sample=False,
                     pad_token_id=0)
print(tokenizer.eos_token, tokenizer.eos_token_id, model.generation_config.eos_token_id, out.shape[1])
'''


def python(interpreter, text, *words):
    return run(interpreter, "-c", text, *words, env={
        "PYTHONPATH": SOURCE / "tests/golden", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": 1}).out


@pytest.fixture(scope="module")
def pythons():
    found = [name for name in os.environ.get("WEFT_PYTHONS", "python3").split()
             if run(name, "-c", "import torch, transformers", status=ANY).status == 0]
    if not found:
        pytest.skip("no interpreter of WEFT_PYTHONS (or python3) has torch and transformers")
    return found


@pytest.fixture(scope="module")
def losses(pythons):
    """The loss of each saved model. Models have the spelling of their golden file, or that of a release."""
    make_run("steps = 2\n[optimizer]\nlr = 1e-2\n")
    write("some.txt", "".join(read("games.txt").splitlines(keepends=True)[:8]))
    for name in FAMILIES:
        shutil.copytree("model", f"models/{name}")
        text = read(SOURCE / f"tests/golden/{name}/config.json")
        write(f"models/{name}/config.json", re.sub('"vocab_size": [0-9]+', '"vocab_size": 521', text))
    for interpreter in pythons:
        python(interpreter, RESPELL, *FAMILIES)
    found, ids = {}, {}

    def train(name, *words):
        weft(f"train run.ini run.out=saved/{name}", *words)
        model = f"saved/{name}/model"
        found[model] = eval_loss(f"{model} data.path=some.txt data.document=line data.context=32 tokenizer.bos=yes "
                                 "tokenizer.eos=no")
        ids[model] = [[int(id) for id in weft(f"tokenize {model} --bos", stdin=document).out.split()]
                      for document in read("some.txt").splitlines()]

    for directory in sorted(pathlib.Path("models").iterdir()):
        words = [f"model.path={directory}", f"model.plugin={read_json(directory / 'config.json')['model_type']}"]
        for file in pathlib.Path("model").glob("tokenizer*.json"):
            shutil.copy(file, directory)
        train(directory.name, *words)
        if "-by" not in directory.name:
            train(f"{directory.name}-bf16", *words, "checkpoint.dtype=bf16")
    train("pad", *CHESS.split(), "tokenizer.pad=add")
    train("pad-spare", "model.path=models/family-qwen2", "model.plugin=qwen2", "tokenizer.pad=add",
          "tokenizer.pad_token=[PAD]")
    write_json("ids.json", ids)
    return found


def test_losses_and_pad_tokens(pythons, losses):
    for interpreter in pythons:
        printed = [line.split() for line in python(interpreter, LOSSES, *losses).splitlines()]
        theirs = {words[0]: float(words[1]) for words in printed if words[1] != "pad"}
        assert theirs == {name: pytest.approx(loss, rel=1e-6) for name, loss in losses.items()}
        pads = {words[0]: " ".join(words[2:]) for words in printed if words[1] == "pad"}
        assert pads["saved/pad/model"] in ("<pad> 512 512 513 513 512 512", "<pad> 512 512 513 513 512 None")
        assert pads["saved/pad-spare/model"].startswith("[PAD] 512 512 513 521 ")


def test_end_token(pythons, losses):
    """A model trained on the end token of a template stops there: generate of transformers ends at its first token."""
    write("chat.jsonl", '{"prompt": "1. e4", "completion": "e5"}\n')
    write("chat.ini", re.sub("(?m)^(document|path       = games).*\n", "", read("run.ini")))
    weft(f"train chat.ini run.out=saved/ends {CHESS} data.plugin=instruct data.path=chat.jsonl data.template=chatml "
         "data.validation=none", "tokenizer.add=<|im_start|>,<|im_end|>")
    for interpreter in pythons:
        assert python(interpreter, ENDS) == "<|im_end|> 513 [513, 2] 3\n"
