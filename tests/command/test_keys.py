"""Keys of selected and unselected plugins: one line of a file changes its strategy or policy, also to an external
plugin and back."""
import hashlib
import pathlib
import re
import shutil

import pytest
from harness import SOURCE, build_plugin, lines, make_model, make_text, read, refused, says, weft, write, write_ini

SELECTED = ["strategy.plugin=fsdp", "strategy.fsdp.prefetch=3"]


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    build_plugin("strategy", "steady", SOURCE / "tests/command/steady.c", flags=["-O2"])
    make_model("model", 32, 8, 56, 2, 512)
    make_text(40)
    write_ini("run.ini", run="out=one", model="plugin=llama path=model start=fresh", tokenizer="plugin=bpe bos=yes",
              data="plugin=text path=games.txt document=line context=48", train="steps=4 global_batch=4",
              optimizer="plugin=adamw lr=3e-3", **{"optimizer.sgd": "momentum=0.9"}, device="plugin=cpu threads=1",
              checkpoint="every=2", plugins="path=plugins", strategy="plugin=single reduce=tree", **{
                  "strategy.fsdp": "shard=hybrid prefetch=2", "strategy.mp": "schedule=gpipe",
                  "strategy.steady": "pace=slower map=maps/steady.txt"}, policy="plugin=block", **{
                  "policy.class": "classes=LlamaMLP", "policy.size": "size=9k"})
    weft("config check run.ini")
    weft("train run.ini --quiet")


def edited(*changes, file="run.ini", to="edited.ini"):
    """Writes a configuration in which lines are replaced: pairs of an old and a new line; "" removes it."""
    rows = read(file).splitlines()
    for old, new in changes:
        assert rows.count(old) == 1
        rows[rows.index(old)] = new
    write(to, "\n".join(row for row in rows if row) + "\n")
    return to


def same_model(out):
    assert pathlib.Path(f"{out}/model/model.safetensors").read_bytes() == pathlib.Path(
        "one/model/model.safetensors").read_bytes()


@pytest.mark.parametrize("strategy", ["steady", "fsdp", "ddp", "mp"])
def test_other_strategy(strategy):
    edited(("plugin=single", f"plugin={strategy}"))
    weft("config check edited.ini")
    change = "strategy.shard=full" if strategy == "fsdp" else "strategy.reduce=tree"  # a group of one rank
    weft(f"train edited.ini --quiet run.out=of-{strategy} {change}")
    same_model(f"of-{strategy}")


@pytest.mark.parametrize("policy", ["class", "size", "whole"])
def test_other_policy(policy):
    edited(("plugin=block", f"plugin={policy}"))
    weft(f"train edited.ini --quiet run.out=by-{policy}")
    same_model(f"by-{policy}")


@pytest.mark.parametrize("arguments, rows", [
    ([], [r"strategy\.reduce +tree +{file}", r"strategy\.fsdp\.prefetch +2 +{file}, idle",
          r"policy\.size\.size +9000 +{file}, idle", r"strategy\.steady\.map +{here}/maps/steady\.txt +{file}, idle"]),
    (["strategy.plugin=fsdp"], [r"strategy\.prefetch +2 +{file}, in \[strategy\.fsdp\]",
                                r"strategy\.root +sharded +default"]),
    (SELECTED, [r"strategy\.prefetch +3 +command line, in \[strategy\.fsdp\]"]),
    ([*SELECTED, "strategy.prefetch=4"], [r"strategy\.prefetch +4 +command line"]),
    (["strategy.plugin=fsdp", "strategy.prefetch=3"], [r"strategy\.prefetch +3 +command line"]),
    (SELECTED[1:], [r"strategy\.fsdp\.prefetch +3 +command line, idle"]),
    (["optimizer.plugin=sgd"], [r"optimizer\.momentum +0\.9 +{file}, in \[optimizer\.sgd\]",
                                r"optimizer\.lr +0\.003 +{file}"])])
def test_sources_of_values(scratch, arguments, rows):
    said = weft("config explain run.ini", *arguments).out
    for row in rows:
        says(said, re.compile(f"^{row.format(file='run.ini:[0-9]+', here=re.escape(str(scratch)))}$"))
    assert arguments or not lines(said, re.compile(r"^strategy\.prefetch"))  # single does not offer it


def test_sources_of_values_in_json():
    said = weft("config explain run.ini --json").out
    assert re.search(r'"strategy\.fsdp\.prefetch"[^}]*"idle": true', said)


def test_own_section_in_a_plan():
    says(weft("plan run.ini strategy.plugin=fsdp").out, re.compile("^world .*strategy fsdp: "), "shard hybrid",
         "reduce tree", "reduce_dtype fp32", "prefetch 2")


@pytest.mark.parametrize("kept", ["one/config.ini", "one/checkpoints/step-4/state/config.ini"])
def test_saved_configuration(scratch, kept):
    rows = read(kept).splitlines()
    assert {"shard = hybrid", "prefetch = 2", "schedule = gpipe", "pace = slower", f"map = {scratch}/maps/steady.txt",
            "size = 9k", "classes = LlamaMLP", "momentum = 0.9"} <= set(rows)
    assert len([row for row in rows if row.startswith("[strategy.")]) == 3


def test_runs_of_a_saved_configuration():
    """It is also changed with one line; a resume may have another strategy."""
    for strategy in "fsdp", "steady":
        edited(("plugin = single", f"plugin = {strategy}"), file="one/config.ini", to="kept.ini")
        weft("config check kept.ini")
    weft("train one/config.ini run.out=again --quiet")
    same_model("again")
    weft("train run.ini strategy.plugin=steady run.out=resumed --quiet")
    weft("train resumed/config.ini run.out=resumed train.steps=6 strategy.plugin=single --resume --quiet")
    weft("train run.ini run.out=six train.steps=6 --quiet")
    six, resumed = (pathlib.Path(f"{out}/model/model.safetensors").read_bytes() for out in ("six", "resumed"))
    assert six == resumed


@pytest.mark.parametrize("old, new, facts", [
    ("schedule=gpipe", "schedule=gpip", ["37: [strategy.mp] schedule = gpip", "naive,gpipe,1f1b", "gpipe?"]),
    ("prefetch=2", "prefetch=99", ["35: [strategy.fsdp] prefetch = 99", "[0,16]"]),
    ("pace=slower", "pcae=slower", ["39: [strategy.steady]", "pcae", "pace?"]),
    ("schedule=gpipe", "prefetch=1", ["37: [strategy.mp] prefetch = 1", "strategy mp"]),
    ("[strategy.fsdp]", "[strategy.fdsp]", ["33: [strategy.fdsp]", '"fdsp"', "fsdp?"]),
    ("[strategy.fsdp]", "[strategey.fsdp]", ["33: ", "[strategey.fsdp]", "strategy.fsdp?"]),
    ("[strategy.fsdp]", "[train.fsdp]", ["33: ", "[train.fsdp]", "sections are: "]),
    ("reduce=tree", "shard=full", ["32: [strategy] shard = full", "single", "plugin = fsdp", "[strategy.fsdp]"]),
    ("reduce=tree", "reduce_at=last", ["32: ", "[strategy.ddp] or [strategy.fsdp]"]),
    ("reduce=tree", "pace=slow", ["32: ", "[strategy.steady]"]),
    ("reduce=tree", "prefetch=2", ["32: [strategy] prefetch = 2", "strategy single", "[strategy.fsdp]"]),
    ("reduce=tree", "redcue=tree", ["32: [strategy]", "redcue", "reduce?"])])
def test_error_of_a_line(old, new, facts):
    """Both `config check` and `plan` report it."""
    edited((old, new))
    for command in "config check edited.ini", "plan edited.ini":
        refused(command, says=["edited.ini:" + facts[0], *facts[1:]])


@pytest.mark.parametrize("command, facts", [
    ("config check run.ini policy.block.size=1", ["[policy.block]", "size"]),
    ("config check run.ini strategy.plugin=steady strategy.reduce_dtype=bf16",
     ["[strategy] reduce_dtype = bf16", "steady"]),
    ("plan run.ini policy.classes=layer",
     ["command line: [policy] classes = layer", "block", "plugin = class", "[policy.class]"])])
def test_error_of_the_command_line(command, facts):
    refused(command, says=facts)


def test_default_of_a_key_that_is_not_offered():
    edited(("reduce=tree", "prefetch=1"))
    weft("config check edited.ini")


def test_key_in_both_sections():
    """It is an error of the file."""
    edited(("reduce=tree", "prefetch=3"), ("plugin=single", "plugin=fsdp"))
    refused("plan edited.ini", says=["edited.ini:35: [strategy.fsdp] prefetch", "line 32", "[strategy]"])


def test_plugin_outside_the_search_path():
    shutil.copy("plugins/weft-strategy-steady.so", "steady.so")
    edited(("plugin=single", "plugin=./steady.so"), ("path=plugins", ""))
    says(weft("config explain edited.ini").out,
         re.compile(r"^strategy\.pace +slower +edited\.ini:[0-9]+, in \[strategy\.steady\]$"))
    edited(("path=plugins", ""))
    refused("plan edited.ini", says=["[strategy.steady]", '"steady"'])


def test_plugin_that_cannot_be_used():
    write("broken/weft-strategy-broken.so", "no plugin\n")
    write("broken.ini", read("run.ini") + "[strategy.broken]\nanything = 3\n")
    shutil.copy("plugins/weft-strategy-steady.so", "broken")
    says(weft("config check broken.ini plugins.path=broken").err, "[strategy.broken]", "not validated")


def test_pin_of_an_unselected_plugin():
    pin = hashlib.sha256(pathlib.Path("plugins/weft-strategy-steady.so").read_bytes()).hexdigest()
    weft(f"config check run.ini plugins.pin=strategy:steady={pin}")
