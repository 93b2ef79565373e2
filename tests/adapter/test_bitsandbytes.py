"""Directories saved by transformers with bitsandbytes: nf4, nf4 in several files of 16-bit elements, nf4 with
unquantized scales, int8. An adapter is trained on them under any strategy, used for generation and merged."""
import os
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FAULTS, SOURCE, change_json, eval_loss, losses, make_run, near, read, read_json, refused,
                     same_tensors, says, weft, write)


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{FAULTS}:{BUILD}/plugins")
        make_run("steps = 6\n[eval]\nevery = none\n[optimizer]\nplugin = adamw\nlr = 1e-2\n[adapter]\nplugin = lora\n"
                 "[adapter.lora]\nr = 4\n[device]\nthreads = 1\n")
        write("run.ini", read("run.ini").replace("path   = model", "path   = base").replace("= fresh", "= weights"))
        yield


def take(name):
    """Copies a directory to base."""
    shutil.rmtree("base", ignore_errors=True)
    shutil.copytree(SOURCE / f"tests/golden/bitsandbytes-{name}", "base")
    os.unlink("base/expected.safetensors")
    for file in (SOURCE / "configs/chess/base").glob("tokenizer*.json"):
        shutil.copy(file, "base")


@pytest.mark.parametrize("name, base, other", [
    ("nf4", "nf4", "fp8"), ("storage", "nf4", "fp8"), ("nf4x64", "nf4x64", "fp8"), ("int8", "int8", "nf4")])
def test_directory(name, base, other):
    take(name)
    weft(f"train run.ini run.out={name}")
    assert len(losses(name)) == 6 and losses(name)[-1] < losses(name)[0]
    weft(f"train run.ini run.out={name}-requested model.base={base}")
    if name != "nf4":  # it has an unpacked linear, which model.base packs
        same_tensors(f"{name}/model", f"{name}-requested/model")
    refused(f"plan run.ini model.base={other}", says=[f"[model] base = {other}", base])
    refused("plan run.ini train.trainable=all adapter.plugin=none", says="packed")
    weft(f"generate run.ini --adapter {name}/model --prompt e2 --tokens 6")

    # Unpacked, as needed for merging, it has the same loss.
    loss = eval_loss(f"run.ini adapter.from={name}/model adapter.plugin=lora")
    refused(f"merge base {name}/model merged", says="--dtype")
    # Also if the merged matrix is not packed: o_proj of nf4 is unpacked.
    weft(f"train run.ini run.out={name}-plain train.steps=1 adapter.lora.targets=o_proj")
    refused(f"merge base {name}-plain/model merged", says="--dtype")
    weft(f"merge base {name}/model {name}-merged --dtype fp32")
    assert "quantization_config" not in read_json(f"{name}-merged/config.json")
    near(loss, eval_loss(f"run.ini model.path={name}-merged adapter.plugin=none"), 1e-4)


def test_head_of_4_bits(scratch):
    """It is rejected with a hint. Here a layer's matrix is renamed to it."""
    take("nf4x64")
    change_json("base/config.json", tie_word_embeddings=False)
    file = pathlib.Path("base/model.safetensors")
    file.write_bytes(re.sub(rb'"model\.layers\.0\.self_attn\.q_proj\.weight([^"]*)":',
                            lambda match: b'"lm_head.weight%b":' % match[1] + b" " * 24, file.read_bytes()))
    output = refused("plan run.ini", says=[f"{scratch}/base", "'lm_head.weight'", "nf4x64"])
    says(output, 'llm_int8_skip_modules = ["lm_head"]')


def test_first_configuration_of_a_packed_model():
    """It has an adapter, because no other parameter can be trained."""
    take("nf4")
    weft("init base games.txt -o first.ini")
    assert re.search(r"(?m)^\[adapter\]\n(#.*\n)*plugin *= lora", read("first.ini"))
    weft("train first.ini --overwrite train.steps=2")


@pytest.mark.parametrize("name", ["nf4", "nf4x64", "int8"])
def test_strategies(name):
    """Same result for all."""
    if not (FAULTS / "weft-comm-ring.so").exists():
        pytest.skip("this build has no MPI")
    take(name)
    says(weft("prove run.ini --ranks 3 --steps 2"), " equal, 0 not covered, 0 different")


def test_config_agrees_with_the_files():
    take("nf4")
    refused("plan run.ini model.start=fresh", says="start")
    text = read("base/config.json")
    write("base/config.json", text.replace('"quant_method": "bitsandbytes"', '"quant_method": "awq"'))
    refused("plan run.ini", says="quantization_config")
