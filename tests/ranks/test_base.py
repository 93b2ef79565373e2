"""[model] base: frozen linears of the layers stored in nf4, nf4x64, int8 and fp8, packed while they are read, with
trained lora, norms and embedding. Held, sharded, gathered and saved packed; one result under all strategies; planned to
the byte; and the losses of the same model with unpacked linears."""
import pathlib
import shutil

import pytest
from harness import (BUILD, FAULTS, FULL, agree, all_equal, eval_loss, full_only, has, make_model, make_text, needs,
                     plan, records, refused, resume, run, runs_as_planned, same_tensors, says, train, weft, write_ini)

STILL = "train.steps=1 optimizer.plugin=sgd optimizer.lr=0"  # a step that changes nothing
BARE = "adapter.plugin=none train.trainable=*norm.weight"
LATE = {"WEFT_PLUGIN_PATH": f"{BUILD}/tests/late:{FAULTS}:{BUILD}/plugins"}
# Elements of the linears of a layer. Of 40, blocks cross rows and the last one is partial; of 64, all are complete.
LAYER = {40: [1600, 800, 800, 1600, 3520, 3520, 3520], 64: [4096, 2048, 2048, 4096, 8192, 8192, 8192]}
BASES = [  # key, size of the model, type, bytes and elements of a block, largest difference from unpacked numbers
    ("nf4", 40, "nf4", 536, 1024, 0.05), ("nf4x64", 40, "nf4x64", 36, 64, 0.05),
    ("fp8", 40, "fp8x128", 132, 128, 0.02), ("int8", 64, "int8x64", 68, 64, 0.01)]


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    """run.ini, and models with unpacked numbers in numbers40 and numbers64."""
    make_text(60)
    write_ini("run.ini", run="out=out", model="path=model", tokenizer="",
              data="path=games.txt document=line context=32 validation=5",
              train="steps=6 global_batch=12 micro_batch=1 clip=0.5 "
                    "trainable=model.embed_tokens.weight,*norm.weight,adapter",
              eval="every=none", optimizer="plugin=adamw lr=3e-3", adapter="plugin=lora",
              **{"adapter.lora": "r=3"}, device="threads=1")
    make_model("fresh40", 40, 10, 88, 3, 521)
    make_model("fresh64", 64, 16, 128, 3, 521)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{FAULTS}:{BUILD}/plugins")
        for size in LAYER:
            make_numbers(size)
        yield


def make_numbers(size):
    train("made", f"model.start=fresh model.path=fresh{size} {STILL} {BARE}")
    shutil.copytree("made/model", f"numbers{size}")


@pytest.mark.parametrize("words, facts", [
    ("model.base=nf5", ["[model] base = nf5", "auto,nf4,nf4x64,int8,fp8,bf16,fp16,fp32", "did you mean nf4?"]),
    ("model.base=nf4 train.trainable=all", ["[model] base = nf4", "[train] trainable = all"]),
    ("model.base=int8", ["[model] base = int8", "'model.layers.0.self_attn.q_proj.weight'", "40", "64",
                         "nf4, nf4x64 or fp8"]),
    ("model.base=bf16", ["[model] base = bf16", "[train] precision = bf16"]),
    ("model.base=nf4 device.plugin=plain", ["plain", "nf4"])])
def test_errors(words, facts):
    refused("train run.ini model.path=numbers40", *words.split(), says=facts)


@pytest.fixture(scope="module", params=BASES if FULL else BASES[:1], ids=lambda base: base[0])
def base(request, inputs):
    """One base: a trained run in one/, a model without an adapter in first/, and its decoded numbers in plain/."""
    name, size, kind, block_bytes, elements, near = request.param
    words = f"model.base={name} model.path=numbers{size}"
    blocks = 3 * sum(-(-linear // elements) for linear in LAYER[size])
    train("one", f"{words} checkpoint.every=3")
    train("first", f"{STILL} {BARE} {words}")
    shutil.rmtree("plain", ignore_errors=True)
    shutil.copytree("first/model", "plain", ignore=shutil.ignore_patterns("model.safetensors"))
    said = run(BUILD / "tests/rank_unpack", "first/model/model.safetensors", "plain/model.safetensors",
               f"numbers{size}/model.safetensors")
    says(said, f"21 packed, {blocks * block_bytes} bytes")
    return {"name": name, "type": kind, "words": words, "numbers": f"numbers{size}", "near": near,
            "bytes": blocks * block_bytes}


def stored(kind, words):
    """Returns the row of the plan's table for parameters of that type; None: there are none."""
    return next((row for row in plan(words)["layout"]["storage"] if row["type"] == kind), None)


def test_plan(base):
    assert stored(base["type"], base["words"])["bytes"] == base["bytes"]


def test_saved_model(base):
    """It is read without a key, and with the same one. Another key is rejected, and so is training the weights."""
    for words in "", f"model.base={base['name']}":
        train("again", f"{STILL} {BARE} model.path=first/model {words}")
        same_tensors("first/model", "again/model")
    other = "nf4" if base["name"] == "fp8" else "fp8"
    refused("plan run.ini model.path=first/model", f"model.base={other}", says=base["type"])
    refused("plan run.ini model.path=first/model train.trainable=all",
            says=["'model.layers.0.self_attn.q_proj.weight'", base["type"]])


def test_eval_and_generate(base):
    """An unpacked model is evaluated as it would be stored, whichever parameters would be trained."""
    words = "run.ini model.path=first/model adapter.plugin=none train.trainable=all"
    weft(f"eval {words}")
    text = weft(f"generate {words} --prompt e2 --tokens 8 --json")
    assert text.json["ids"] and text.out == weft(f"generate {words} --prompt e2 --tokens 8 --json --no-cache").out
    words = f"run.ini adapter.plugin=none model.path={base['numbers']}"
    packed = eval_loss(f"{words} train.trainable=*norm.weight model.base={base['name']}")
    assert packed == eval_loss(f"{words} train.trainable=all model.base={base['name']}")
    assert packed != eval_loss(f"{words} train.trainable=*norm.weight")


def test_plain_linears(base):
    """Plain linears of the decoded numbers have equal losses within rounding, in every step."""
    train("a", "model.path=first/model")
    train("b", "model.path=plain")
    agree("a", "b", 2e-6)
    train("a16", "model.path=first/model train.precision=bf16")
    train("b16", "model.path=plain train.precision=bf16")
    agree("a16", "b16", 1e-3)
    train("c", f"model.path={base['numbers']}")
    agree("one", "c", base["near"])


def test_dora(base):
    """Norms of the decoded blocks, from a file and while packing."""
    train("a", "model.path=first/model adapter.dora=yes")
    train("b", "model.path=plain adapter.dora=yes")
    agree("a", "b", 2e-6)
    train("c", f"{base['words']} adapter.dora=yes")
    same_tensors("a", "c")


def test_merge(base):
    """Merging never packs again; with --dtype it uses the decoded numbers."""
    train("a", "model.path=first/model adapter.dora=yes")
    said = refused("merge first/model a/model merged", says=base["type"])
    says(said, "--dtype bf16, fp16 or fp32")
    assert not pathlib.Path("merged").exists()
    weft("merge first/model a/model merged --dtype fp32")
    merged = eval_loss("run.ini adapter.plugin=none train.trainable=all model.path=merged")
    assert abs(eval_loss("a") - merged) < 1e-5
    shutil.rmtree("merged")


def test_late_device(base):
    train("late", f"{base['words']} checkpoint.every=3", env=LATE)
    same_tensors("one", "late")


def test_ranks(base):
    """Packing does not depend on the reading rank; one result, bytes as planned."""
    needs("mpich")
    says(all_equal(base["words"], 3, 2, 38), "3  fsdp full")
    if FULL:
        all_equal(f"{base['words']} adapter.dora=yes", 3, 2, 38)
    for strategy in ["fsdp", "ddp", "mp"] if FULL and base["name"] == "nf4" else ["fsdp"]:
        train("three", f"{base['words']} strategy.plugin={strategy} checkpoint.every=3", 3)
        same_tensors("one", "three")
    # Long sequences, so that the untouched padding of small tensors on the grid is negligible.
    runs_as_planned("three", f"{base['words']} strategy.plugin=fsdp data.context=128 train.micro_batch=4 train.steps=2",
                    3)


def test_resume():
    """On other ranks, but not with another base."""
    needs("mpich")
    words = "model.path=numbers40 model.base=nf4 checkpoint.every=3"
    train("nf4", words)
    train("many", f"{words} strategy.plugin=fsdp train.steps=3", 3)
    refused("train run.ini --resume run.out=many model.base=fp8 model.path=numbers40",
            says=["[model] base", "fp8", "nf4"])
    resume("many", f"{words} strategy.plugin=fsdp strategy.shard=optimizer", 2)
    same_tensors("nf4/model", "many/model")
    same_tensors("nf4/checkpoints/step-6", "many/checkpoints/step-6")


@full_only
def test_units_of_linears():
    """Each linear in its own unit, so that base and adapter are communicated separately."""
    if not has("mpich"):
        return
    words = "model.base=nf4 model.path=numbers40 train.trainable=adapter policy.plugin=class policy.classes=Linear"
    says(all_equal(words, 3, 1, 38), "fsdp full", " class")
    train("units", f"{words} checkpoint.every=3")
    train("three", f"{words} checkpoint.every=3 strategy.plugin=fsdp", 3)
    same_tensors("units", "three")


def beside(out):
    """Returns the run's peak of memory in bytes beyond its plan."""
    rows = [record["ranks"][0] for record in records(f"{out}/phases.jsonl")]
    return max(row["resident_peak"] for row in rows) - sum(rows[-1]["taken"].values())


def test_memory():
    """The peak is the packed model and some chunks, not the unpacked numbers: 20 million in linears, 82 MB of fp32."""
    few = f"train.steps=1 train.global_batch=1 checkpoint.every=none {BARE}"
    make_model("fresh512", 512, 64, 2048, 6, 521)
    make_numbers(512)
    train("small", f"{few} model.path=numbers40 model.base=nf4")
    for name in ["nf4", "nf4x64", "int8", "fp8"] if FULL else ["nf4"]:
        train("large", f"{few} model.path=numbers512 model.base={name}")
        assert beside("large") - beside("small") < 30e6


def test_bf16_base():
    """Frozen parameters in bf16 and fp32, with or without a master."""
    linears = 3 * sum(LAYER[64])

    def n(words):
        return (stored("bf16", f"train.precision=bf16 {words}") or {"parameters": 0})["parameters"]

    train("half", f"{STILL} model.path=numbers64 checkpoint.dtype=bf16 {BARE}")
    assert n("model.path=numbers64 model.base=bf16") == linears
    assert n("model.path=numbers64") == 0
    assert n("model.path=half/model") >= linears
    assert n("model.path=half/model model.base=fp32") == 0
    for name in "fp32", "bf16":
        train(name, f"model.path=half/model train.precision=bf16 model.base={name}")
    same_tensors("fp32/model", "bf16/model")
