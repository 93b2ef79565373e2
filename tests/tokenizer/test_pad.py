"""`tokenizer.pad = add` adds a pad token to a tokenizer without one, and a row to the model; both are saved. Strategies
and resuming keep the bits. checkpoint/test_transformers.py tests that transformers reads the result."""
import pathlib
import shutil

import pytest
from harness import (FAULTS, FULL, SOURCE, change_json, make_model, make_run, read, read_json, refused,
                     same_tensors, says, weft, write, write_json)


@pytest.fixture(scope="module", autouse=True)
def result(scratch):
    """A run, in one."""
    make_run("steps = 4\nclip = 1.0\n[tokenizer]\npad = add\n[optimizer]\nlr = 1e-3\n[checkpoint]\nevery = 2\n")
    for file in "config.json", "model.safetensors":
        shutil.copy(SOURCE / "configs/chess/base" / file, "model")
    write_json("model/generation_config.json", {"pad_token_id": None, "temperature": 0.7})
    write("run.ini", read("run.ini").replace("start  = fresh", "start = weights"))
    return train("one")


def train(out, *arguments):
    return weft(f"train run.ini run.out={out}", *arguments)


def config(model, file="config.json"):
    return read_json(f"{model}/model/{file}")


def tokenizer(model):
    return read(f"{model}/model/tokenizer.json")


def test_additional_row(result):
    says(result, "<pad>", "512")
    assert (config("one")["vocab_size"], config("one")["pad_token_id"]) == (513, 512)
    assert config("one", "generation_config.json") == {"pad_token_id": 512, "temperature": 0.7}
    assert config("one", "tokenizer.json")["added_tokens"][-1] == {
        "id": 512, "content": "<pad>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        "special": True}
    assert config("one", "tokenizer_config.json")["pad_token"] == "<pad>"
    assert b'"model.embed_tokens.weight":{"dtype":"F32","shape":[513,128]' in pathlib.Path(
        "one/model/model.safetensors").read_bytes()[:3000].replace(b" ", b"")


def test_bits_after_an_interruption():
    train("out", "train.steps=2")
    train("out", "--resume")
    same_tensors("one/model", "out/model")
    refused("train run.ini run.out=out --resume tokenizer.pad=keep train.steps=6", says="config.json")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "mp"] if FULL else ["fsdp"])
def test_bits_under_a_strategy(strategy):
    if not (FAULTS / "weft-comm-ring.so").exists():
        pytest.skip("this build has no MPI")
    train(strategy, "--ranks=3", f"strategy.plugin={strategy}")
    same_tensors("one/model", f"{strategy}/model")
    assert tokenizer("one") == tokenizer(strategy)


def test_saved_model_is_used_as_any_model():
    """And its run as any run; a token is not added twice."""
    assert "512" in weft("tokenize one/model", stdin="e4<pad>").out.split()
    weft("generate one --prompt '1. e4' --tokens 4")
    weft("eval one")
    train("again", "model.path=one/model", "train.steps=2")
    assert config("again")["vocab_size"] == 513 and tokenizer("one") == tokenizer("again")


def test_unused_row_and_existing_token():
    make_model("spare", 40, 10, 88, 3, 521)
    says(train("two", "model.path=spare", "model.start=fresh", "tokenizer.pad_token=[PAD]", "train.steps=2"),
         "[PAD]", "512")
    assert (config("two")["vocab_size"], config("two")["pad_token_id"]) == (521, 512)
    train("unk", "tokenizer.pad_token=<unk>", "train.steps=2")
    assert (config("unk")["vocab_size"], config("unk")["pad_token_id"]) == (512, 0)


def test_errors(scratch):
    refused("plan run.ini model.path=one/model tokenizer.pad_token=[PAD]",
            says=["[tokenizer] pad = add", f"{scratch}/one/model", "[PAD]", "512"])
    refused("plan run.ini tokenizer.pad_token=", says="pad_token")
    shutil.copytree("model", "bare", ignore=shutil.ignore_patterns("tokenizer_config.json"))
    refused("plan run.ini model.path=bare", says="tokenizer_config.json")
    shutil.copytree("model", "smaller")
    change_json("smaller/config.json", vocab_size=511)
    refused("plan run.ini model.path=smaller model.start=fresh", says=["513 ids", "smaller"])
    refused("plan run.ini train.resize_vocab=yes", says="pad in [tokenizer]")
