"""The built-in adapter lora: trained and frozen parameters in plans and runs; one result under all strategies and
policies; and errors."""
import re
import shutil

import pytest
from harness import (BUILD, FULL, change_json, eval_loss, losses, make_run, needs, read, refused, says, weft, write)


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{BUILD}/plugins")
        make_run("steps = 6\nclip = 0.5\n[eval]\nevery = none\n[optimizer]\nplugin = adamw\nlr = 3e-3\n[adapter]\n"
                 "plugin = lora\nr = 3\n[device]\nthreads = 1\n")
        write("bare.ini", read("run.ini").replace("[adapter]\nplugin = lora\nr = 3\n", ""))
        shutil.copytree("model", "untied")
        change_json("untied/config.json", tie_word_embeddings=False)
        yield


# ---- errors


@pytest.mark.parametrize("words, facts", [
    ("adapter.targets=q_prj", "[adapter] targets|'q_prj'| q_proj"),
    ("adapter.r=30", "[adapter] r |30|'model.layers.0.self_attn.k_proj'|(20, 40)"),
    ("adapter.layers=first:4", "[adapter] layers |'first:4'|first:N|3"), ("'adapter.regex=('", "[adapter] regex |'('"),
    # Ranks and alphas of single modules, and excluded modules.
    ("adapter.rank_pattern=q_prj:4", "[adapter] rank_pattern |'q_prj'| q_proj, k_proj"),
    ("adapter.rank_pattern=q_proj:30,k_proj:30",
     "[adapter] rank_pattern |'model.layers.0.self_attn.k_proj'|30|(20, 40)"),
    ("adapter.rank_pattern=q_proj:0", "[adapter] rank_pattern |'q_proj:0'|'0'"),
    ("adapter.rank_pattern=q_proj", "[adapter] rank_pattern |'q_proj'|targets"),
    ("adapter.alpha_pattern=q_proj:2,q_proj:3", "[adapter] alpha_pattern |'q_proj'"),
    ("adapter.alpha_pattern=up_proj:4 adapter.targets=q_proj,k_proj", "[adapter] alpha_pattern |'up_proj'|nearest"),
    ("adapter.exclude=q_prj", "[adapter] exclude |'q_prj'| q_proj"),
    ("adapter.exclude=*_proj", "[adapter] exclude = *_proj|targets = all-linear"),
    ("adapter.regex=.*q_proj adapter.exclude=*.q_proj", "[adapter] exclude = *.q_proj|regex = .*q_proj"),
    ("adapter.excluded=q_proj", "exclude?"), ("adapter.target=q_proj", "[adapter] |target;|targets?"),
    ("adapter.plugin=none", "[adapter] r = 3|none|plugin = lora|[adapter.lora]"),
    ("model.base=nf4 train.trainable=all", "all |trainable = adapter"),
    ("model.path=untied adapter.targets=lm_head", "[adapter] targets |'lm_head'")])
def test_errors(words, facts):
    refused(f"plan run.ini {words}", says=facts.split("|"))


@pytest.mark.parametrize("words, facts", [
    ("adapter.r=3", "[adapter] r = 3|plugin = lora"),
    ("adapter.lora.r=3", "[adapter.lora] r = 3|[adapter]|plugin = lora"),
    ("model.base=nf4", "all |[adapter] plugin = lora"),
    ("train.trainable=adapter", "[train] trainable = adapter|'adapter'")])
def test_errors_without_an_adapter(words, facts):
    refused(f"plan bare.ini {words}", says=facts.split("|"))


def test_keys_of_an_adapter_that_is_not_selected():
    weft("plan bare.ini adapter.lora.r=3 adapter.plugin=none")


# ---- trained parameters

BLOCK = 3 * (2 * 80 + 2 * 60 + 3 * 128)  # per block: q, o (40,40); k, v (20,40); gate, up (88,40); down (40,88)


@pytest.mark.parametrize("number, words", [
    (3 * BLOCK, ""), (BLOCK, "adapter.layers=1"), (3 * 3 * 80, "adapter.targets=q_proj"),
    (3 * 3 * 140, r"'adapter.regex=.*\.(q|v)_proj'"), (3 * 3 * 140, "'adapter.targets=*.q_proj, *attn.v*'"),
    (3 * BLOCK + 3 * (521 + 40), "adapter.targets=all-linear,embed_tokens"),
    (3 * BLOCK + 7 * 40, "train.trainable=adapter,*norm.weight"),
    # With r = 3: q_proj has 5, except 1 in block 0; down_proj has 40, its maximum.
    (3 * BLOCK + 2 * 2 * 80 - 2 * 80 + 3 * 37 * 128,
     "'adapter.rank_pattern=*.0.self_attn.q_proj:1, q_proj:5, down_proj:40'"),
    (3 * BLOCK, "adapter.rank_pattern=none adapter.alpha_pattern=q_proj:2 adapter.exclude=none"),
    (3 * BLOCK - 3 * 3 * 80 - 3 * 3 * 128, "'adapter.exclude=q_proj, *.1.mlp.*'"),
    (3 * BLOCK, "adapter.targets=all-linear,embed_tokens adapter.exclude=embed_tokens,lm_head")])
def test_trained_parameters(number, words):
    assert weft(f"plan run.ini --json {words}").json["trained"] == number


def test_no_backward_below_the_lowest_adapter():
    out = weft("plan run.ini adapter.layers=last:1 --print-program").out
    says(out, "BACKWARD layers.2.attn")
    says(out, re.compile(r"BACKWARD (embed|layers\.[01]\.)"), count=0)


def test_it_learns():
    weft("train run.ini --overwrite train.steps=12")
    assert len(losses("out")) == 12 and losses("out")[-1] < losses("out")[0]


def test_plugin_none():
    """It evaluates the base of a directory with an adapter."""
    weft("train bare.ini adapter.plugin=lora adapter.lora.r=3 run.out=own train.steps=2")
    base = eval_loss("bare.ini")
    assert eval_loss("own") != base
    for words in "own", "bare.ini --adapter own/model":
        assert eval_loss(f"{words} adapter.plugin=none") == base


# ---- several ranks

# Base and adapter in separate units, each matrix on its own, with several odd ranks.
PATTERNS = ("adapter.rank_pattern=q_proj:5,layers.1.mlp.up_proj:1,*mlp*:7 adapter.alpha_pattern=v_proj:5,q_proj:3.5 "
            "adapter.exclude=k_proj,layers.0.mlp.down_proj adapter.dropout=0.1 adapter.rank_stabilised=yes")
UNITS = ("policy.plugin=class policy.classes=Linear,LlamaDecoderLayer adapter.targets=all-linear,embed_tokens "
         "train.trainable=adapter,*norm.weight train.precision=bf16")


@pytest.mark.parametrize("words", [f"{UNITS} {PATTERNS}", *(["", f"adapter.dora=yes {PATTERNS}"] if FULL else [])])
def test_proof(words):
    needs("mpich")
    out = weft(f"prove run.ini comm.plugin=mpi-mpich --ranks 3 --steps 2 {words}").out
    says(out, "38 equal, 0 not covered, 0 different")
    says(out, "3  fsdp full")
