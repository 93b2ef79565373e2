"""Built-in adapters other than lora, and lora's dropout and dora: trained parameters, one result under all strategies,
and errors. Dropout does not depend on the split into micro-batches, continues after a resume, and is off in
evaluation."""
import os
import shutil

import pytest
from harness import (BUILD, FULL, change_json, eval_loss, losses, make_run, near, needs, read, read_json, refused,
                     same_tensors, says, weft, write)


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{BUILD}/plugins")
        make_run("steps = 6\nclip = 0.5\nschedule = constant\n[eval]\nevery = none\n[optimizer]\nplugin = adamw\n"
                 "lr = 3e-3\n[adapter]\nplugin = lora\n[adapter.lora]\nr = 3\ndropout = 0.3\n[device]\nthreads = 1\n")
        shutil.copytree("model", "windowed")
        change_json("windowed/config.json", model_type="mistral", sliding_window=8,
                    architectures=["MistralForCausalLM"])
        yield


def train(words="", ini="run.ini", out="out"):
    """Returns the losses."""
    weft(f"train {ini} --overwrite run.out={out} {words}")
    return losses(out)


# ---- errors


@pytest.mark.parametrize("words, facts", [
    ("adapter.lora.dora=yes adapter.lora.targets=embed_tokens", "dora = yes|'model.embed_tokens'"),
    ("adapter.plugin=ia3 adapter.ia3.targets=k_proj", "feedforward |'model.layers.0.mlp.down_proj'"),
    ("adapter.plugin=llama-adapter adapter.llama-adapter.layers=9", "layers |9|3 blocks"),
    ("model.path=windowed model.plugin=mistral adapter.plugin=prefix", "window|prefix"),
    ("adapter.plugin=mlp-head adapter.mlp-head.layers=65", "[adapter.mlp-head] layers = 65|[1,64]"),
    ("adapter.lora.dropout=1", "[adapter.lora] dropout = 1|[0,1)")])
def test_errors(words, facts):
    refused(f"plan run.ini {words}", says=facts.split("|"))


@pytest.mark.parametrize("number, words", [  # of each block q, o (40,40); k, v (20,40); gate, up (88,40); down (40,88)
    (3 * (3 * (2 * 80 + 2 * 60 + 3 * 128) + 336), "adapter.lora.dora=yes"),
    (3 * (20 + 20 + 88), "adapter.plugin=ia3"), (3 * 2 * 7 * 20, "adapter.plugin=prefix adapter.prefix.length=7"),
    (2 * (4 * 40 + 1), "adapter.plugin=llama-adapter adapter.llama-adapter.length=4 adapter.llama-adapter.layers=2"),
    # (7,40), (7,7) and (40,7), each with a bias; with the norms, two of each block and the final one.
    (7 * 41 + 7 * 8 + 40 * 8, "adapter.plugin=mlp-head adapter.mlp-head.layers=2 adapter.mlp-head.width=7"),
    (2 * 40 * 41 + 7 * 40, "adapter.plugin=mlp-head 'train.trainable=adapter, *norm.weight'"),
    (2 * 40 * 41 + 7 * 40 + 521 * 40, "adapter.plugin=mlp-head 'train.trainable=adapter, head, *norm.weight'")])
def test_trained_parameters(number, words):
    assert weft(f"plan run.ini --json {words}").json["trained"] == number


def test_fresh_adapters_change_no_value():
    """The first loss equals the base's."""
    bare, = train("train.steps=1 adapter.lora.dropout=0")
    assert f"{train('train.steps=1 adapter.lora.dropout=0 adapter.lora.dora=yes')[0]:.8f}"[:6] == f"{bare:.8f}"[:6]
    for adapter in "ia3", "llama-adapter", "mlp-head":
        assert train(f"train.steps=1 adapter.plugin={adapter}") == [bare]


def test_prefix_positions_count_as_model_positions():
    """For rotary angles that depend on the total length: they differ after 24 positions."""
    short, long = [1] * 5, [2, 3, 4, 5, 6]
    for name, factors in ("both", (short, long)), ("early", (short, short)), ("late", (long, long)):
        shutil.copytree("model", name)
        change_json(f"{name}/config.json", original_max_position_embeddings=24, rope_scaling={
            "type": "longrope", "short_factor": factors[0], "long_factor": factors[1]})

    def first(length, model):
        return train(f"train.steps=1 adapter.plugin=prefix adapter.prefix.length={length} data.context=20 "
                     f"model.path={model}")

    assert first(4, "both") == first(4, "early")
    assert first(5, "both") == first(5, "late") != first(5, "early")


def test_longest_prefix():
    most = read_json("model/config.json")["max_position_embeddings"]
    left = most - 20
    words = "run.ini adapter.plugin=prefix data.context=20 adapter.prefix.length="
    weft(f"plan {words}{left}")
    refused(f"plan {words}{left + 1}",
            says=["command line: [data] context = 20", str(left + 1), "length", str(most), "19"])
    refused(f"plan {words}{most}", says=[str(most), "prefix"])
    weft(f"train {words}{left} --overwrite train.steps=1")
    refused("generate out --prompt 'a b' --tokens 30 --temperature 0", says=[str(left), "prefix"])


# ---- dropout


def test_dropout():
    """Other micro-batches with the same sequences; activation checkpointing; a resume."""
    whole, without = train(), train("adapter.lora.dropout=0")
    assert whole != without and train("run.seed=2") != whole
    assert train("train.activation_checkpointing=yes") == whole
    assert train("train.micro_batch=3")[-1] == pytest.approx(whole[-1], rel=1e-6) != without[-1]
    train("train.steps=3 checkpoint.every=3")
    weft("train run.ini --resume")
    assert losses("out")[-3:] == whole[-3:]


# ---- files: a run's adapter is read again, and merged if possible

MLP_HEAD = "mlp-head adapter.mlp-head.layers=2 adapter.mlp-head.width=24 adapter.mlp-head.activation=silu"


@pytest.fixture(scope="module")
def bare(inputs):
    """kept.ini reads base, which has this loss."""
    train("train.steps=2 adapter.plugin=none", out="first")
    os.rename("first/model", "base")
    write("kept.ini", read("run.ini").replace("path   = model", "path   = base").replace("= fresh", "= weights"))
    return eval_loss("kept.ini adapter.plugin=none")


def theirs(source="out", **changes):
    """The adapter of a run with changes of its PEFT configuration."""
    shutil.rmtree("theirs", ignore_errors=True)
    shutil.copytree(f"{source}/model", "theirs")
    change_json("theirs/adapter_config.json", **changes)


def left_out_of_ia3(loss):
    """Modules excluded by PEFT's file, by name or expression. All modules with scaled inputs may be excluded."""
    targets = read_json("out/model/adapter_config.json")["target_modules"]
    for left_out in ["q_proj"], r".*\.q_proj":
        theirs(exclude_modules=left_out, target_modules=["q_proj", *targets])
        assert eval_loss("kept.ini --adapter theirs adapter.plugin=ia3") == loss
    theirs(exclude_modules={"q_proj": 1})
    refused("eval kept.ini --adapter theirs adapter.plugin=ia3", says="theirs/adapter_config.json: exclude_modules = {")
    train("adapter.plugin=ia3 adapter.ia3.targets=k_proj,v_proj adapter.ia3.feedforward=none", "kept.ini", "inner")
    assert read_json("inner/model/adapter_config.json")["feedforward_modules"] == []
    theirs("inner", exclude_modules=["down_proj"], feedforward_modules=["down_proj"],
           target_modules=["down_proj", *read_json("inner/model/adapter_config.json")["target_modules"]])
    assert eval_loss("kept.ini --adapter theirs adapter.plugin=ia3") == eval_loss("inner")


@pytest.mark.parametrize("adapter", [
    "lora adapter.lora.dora=yes", "ia3", "prefix adapter.prefix.length=7",
    "llama-adapter adapter.llama-adapter.length=4", MLP_HEAD])
def test_files(bare, adapter):
    plugin = adapter.split()[0]
    train(f"optimizer.lr=0.03 adapter.plugin={adapter}", "kept.ini")
    loss = eval_loss("out")
    assert loss != bare
    words = f"adapter.plugin={plugin} adapter.lora.r=auto"
    assert eval_loss(f"kept.ini --adapter out/model {words}") == loss
    theirs(use_newthing=True)
    refused(f"eval kept.ini --adapter theirs {words}", says="theirs/adapter_config.json: use_newthing = true")
    if plugin == "ia3":
        left_out_of_ia3(loss)
    if plugin in ("lora", "ia3"):
        weft(f"merge base out/model {plugin}-merged")
        near(loss, eval_loss(f"kept.ini adapter.plugin=none model.path={plugin}-merged"), 1e-4)
    if plugin == "mlp-head":
        refused("merge base out/model merged", says="merged")
        assert not os.path.exists("merged")


def test_wrapped_attention_module(bare):
    """If PEFT wraps it, fully trained parameters below it have the wrapper's name."""
    train("optimizer.lr=0.03 adapter.plugin=llama-adapter adapter.llama-adapter.length=4 "
          "adapter.llama-adapter.layers=2 train.trainable=adapter,*k_proj.weight", "kept.ini", "keys")
    names = read("keys/model/adapter_model.safetensors")
    for name in "0.self_attn.k_", "1.self_attn.model.k_proj", "2.self_attn.model.k_proj", "2.self_attn.adaption_gate":
        assert f'"base_model.model.model.layers.{name}' in names
    near(eval_loss("keys"), eval_loss("kept.ini --adapter keys/model adapter.plugin=llama-adapter"), 1e-9)
    train("train.steps=1 optimizer.lr=0 adapter.plugin=llama-adapter adapter.from=keys/model", "kept.ini", "again")
    same_tensors("keys/model", "again/model")


def test_mlp_head(bare):
    train(f"optimizer.lr=0.03 adapter.plugin={MLP_HEAD}", "kept.ini", "head")
    generate, head = "--prompt the --tokens 8", "kept.ini --adapter head/model adapter.plugin=mlp-head"
    text = weft(f"generate head {generate}").out
    assert weft(f"generate kept.ini {generate} adapter.plugin=none").out != text
    assert weft(f"generate {head} {generate}").out == text
    config = "head/model/adapter_config.json"
    refused(f"eval {head} adapter.mlp-head.activation=gelu", says=[config, "silu"])
    refused(f"eval {head} adapter.mlp-head.width=25", says=[config, "width = 24"])
    train("run.seed=9 train.steps=1 adapter.plugin=none", out="second")
    refused(f"eval {head} model.path=second/model", says=["head/model", "second/model"])


def test_parameters_of_the_base_beside_an_mlp_head(bare):
    """They are trained with it, and saved with it."""
    train("optimizer.lr=0.03 adapter.plugin=mlp-head 'train.trainable=adapter, head, *norm.weight'", "kept.ini")
    loss = eval_loss("out")
    assert eval_loss("kept.ini --adapter out/model adapter.plugin=mlp-head") == loss != bare


# ---- several ranks


@pytest.mark.parametrize("words", [
    "adapter.lora.dora=yes", "adapter.plugin=mlp-head adapter.mlp-head.layers=2 adapter.mlp-head.width=7",
    *(["adapter.plugin=ia3", "adapter.plugin=prefix adapter.prefix.length=7",
       "policy.plugin=class policy.classes=Linear,LlamaDecoderLayer train.precision=bf16",
       "adapter.plugin=llama-adapter train.precision=bf16"] if FULL else [])])
def test_proof(words):
    needs("mpich")
    says(weft(f"prove run.ini comm.plugin=mpi-mpich --ranks {3 if FULL else 2} --steps 2 {words}"),
         " equal, 0 not covered, 0 different")


def test_prefix_of_three_ranks():
    """PEFT's table of all layers, divided by columns among the ranks."""
    needs("mpich")
    for ranks in 1, 3:
        train(f"train.steps=2 adapter.plugin=prefix comm.plugin=mpi-mpich strategy.plugin=fsdp --ranks {ranks}",
              out=f"of{ranks}")
    same_tensors("of1/model", "of3/model")
