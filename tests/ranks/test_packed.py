"""A model with frozen linears in 8-bit blocks, and trained norms, embedding and adapter. It is held, sharded, gathered
and saved packed, has one result under all strategies, is planned to the byte, resumes on other ranks, and computes the
same as with unpacked linears."""
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FAULTS, FULL, agree, all_equal, change_json, make_model, make_text, needs, plan, refused,
                     resume, run, runs_as_planned, same_tensors, says, train, weft, write_ini)

LINEARS = 3 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)
BYTES = LINEARS // 64 * 68
SAVED = "model.path=one/model model.start=weights"
PLAIN = "model.plugin=plain model.path=plain model.start=weights"
# A step that changes nothing, without the adapter.
STILL = ("train.steps=1 optimizer.plugin=sgd optimizer.lr=0 model.start=weights adapter.plugin=none "
         "train.trainable=model.embed_tokens.weight,*norm.weight")


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_model("model", 64, 16, 128, 3, 521)
    make_text(60)
    write_ini("run.ini", run="out=out", model="plugin=packed path=model start=fresh", tokenizer="",
              data="path=games.txt document=line context=32 validation=5",
              train="steps=6 global_batch=12 micro_batch=1 clip=0.5 "
                    "trainable=model.embed_tokens.weight,*norm.weight,adapter",
              eval="every=none", optimizer="plugin=adamw lr=3e-3", adapter="plugin=lora",
              **{"adapter.lora": "r=4 targets=q_proj,down_proj"}, device="threads=1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{FAULTS}:{BUILD}/plugins")
        train("one", "checkpoint.every=3")
        shutil.copytree("one/model", "plain", ignore=shutil.ignore_patterns("model.safetensors"))
        yield


@pytest.fixture(scope="module")
def unpacked(inputs):
    """The model in plain/, with plain linears of the decoded numbers. Returns the output of the decoder."""
    return run(BUILD / "tests/rank_unpack", "one/model/model.safetensors", "plain/model.safetensors")


@pytest.mark.parametrize("words, facts", [
    ("train.trainable=all", ["[train] trainable = all", "'model.layers.0.self_attn.q_proj.weight'", "int8x64"]),
    ("train.trainable=last:1", ["trainable"]),
    ("device.plugin=plain", ["[device] plugin = plain", "int8x64", "'model.layers.0.self_attn.q_proj.weight'"])])
def test_errors(words, facts):
    refused("train run.ini", words, says=facts)


def test_partial_block():
    """Rows are complete blocks."""
    shutil.copytree("model", "odd")
    change_json("odd/config.json", intermediate_size=96)
    refused("plan run.ini model.path=odd", says=["'model.layers.0.mlp.down_proj'", "int8x64", "96", "64"])


def test_memory(unpacked):
    assert {"type": "int8x64", "parameters": LINEARS, "bytes": BYTES} in find_objects(plan(), "type")
    says(weft("plan run.ini").out, "int8x64")
    says(unpacked, f"21 packed, {BYTES} bytes")
    assert re.search(rb'q_proj.weight":\{"dtype":"U8","shape":\[64,1,68\]',
                     pathlib.Path("one/model/model.safetensors").read_bytes())


def find_objects(value, key):
    """Returns type, parameters and bytes of the objects with that key, at any depth."""
    if isinstance(value, dict):
        here = {name: value[name] for name in ("type", "parameters", "bytes") if name in value}
        return [here] * (key in value) + find_objects(list(value.values()), key)
    return [found for item in value for found in find_objects(item, key)] if isinstance(value, list) else []


def test_eval_and_generate():
    """Without a complaint about training; position by position, and in one pass."""
    words = f"run.ini train.trainable=all {SAVED}"
    weft(f"eval {words}")
    text = weft(f"generate {words} --prompt e2 --tokens 8 --json")
    assert text.json["ids"] and text.out == weft(f"generate {words} --prompt e2 --tokens 8 --json --no-cache").out


def test_saved_model():
    """The next run starts with exactly the saved weights."""
    train("again", f"{STILL} model.path=one/model")
    assert pathlib.Path("one/model/model.safetensors").read_bytes() == pathlib.Path(
        "again/model/model.safetensors").read_bytes()


def test_plain_linears(unpacked):
    """Equal losses within rounding, in every step."""
    train("a", SAVED)
    train("b", PLAIN)
    agree("a", "b", 2e-6)
    train("a16", f"{SAVED} train.precision=bf16")
    train("b16", f"{PLAIN} train.precision=bf16")
    agree("a16", "b16", 1e-3)
    agree("a16", "a", 1e-2)
    train("c", "model.path=plain model.start=weights")
    agree("c", "a", 1e-4)


def test_late_device():
    train("late", "checkpoint.every=3", env={"WEFT_PLUGIN_PATH": f"{BUILD}/tests/late:{FAULTS}:{BUILD}/plugins"})
    same_tensors("one", "late")


def test_ranks(unpacked):
    needs("mpich")
    says(all_equal("", 3, 2, 38), "3  fsdp full")
    if FULL:
        all_equal("model.path=plain model.start=weights train.precision=bf16 train.trainable=adapter", 3, 2, 38)
    for strategy in ["fsdp", "ddp", "mp"] if FULL else ["fsdp"]:
        runs_as_planned("three", f"strategy.plugin={strategy} checkpoint.every=3", 3)
        same_tensors("one", "three")
    # Packing does not depend on the reading rank.
    train("again", f"{STILL} model.path=plain")
    train("three", f"{STILL} model.path=plain strategy.plugin=fsdp", 3)
    same_tensors("again/model", "three/model")
    # Three ranks, then two.
    train("many", "strategy.plugin=fsdp train.steps=3 checkpoint.every=3", 3)
    resume("many", "strategy.plugin=fsdp strategy.shard=optimizer checkpoint.every=3", 2)
    same_tensors("one/model", "many/model")
    same_tensors("one/checkpoints/step-6", "many/checkpoints/step-6")
