"""The SDK's example of a model plugin, GPT-2: built in another directory against an installed tree, with only its
headers, and compared to transformers' GPT2LMHeadModel (tests/golden/gpt2) like the built-in families: logits, loss,
gradients, ten steps, forty tokens with the cache. Strategies and resuming keep its bits."""
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FAULTS, FULL, SOURCE, change_json, full_only, make_run, read, refused, run, same_tensors,
                     says, weft)

GOLDEN = SOURCE / "tests/golden/gpt2"


@pytest.fixture(scope="module", autouse=True)
def plugin(scratch):
    """The word that selects it."""
    run("cmake", "--install", BUILD, "--prefix", scratch / "installed")
    shutil.copytree("installed/share/weft/template/model-gpt2", "family")
    run("cmake", "-S", "family", "-B", "family/build", f"-DCMAKE_PREFIX_PATH={scratch}/installed")
    run("cmake", "--build", "family/build")
    make_run("steps = 4\ntrainable = transformer.h.1.*, transformer.wpe.weight\n[optimizer]\nlr = 1e-3\n"
             "[checkpoint]\nevery = 2\n")
    config()
    return f"model.plugin={scratch}/family/build/weft-model-gpt2.so"


def config(**changes):
    """The golden model's, with the tokenizer's vocabulary size and changes."""
    change_json(GOLDEN / "config.json", "model/config.json", vocab_size=521, **changes)


def golden(scratch, path, **variables):
    run(BUILD / "tests/test_train_golden", env={
        "WEFT_GOLDEN": "gpt2", "WEFT_PLUGIN_PATH": f"{scratch}/family/build:{path}{BUILD}/plugins", **variables})


def test_headers():
    """Those of the SDK and of C."""
    for file in pathlib.Path("family").glob("*.[ch]"):
        for include in re.findall("#include.*", read(file)):
            assert re.search(r'<(weft/[a-z]+|math|stdlib)\.h>|"config\.h"', include)


def test_golden(scratch):
    golden(scratch, "")


@full_only
def test_golden_on_the_cuda_emulator(scratch):
    if not (BUILD / "tests/cuda/weft-device-cuda.so").exists():
        pytest.skip("this build has no CUDA emulator")
    golden(scratch, f"{BUILD}/tests/cuda:", WEFT_TEST_DEVICE="cuda", WEFT_TEST_KEYS="share=yes workspace=1Mi")


def test_saved_files(plugin):
    """They equal the original ones, in shapes and order, except for trained values. Resuming keeps the bits."""
    weft("train run.ini run.out=whole", plugin)
    weft("train run.ini train.steps=2", plugin)
    weft("train run.ini --resume", plugin)
    same_tensors("whole/model", "out/model")
    assert b'"transformer.h.0.attn.c_attn.weight":{"dtype":"F32","shape":[16,48]' in pathlib.Path(
        "out/model/model.safetensors").read_bytes()
    weft("generate out --prompt '1. e4' --tokens 4")
    weft("eval out")


@pytest.mark.parametrize("changes, facts", [
    ({"resid_pdrop": 0.1}, ["resid_pdrop", "0.1"]), ({"qk_norm": True}, ["qk_norm", "true"]),
    ({"activation_function": "relu"}, ["activation_function", '"relu"', '"gelu_new"']),
    ({"n_head": 3}, ["n_embd 16", "n_head 3"])])
def test_keys_are_not_ignored(plugin, changes, facts):
    """Dropout and unknown keys, for example."""
    config(**changes)
    refused("plan run.ini", plugin, says=facts)
    if "resid_pdrop" in changes:
        weft("plan run.ini model.dropout=off", plugin)


@pytest.mark.parametrize("words", ["--ranks 4 --steps 3", "--ranks 3 --steps 2 train.precision=bf16"] if FULL else
                         ["--ranks 2 --steps 2"])
def test_proof(plugin, words):
    if not (FAULTS / "weft-comm-ring.so").exists():
        pytest.skip("this build has no MPI")
    shutil.copytree(SOURCE / "configs", "configs", dirs_exist_ok=True)
    change_json(GOLDEN / "config.json", "configs/prove/config.json", vocab_size=521)
    says(weft(f"prove configs/prove.ini {words}", plugin, "train.trainable=transformer.wte.weight, "
              "transformer.wpe.weight, transformer.h.0.mlp.*, last:1"), " equal, 0 not covered, 0 different")
