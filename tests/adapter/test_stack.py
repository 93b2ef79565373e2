"""Several adapters in one run: trained parameters, file locations, reading, resuming, merging and generation with the
same results, one result on one rank and on three, and errors for invalid lists."""
import os
import shutil

import pytest
from harness import (BUILD, eval_loss, full_only, losses, make_run, near, needs, read, read_json, refused, same_tensors,
                     says, weft, write)

PART = "train.trainable=adapter,model.norm.weight"
STILL = "train.steps=1 optimizer.lr=0 checkpoint.every=none"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def train(out, words="", ini="stack.ini"):
    weft(f"train {ini} --overwrite run.out={out} {words}")


def same_file(a, b):
    assert open(f"{a}/{WEIGHTS}", "rb").read() == open(f"{b}/{WEIGHTS}", "rb").read()


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    """plain.ini reads base, stack.ini adapts it: out, and part with only lora."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{BUILD}/plugins")
        make_run("steps = 4\n[eval]\nevery = none\n[checkpoint]\nevery = 2\n[optimizer]\nplugin = adamw\nlr = 2e-2\n"
                 "[device]\nthreads = 1\n")
        train("first", "train.steps=2", ini="run.ini")
        os.rename("first/model", "base")
        plain = read("run.ini").replace("path   = model", "path   = base").replace("= fresh", "= weights")
        write("plain.ini", plain)
        write("stack.ini", f"{plain}[adapter]\nplugin = lora, mlp-head\n[adapter.lora]\nr = 4\nalpha = 8\n"
              "dropout = 0.1\n[adapter.mlp-head]\nwidth = 24\n[adapter.ia3]\ntargets = k_proj, down_proj\n"
              "feedforward = down_proj\n")
        train("out", PART)
        train("part", f"adapter.plugin=lora checkpoint.every=none {PART}")
        yield


@pytest.fixture(scope="module")
def with_both(inputs):
    """The loss of out."""
    return eval_loss("out")


def test_line_of_an_error():
    write("twice.ini", read("stack.ini").replace("= lora, mlp-head", "= lora, mlp-head, lora"))
    line = read("twice.ini").splitlines().index("plugin = lora, mlp-head, lora") + 1
    refused("plan twice.ini", says=[f"twice.ini:{line}: [adapter] plugin = lora, mlp-head, lora", "twice"])


@pytest.mark.parametrize("words, facts", [
    ("'adapter.plugin=lora, mlp-hed'", '"mlp-hed"|mlp-head?'), ("'adapter.plugin=lora, none'", "lora, none"),
    ("'adapter.plugin=lora,, ia3'", "lora,, ia3"), ("'adapter.plugin=lora ia3'", "'lora ia3'"),
    ("'train.trainable=adapter, *q_proj.weight'", "'model.layers.0.self_attn.q_proj.weight'"),
    ("'adapter.plugin=lora, ./other.so'", "./other.so"), ("adapter.plugin=lora,ia3,prefix,mlp-head,llama-adapter", "4"),
    ("'adapter.plugin=lora, ia3'", "command line: [adapter] plugin|ia3|'model.layers.0.self_attn.k_proj'|lora"),
    ("adapter.r=3", "command line: [adapter] r = 3|[adapter.lora]"), ("adapter.lora.rnk=3", "[adapter.lora]|rnk"),
    ("adapter.mlp-head.layers=65", "[adapter.mlp-head] layers = 65|[1,64]"),
    ("adapter.plugin=lora,ia3 adapter.ia3.targets=", "[adapter.ia3] targets")])
def test_errors(words, facts):
    refused(f"plan stack.ini {words}", says=facts.split("|"))


# ---- trained parameters: of each block q, o (40,40); k, v (20,40); gate, up (88,40); down (40,88); of the head
# (24,40), (40,24)

LORA, HEAD = 3 * 4 * (2 * 80 + 2 * 60 + 3 * 128), 24 * 41 + 40 * 25


@pytest.mark.parametrize("number, words", [
    (LORA + HEAD, ""), (LORA + HEAD + 7 * 40, "'train.trainable=adapter, *norm.weight'"),
    (HEAD + 3 * (20 + 88), "adapter.plugin=mlp-head,ia3"),  # down_proj: its inputs
    (3 * 4 * (2 * 80 + 60) + 3 * (20 + 88), "adapter.plugin=ia3,lora adapter.lora.targets=q_proj,v_proj,o_proj")])
def test_trained_parameters(number, words):
    assert weft(f"plan stack.ini --json {words}").json["trained"] == number


def test_fresh_adapters_change_no_value():
    train("fresh", "train.steps=1 adapter.lora.dropout=0")
    train("without", "train.steps=1", ini="plain.ini")
    assert losses("fresh") == losses("without")


def test_files():
    for directory in "out/model", "out/checkpoints/step-4":
        assert all(os.path.getsize(f"{directory}/{part}{file}")
                   for part in ("", "mlp-head/") for file in (CONFIG, WEIGHTS, "weft_adapter.json"))
    config = read_json(f"out/model/{CONFIG}")
    assert config["peft_type"] == "LORA" and "model.norm" in str(config["modules_to_save"])
    assert "modules_to_save" not in read_json(f"out/model/mlp-head/{CONFIG}")
    assert f'"mlp-head/{WEIGHTS}"' in read("out/checkpoints/step-4/manifest.json")
    assert "mlp_head" not in read(f"out/model/{WEIGHTS}")  # PEFT does not know it
    head = read(f"out/model/mlp-head/{WEIGHTS}")
    assert "lora" not in head and "norm" not in head


def test_reading(with_both):
    assert with_both != eval_loss("plain.ini")
    for ini in "plain.ini", "stack.ini":  # plugins as the directory lists them, and as the configuration does
        near(with_both, eval_loss(f"{ini} --adapter out/model"), 1e-9)
    assert eval_loss("plain.ini --adapter out/model/mlp-head") != with_both
    train("again", f"{STILL} adapter.from=out/model {PART}")
    same_tensors("out/model", "again/model")


@pytest.mark.parametrize("words, facts", [
    ("eval stack.ini --adapter out/model adapter.plugin=mlp-head,lora", "out/model |lora, mlp-head|mlp-head, lora"),
    ("eval plain.ini --adapter out/model adapter.plugin=lora", "out/model |lora, mlp-head|[adapter] plugin"),
    ("eval stack.ini --adapter out/model/mlp-head", "out/model/mlp-head |[adapter] plugin|lora, mlp-head"),
    ("eval stack.ini --adapter out/model adapter.mlp-head.width=25", f"out/model/mlp-head/{CONFIG}|width = 24"),
    ("eval stack.ini --adapter part/model", "part/model |[adapter] plugin|lora, mlp-head"),
    ("eval stack.ini --adapter theirs", "theirs |[adapter] plugin|lora, mlp-head"),
    ("plan stack.ini adapter.from=foreign adapter.plugin=lora", f"foreign/{CONFIG}: peft_type = "),
    ("plan stack.ini adapter.from=foreign adapter.plugin=lora,ia3", "foreign |[adapter] plugin|lora, ia3")])
def test_other_lists_than_those_of_a_directory(theirs, words, facts):
    refused(words, says=facts.split("|"))


def test_generation():
    words = "generate out --prompt e2 --tokens 8 --temperature 0 --json"
    assert weft(words).out == weft(f"{words} --no-cache").out


@pytest.fixture(scope="module")
def theirs(inputs):
    """lora and the head, as saved by PEFT: the directories theirs and foreign."""
    for source, to in ("part/model", "theirs"), ("out/model/mlp-head", "foreign"):
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("weft_adapter.json"))


@pytest.mark.parametrize("source", ["part/model", "theirs"])
def test_new_head(theirs, source):
    train("joined", f"{STILL} adapter.from={source}")
    same_file("part/model", "joined/model")
    assert os.path.getsize(f"joined/model/mlp-head/{WEIGHTS}")
    near(eval_loss("part"), eval_loss("joined"), 1e-9)


def test_new_lora():
    train("joined", f"{STILL} adapter.from=out/model/mlp-head")
    same_file("out/model/mlp-head", "joined/model/mlp-head")


def test_resume_of_one_that_continued_and_one_that_began():
    train("joined", "adapter.from=part/model")
    train("halted", "adapter.from=part/model train.steps=2")
    weft("train stack.ini --resume run.out=halted adapter.from=part/model")
    same_tensors("joined/model", "halted/model")
    assert eval_loss("joined") != eval_loss("part")


def test_resume(scratch):
    """And the files removed by --overwrite."""
    train("parts", f"{PART} train.steps=2")
    weft(f"train stack.ini --resume run.out=parts {PART}")
    same_tensors("out/model", "parts/model")
    refused(f"train stack.ini --resume run.out=parts {PART} train.steps=5 adapter.plugin=lora", says="adapter plugin 2")
    write("parts/model/mlp-head/notes", "mine\n")
    refused("train stack.ini --overwrite run.out=parts", says=f"{scratch}/parts/model/mlp-head/notes")


def test_adapter_that_peft_knows_lies_in_front():
    train("turned", "adapter.plugin=mlp-head,lora train.steps=1 checkpoint.every=none")
    assert read_json(f"turned/model/{CONFIG}")["peft_type"] == "LORA"
    assert os.path.getsize(f"turned/model/mlp-head/{CONFIG}")


def test_merge(with_both):
    """Mergeable adapters are merged, the head is copied."""
    says(weft("merge base out/model merged"), "unmerged ", "merged/mlp-head")
    near(with_both, eval_loss("plain.ini model.path=merged adapter.from=merged/mlp-head"), 1e-5)
    assert eval_loss("plain.ini model.path=merged") != with_both
    refused("eval plain.ini --adapter merged/mlp-head", says="merged/mlp-head")
    # An adapter that cannot be merged.
    train("attended", "adapter.plugin=lora,prefix train.steps=1 checkpoint.every=none")
    refused("merge base attended/model never", says="merged")
    assert not os.path.exists("never")


def test_merge_of_two(scratch):
    train("two", "adapter.plugin=ia3,lora adapter.lora.targets=q_proj,v_proj checkpoint.every=none")
    weft("merge base two/model both")
    refused("eval two adapter.ia3.targets=down_proj", says=["targets", f"{scratch}/two/model/{CONFIG}"])
    near(eval_loss("two"), eval_loss("plain.ini model.path=both"), 1e-5)


def test_three_ranks():
    needs("mpich")
    train("many", f"{PART} comm.plugin=mpi-mpich strategy.plugin=fsdp policy.plugin=class policy.classes=Linear "
          "--ranks 3")
    same_tensors("out/model", "many/model")


@full_only
def test_proof_on_three_ranks():
    needs("mpich")
    says(weft("prove stack.ini comm.plugin=mpi-mpich --ranks 3 --steps 2"), " equal, 0 not covered, 0 different")
