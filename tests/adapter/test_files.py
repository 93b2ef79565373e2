"""Files of a run with an adapter and their use: an adapter directory of a few files, checkpoints without the base, a
resume on other ranks, evaluation and generation, several adapters by name, another base, and a merged model."""
import json
import os
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, change_json, eval_loss, make_run, needs, read, read_json, refused, says, weft, write)

PART = "train.trainable=adapter,model.norm.weight adapter.targets=all-linear,embed_tokens"
DOWN = "model.layers.2.mlp.down_proj"


def exact(value):
    return pytest.approx(value, abs=1e-9)


def near(value):
    return pytest.approx(value, abs=1e-5)


def train(out, *arguments, ini="run.ini"):
    return weft(f"train {ini} --overwrite run.out={out}",
                *(word for argument in arguments for word in argument.split()))


def same(a, b, file="model/adapter_model.safetensors"):
    assert (pathlib.Path(a) / file).read_bytes() == (pathlib.Path(b) / file).read_bytes()


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    """base: a model with tied head. fresh.ini makes one, plain.ini reads it, run.ini adapts it. changed: another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{BUILD}/plugins")
        make_run("steps = 6\n[eval]\nevery = none\n[checkpoint]\nevery = 3\n[optimizer]\nplugin = adamw\nlr = 1e-2\n"
                 "[device]\nthreads = 1\n")
        train("first", "train.steps=2 checkpoint.every=none")
        shutil.copytree("first/model", "base")
        os.rename("run.ini", "fresh.ini")
        plain = read("fresh.ini").replace("path   = model", "path   = base").replace("= fresh", "= weights")
        write("plain.ini", plain)
        write("run.ini", plain + "[adapter]\nplugin = lora\nr = 4\nalpha = 8\nnamed = one:out/model, two:other/model\n")
        train("out", PART)
        train("other", "run.seed=9 adapter.r=2 adapter.alpha=auto adapter.targets=*.q_proj adapter.layers=0,2")
        train("changed", "train.steps=3 checkpoint.every=none", ini="plain.ini")
        yield


@pytest.fixture(scope="module")
def adapted(inputs):
    """The loss with the adapter out."""
    return eval_loss("run.ini --adapter out/model adapter.r=auto train.trainable=all")


@pytest.fixture(scope="module")
def untied(inputs):
    shutil.copytree("model", "untied")
    change_json("untied/config.json", tie_word_embeddings=False)


def wrong(text=None, note=False, **changes):
    """Makes the directory wrong, the adapter out with changes of its PEFT configuration, or with another text of it."""
    shutil.rmtree("wrong", ignore_errors=True)
    shutil.copytree("out/model", "wrong")
    if not note:  # of Weft, with the base's hash
        os.unlink("wrong/weft_adapter.json")
    if text is None:
        change_json("wrong/adapter_config.json", **changes)
    else:
        write("wrong/adapter_config.json", text)
    return "adapter.from=wrong"


CONFIG = "wrong/adapter_config.json: "
TARGETS = ["embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def test_base_and_adapter_in_one_directory(scratch):
    """After a fresh start it is usable as both."""
    train("both", "adapter.plugin=lora checkpoint.every=none", ini="fresh.ini")
    keys = "data.path=games.txt data.document=line data.context=32 data.validation=5"
    loss = eval_loss(f"both/model {keys}")
    shutil.copytree("both/model", "alone", ignore=shutil.ignore_patterns("*adapter*"))
    assert eval_loss("both") == near(loss) and eval_loss("plain.ini model.path=alone") != loss
    assert read_json("both/model/weft_adapter.json")["base"] != ""
    refused("eval plain.ini --adapter both/model", says=["other weights", f"{scratch}/base", "[model] path"])
    assert eval_loss("plain.ini --adapter both/model model.path=both/model") == near(loss)


def test_files():
    assert read_json("out/model/weft_adapter.json")["base_files"] != ""
    for file in "adapter_config.json", "adapter_model.safetensors", "weft_adapter.json", "tokenizer.json":
        assert os.path.getsize(f"out/model/{file}") > 0
    assert not any(pathlib.Path(f"out/{saved}/model.safetensors").exists() for saved in ("model", "checkpoints/step-6"))
    assert read_json("out/model/adapter_config.json")["modules_to_save"] == ["model.norm"]
    states = pathlib.Path("out/checkpoints/step-6/state/exp_avg.safetensors").read_bytes()
    assert b"q_proj.lora_A.weight" in states and b"q_proj.weight" not in states
    # Not all modules of that name, so each by its path.
    assert read_json("other/model/adapter_config.json")["target_modules"] == [
        f"model.layers.{layer}.self_attn.q_proj" for layer in (0, 2)]


def test_hash_of_the_base(scratch):
    """It covers all bytes, also within a tensor and with a reset modification time."""
    file = pathlib.Path("base/model.safetensors")
    sound, times = file.read_bytes(), os.stat(file)
    place = 8 + int.from_bytes(sound[:8], "little") + 40000
    file.write_bytes(sound[:place] + bytes(2000) + sound[place + 2000:])
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.read_bytes() != sound
    refused("eval plain.ini --adapter out/model", says=["other weights", f"{scratch}/base", "[model] path"])
    refused(f"train run.ini --resume run.out=out train.steps=7 {PART}", says="base's weights")
    file.write_bytes(sound)  # the same bytes with another time
    assert eval_loss("plain.ini --adapter out/model") == exact(eval_loss("plain.ini adapter.from=out/model"))


def test_reading(adapted):
    assert eval_loss("run.ini --adapter one") == exact(adapted) and eval_loss("out") == exact(adapted)
    assert adapted not in (eval_loss("run.ini"), eval_loss("run.ini --adapter two adapter.r=auto adapter.alpha=auto"))
    words = "--prompt e2 --tokens 8 --temperature 0 --json"
    assert weft(f"generate run.ini --adapter one {words}").out == weft(f"generate out {words} --no-cache").out


def test_reading_and_saving(scratch, adapted):
    """Fully trained parameters of the adapter are trained further, and remain in it."""
    once = "train.steps=1 optimizer.lr=0 checkpoint.every=none adapter.from=out/model"
    for out, trainable in ("again", "train.trainable=adapter,model.norm.weight"), ("whole", ""):
        train(out, once, trainable)
        same("out", out)
    assert "model.norm" in read_json("whole/model/adapter_config.json")["modules_to_save"]
    fix = ["'model.norm.weight'", "Fix: [train] trainable = adapter, model.norm.weight"]
    refused("train run.ini --overwrite run.out=lost adapter.from=out/model train.trainable=adapter",
            says=[f"{scratch}/out/model: ", *fix])
    refused("train run.ini --resume run.out=out train.steps=8 adapter.targets=all-linear,embed_tokens",
            says=[f"{scratch}/out/checkpoints/step-6: ", *fix])
    assert eval_loss("run.ini --adapter one train.trainable=adapter") == exact(adapted)  # nothing is saved


@pytest.mark.parametrize("command, facts", [
    ("eval run.ini --adapter three", ["[adapter] use = three", "one, two"]),
    ("eval run.ini --adapter two adapter.named=one:out/model,two:other/model,one:base",
     ["[adapter] named = one:out/model,two:other/model,one:base", "name one"]),
    ("eval run.ini --adapter one adapter.r=3", ["[adapter] r ", "{here}/out/model/adapter_config.json"]),
    ("eval run.ini adapter.from=base", ["[adapter] from = base", "{here}/base/adapter_config.json"]),
    ("eval run.ini --adapter one model.path=changed/model",
     ["other weights", "{here}/changed/model", "any_base = yes"]),
    ("merge base out merged", ["adapter_config.json", "model/"]),
    ("merge base nowhere merged", ["ADAPTER = nowhere ({here}/nowhere)"]),
    ("merge nowhere out/model merged", ["BASE = nowhere ({here}/nowhere)"]),
    ("eval plain.ini adapter.from=nowhere", ["[adapter] from = nowhere ({here}/nowhere)"]),
    ("plan run.ini adapter.regex=.*q_proj adapter.targets=q_proj", ["[adapter] regex", "targets"]),
    ("eval run.ini --adapter one adapter.targets=q_proj",
     ["[adapter] targets or layers", "{here}/out/model/adapter_config.json"]),
    ("eval run.ini --adapter one adapter.layers=0,1", ["[adapter] targets or layers"]),
    ("eval run.ini --adapter one adapter.regex=.*q_proj", ["[adapter] regex or layers"]),
    ("eval run.ini --adapter one adapter.exclude=q_proj", ["[adapter] targets or layers or exclude"]),
    ("eval run.ini --adapter one adapter.rank_pattern=q_proj:5",
     ["[adapter] rank_pattern", "{here}/out/model/adapter_config.json"]),
    ("merge base out/model merged", ["'model.embed_tokens'", "tied"]),
    ("merge changed/model out/model merged", ["other weights", "changed/model", "--any-base"]),
    ("merge base out/model merged --dtype nf4", ["--dtype", "nf4", "fp32, bf16, fp16"])])
def test_mismatch(scratch, command, facts):
    refused(command, says=[fact.format(here=scratch) for fact in facts])
    assert not pathlib.Path("merged").exists()


def test_keys_that_agree_with_the_file(adapted):
    for keys in "adapter.targets=embed_tokens,all-linear", "adapter.rank_pattern=q_proj:4 adapter.alpha_pattern=none":
        assert eval_loss(f"run.ini --adapter one {keys}") == exact(adapted)


def compact(value):
    return json.dumps(value, separators=(",", ":"))


HEAD = [*TARGETS, "lm_head"]
LATER = {"layers\\.[12]\\..*": 8}
LAYERS = {"layers_to_transform": [0, 1, 2]}
REFUSED = [  # changed keys of PEFT's file, facts
    ({"r": 5}, ["(4, 521)", "(5, 521)"]), ({"use_dora": True}, ["dora = yes", "'model.embed_tokens'"]),
    ({"use_dora": 1}, ["dora = yes", "'model.embed_tokens'"]),  # flags are evaluated as in Python
    ({"peft_type": "TRAINABLE_TOKENS"}, ["[adapter] from = wrong", '"trainable-tokens"']),
    ({"trainable_token_indices": [1, 2]}, [CONFIG + "trainable_token_indices = [1,2]: "]),
    *(({"modules_to_save": ["model.norm", name]}, [f'{CONFIG}modules_to_save = "{name}": ']) for name in (
        "model.embed_tokens", "lm_head", "mlp", "nrm", "score")),
    # Values that PEFT does not write.
    *(({key: value}, [f"{CONFIG}{key} ", "" if key == "modules_to_save" else compact(value)]) for key, value in (
        ("r", "4"), ("lora_alpha", 0), ("lora_dropout", "x"), ("lora_dropout", 1.5), ("fan_in_fan_out", True),
        ("layers_to_transform", [7]), ("layers_to_transform", [0, -1]), ("layers_to_transform", "x"),
        ("layers_to_transform", [0.5]),
        ("layers_pattern", 3), ("modules_to_save", "norm"), ("modules_to_save", [1]))),
    ({"target_modules": [1, "q_proj"]}, [CONFIG + "target_modules ", '[1,"q_proj"]']),
    # Keys that PEFT has and Weft does not implement, known or not.
    *(({key: value}, [f"{CONFIG}{key} = "]) for key in ("kasa_config", "use_newthing")
      for value in (True, 1, "x", [0], {"a": 1})),
    ({"layers_pattern": "blocks", **LAYERS}, [CONFIG + "layers_pattern = blocks"]),
    ({"target_modules": ["query_key_value"]}, [CONFIG + "target_modules", "'query_key_value'"]),
    ({"target_modules": "("}, [CONFIG + "target_modules '('"]),
    ({"target_modules": "\\Q.*"}, [CONFIG + "target_modules '\\Q.*'"]),
    # The first key that matches a module holds. A key that matches no adapted module is refused.
    *(({key: {"q_proj": 4, entry: 8}}, [f"{CONFIG}{key} ", f"'{entry}'"]) for key in ("rank_pattern", "alpha_pattern")
      for entry in ("k_prj", "norm|lm_head", "lm_head", "self_attn")),
    *(({key: {"q_proj": 4, "embed_tokens": 8}, "target_modules": TARGETS[1:]}, [f"{CONFIG}{key} ", "'embed_tokens'"])
      for key in ("rank_pattern", "alpha_pattern")),
    ({"rank_pattern": {"mlp.*|q_proj": 4}, "r": 7, "alpha_pattern": LATER}, ["(4, 521)", "(7, 521)"]),
    ({"exclude_modules": ".*"}, [CONFIG + "exclude_modules = .*", "target_modules = "]),
    ({"exclude_modules": [7]}, [CONFIG + "exclude_modules = "]),
    ({"exclude_modules": ".*[[:alpha:]]"}, [CONFIG + "exclude_modules '.*[[:alpha:]]'", "'[[:alpha:]]'"]),
    ({"rank_pattern": {"q_proj": 0.5}}, [CONFIG + "rank_pattern", "'q_proj'", "rank"]),
    ({"alpha_pattern": {"q_proj": -1}}, [CONFIG + "alpha_pattern", "'q_proj'", "alpha"]),
    ({"rank_pattern": {"q_proj{,2}": 4}}, [CONFIG + "rank_pattern 'q_proj{,2}'", "'{,2}'"])]


@pytest.mark.parametrize("changes, facts", REFUSED)
def test_peft_file_that_is_refused(changes, facts):
    ini = "run.ini adapter.r=auto" if changes == {"r": 5} else "plain.ini"
    refused(f"eval {ini} {wrong(**changes)}", says=facts)
    for trainable in ("adapter", "auto") if "modules_to_save" in changes else ():
        refused(f"eval run.ini {wrong(**changes)} train.trainable={trainable}", says=facts)


@pytest.mark.parametrize("model", ["model", "untied"])
@pytest.mark.parametrize("targets", [HEAD, ".*(q_proj|lm_head)"])
def test_head_is_no_target(untied, model, targets):
    refused(f"plan fresh.ini model.path={model} {wrong(target_modules=targets)}",
            says=[CONFIG + "target_modules", "'lm_head'"])
    refused(f"plan fresh.ini model.path={model} adapter.plugin=lora adapter.targets=q_proj,lm_head",
            says=["[adapter] targets", "'lm_head'"])


@pytest.mark.parametrize("changes", [
    {"use_rslora": 0}, {"target_modules": [*TARGETS, "query_key_value"]},  # a name that other models have
    {"target_modules": [*TARGETS, "norm"]},  # a module that is trained whole is not adapted as well
    {"layers_to_transform": []}, {"a": 0, "b": "", "c": [], "d": {}, "kasa_config": None, "use_newthing": False,
                                  "qalora_group_size": 16},
    {"rank_pattern": {"(mlp|self_attn|model).*": 4}, "r": 7, "alpha_pattern": LATER},
    {"exclude_modules": ["lm_head", "mlp"], "target_modules": [*TARGETS[:5], "lm_head", *TARGETS[5:]]},
    {"target_modules": ".*", "exclude_modules": ".*(head|norm|self_attn|mlp)"}])
def test_peft_file_with_the_same_meaning(adapted, changes):
    assert eval_loss(f"plain.ini {wrong(**changes)}") == exact(adapted)


def test_peft_file_with_another_meaning(adapted):
    assert eval_loss(f"plain.ini {wrong(alpha_pattern={**LATER, next(iter(LATER)): 9})}") != adapted
    losses = [eval_loss(f"run.ini {wrong(use_rslora=value)}") for value in (True, "true")]
    assert losses[0] == exact(losses[1]) and losses[0] != adapted


@pytest.mark.parametrize("name", ["layers", ["h", "layers"], []])
def test_layers_pattern(name):
    shutil.rmtree("below", ignore_errors=True)
    shutil.copytree("other/model", "below")
    change_json("below/adapter_config.json", layers_pattern=name, **LAYERS)
    auto = "adapter.r=auto adapter.alpha=auto"
    assert eval_loss(f"run.ini --adapter two {auto}") == exact(eval_loss(f"run.ini adapter.from=below {auto}"))


@pytest.mark.parametrize("change, facts", [('"r": 4,,', ["JSON"]), ('"r": 4, "r": 5,', ["duplicate"])])
def test_peft_file_is_strict_json(change, facts):
    """For every reader."""
    argument = wrong(text=read("out/model/adapter_config.json").replace('"r": 4,', change))
    refused(f"eval plain.ini {argument}", says=CONFIG[:-1])
    refused(f"eval plain.ini {argument} adapter.plugin=lora", says=facts)


@pytest.fixture(scope="module")
def ranked(inputs):
    """The loss with the adapter ranked."""
    write("ranks.ini", re.sub("(?ms)^alpha = .*", "", read("run.ini")) + """\
rank_stabilised = yes
rank_pattern    = layers.0.self_attn.q_proj:1, *.q_proj:5, up_proj:3
alpha_pattern   = *.1.*:3, q_proj:2.5
exclude         = k_proj, layers.2.mlp.down_proj
""")
    train("ranked", ini="ranks.ini")
    return eval_loss("plain.ini adapter.from=ranked/model")


def test_files_with_ranks(ranked):
    """They have names if these suffice, else paths; the result in PEFT does not depend on an order."""
    config = read_json("ranked/model/adapter_config.json")
    assert config["rank_pattern"] == {"model.layers.0.self_attn.q_proj": 1, "model.layers.1.self_attn.q_proj": 5,
                                      "model.layers.2.self_attn.q_proj": 5, "up_proj": 3}
    assert config["alpha_pattern"]["model.layers.1.self_attn.v_proj"] == 3
    assert config["alpha_pattern"]["model.layers.0.self_attn.q_proj"] == 2.5
    assert (config["exclude_modules"], config["r"]) == (None, 4)
    assert not re.search(f'k_proj|"down_proj|{DOWN}', read("ranked/model/adapter_config.json"))


def test_reading_with_ranks(ranked):
    assert eval_loss("ranks.ini adapter.from=ranked/model") == exact(ranked) == exact(eval_loss("ranked"))
    assert ranked != eval_loss("plain.ini")
    words = "generate ranked --prompt e2 --tokens 8 --temperature 0 --json"
    assert weft(words).out == weft(f"{words} --no-cache").out


@pytest.mark.parametrize("ini", ["ranks.ini", "plain.ini"])
def test_reading_and_saving_with_ranks(ranked, ini):
    train("again", "train.steps=1 optimizer.lr=0 checkpoint.every=none adapter.from=ranked/model", ini=ini)
    same("ranked", "again")
    same("ranked", "again", "model/adapter_config.json")


def test_resume_with_ranks(ranked):
    train("resumed", "train.steps=3", ini="ranks.ini")
    weft("train ranks.ini --resume run.out=resumed")
    same("ranked", "resumed")


def test_merge_with_ranks(ranked):
    weft("merge base ranked/model with-ranks")
    assert eval_loss("plain.ini model.path=with-ranks") == near(ranked)


def test_rank_has_the_same_effect_in_each_key():
    """Initial values, factor, and learning."""
    for out, key in ("each", "adapter.rank_pattern=q_proj:2"), ("all", "adapter.r=2"):
        train(out, "train.steps=2 checkpoint.every=none adapter.targets=q_proj adapter.init=gaussian", key)
    same("each", "all")


@pytest.mark.parametrize("keys, facts", [
    ("adapter.rank_pattern=q_proj:5,up_proj:3", ["[adapter] rank_pattern", "ranked/model/adapter_config.json"]),
    ("adapter.rank_pattern=none", ["[adapter] rank_pattern"]),
    ("adapter.alpha_pattern=q_proj:2.5", ["[adapter] alpha_pattern"]),
    ("adapter.targets=all-linear adapter.exclude=k_proj",
     ["[adapter] targets or layers or exclude", "ranked/model/adapter_config.json"])])
def test_mismatch_with_ranks(ranked, keys, facts):
    refused(f"eval ranks.ini adapter.from=ranked/model {keys}", says=facts)


@pytest.fixture(scope="module")
def plain(inputs):
    """The loss with an adapter of the norms, which can be merged."""
    train("plain", "train.trainable=adapter,*norm.weight")
    return eval_loss("run.ini adapter.from=plain/model")


def test_merge(plain):
    shutil.copytree("base", "talking")
    write("talking/additional_chat_templates/tool_use.jinja", "{{ messages }}\n")
    weft("merge talking plain/model merged-plain")
    assert read("merged-plain/additional_chat_templates/tool_use.jinja") == "{{ messages }}\n"
    assert eval_loss("plain.ini model.path=merged-plain") == near(plain)
    assert all(os.path.getsize(f"merged-plain/{file}")
               for file in ("config.json", "tokenizer.json", "model.safetensors"))
    refused("merge base plain/model merged-plain", says=["merged-plain", "exists"])


def test_merge_to_bf16(plain):
    weft("merge base plain/model narrow --dtype bf16")
    assert "bfloat16" in read_json("narrow/config.json").values()
    assert eval_loss("plain.ini model.path=narrow") == pytest.approx(plain, abs=1e-2)


def test_any_base(plain):
    weft("eval run.ini --adapter one model.path=changed/model adapter.any_base=yes")
    weft("merge changed/model plain/model any --any-base")


def with_last(of, file, content):
    """Makes the directory bad, with those bytes as the last number of the file."""
    shutil.rmtree("bad", ignore_errors=True)
    shutil.copytree(of, "bad")
    path = pathlib.Path("bad") / file
    path.write_bytes(path.read_bytes()[:-4] + content)


@pytest.mark.parametrize("content, facts, arguments", [
    (b"\0\0\xc0\x7f", [f"bad: '{DOWN}.lora_B.weight'", "NaN"], ""),
    (b"\0\0\x80\x7f", [f"bad: '{DOWN}.lora_B.weight'", "infinity"], ""),
    (b" \xbc\xbeL", [f"'{DOWN}.weight'", "row 39, column ", "fp16", "Fix: --dtype bf16"], "--dtype fp16")])  # 1e8
def test_merge_of_numbers_that_are_not_finite(plain, content, facts, arguments):
    """No file remains."""
    with_last("plain/model", "adapter_model.safetensors", content)
    refused(f"merge base bad never {arguments}", says=facts)
    assert not [*pathlib.Path().glob("never*"), *pathlib.Path().glob(".never*")]
    if arguments:
        weft("merge base bad wide --dtype bf16")


def test_merge_with_a_base_that_is_not_finite():
    with_last("base", "model.safetensors", b"\0\0\xc0\x7f")
    shutil.copytree("other/model", "noteless")
    os.unlink("noteless/weft_adapter.json")
    refused("merge bad noteless never --dtype bf16", says=["'model.norm.weight'", "NaN", "element 39", "base"])


@pytest.fixture(scope="module")
def exact_base(inputs):
    """A base of as many rows as the tokenizer has ids."""
    shutil.copytree("model", "narrower")
    change_json("narrower/config.json", vocab_size=512)
    train("exact", "model.path=narrower train.steps=2", ini="fresh.ini")


@pytest.mark.parametrize("rows", ["", ",model.embed_tokens.weight"])
def test_merge_with_a_token(exact_base, rows):
    shutil.rmtree("grown", ignore_errors=True)
    train("token", "model.path=exact/model tokenizer.pad=add checkpoint.every=none",
          f"train.trainable=adapter,*norm.weight{rows}")
    weft("merge exact/model token/model grown")
    assert {"vocab_size": 513, "pad_token_id": 512}.items() <= read_json("grown/config.json").items()
    says(read("grown/tokenizer.json"), '"<pad>"')
    assert eval_loss("plain.ini model.path=grown") == near(eval_loss("token"))
    if rows:
        assert read_json("token/model/adapter_config.json")["ensure_weight_tying"] is True


def test_vocabulary_with_nul(exact_base):
    """The added tokens of tokenizers with the piece "\\u0000" are compared."""
    train("nul", "model.path=exact/model tokenizer.add=<x> train.trainable=adapter,*norm.weight checkpoint.every=none")
    shutil.copytree("exact/model", "nul-base")
    for file in "nul/model/tokenizer.json", "nul-base/tokenizer.json":
        says(write(file, read(file).replace('"\u0100"', '"\\u0000"')).read_text(), '"\\u0000"')
    refused("eval plain.ini model.path=nul-base adapter.from=nul/model", says=["[tokenizer] add = <x>"])
    weft("merge nul-base nul/model nul-merged")
    assert read_json("nul-merged/config.json")["vocab_size"] == 513
    says(read("nul-merged/tokenizer.json"), '"<x>"')


def test_ranks():
    """The same bytes, also after resumes on fewer ranks."""
    needs("mpich")
    many = "comm.plugin=mpi-mpich strategy.plugin=fsdp"
    train("many", PART, many, "--ranks 4 train.steps=2 checkpoint.every=2")
    resume = f"train run.ini --resume run.out=many {PART}"
    weft(f"{resume} {many} --ranks 2 train.steps=4 checkpoint.every=2")
    weft(f"{resume} train.steps=6 checkpoint.every=2")
    same("out", "many")
    refused(f"{resume} model.path=changed/model train.steps=8", says="base's weights")
