"""A plan for N ranks equals a run on N ranks, to the byte: allocations of each rank per line, and bytes sent in a step
by kind and by link. Also plans that no machine here could run."""
import re

import pytest
from harness import (FULL, SANITIZED, WEFT, differences, lines, make_model, make_run, needs, plan, read, refused, run,
                     runs_as_planned, says, train, weft, write)


@pytest.fixture(scope="module", autouse=True)
def inputs(plugin_path):
    make_run("steps = 3\nclip = 1.0\n[eval]\nevery = 2\n[optimizer]\nplugin = adamw\nlr = 1e-3\n")


HYBRID = "strategy.plugin=fsdp strategy.shard=hybrid strategy.shard_group=2"
RUNS = [(3, "strategy.plugin=ddp"), (3, "strategy.plugin=fsdp"), (3, "strategy.plugin=mp strategy.schedule=1f1b"),
        (4, f"{HYBRID} strategy.reduce=tree strategy.reduce_at=last"),
        (3, "strategy.plugin=fsdp strategy.root=replicated train.precision=bf16")]
FULL_RUNS = [(4, HYBRID), (4, f"{HYBRID} strategy.root=replicated"),
             (3, "strategy.plugin=fsdp strategy.root=replicated"),
             (3, "strategy.plugin=fsdp strategy.shard=optimizer strategy.reduce_dtype=bf16 train.precision=bf16"),
             (2, "strategy.plugin=ddp strategy.reduce=fast strategy.reduce_at=last train.trainable=last:1"),
             (3, "strategy.plugin=fsdp strategy.shard=gradients strategy.reduce_at=last strategy.reduce_dtype=bf16")]


@pytest.mark.parametrize("ranks, words", RUNS + (FULL_RUNS if FULL else []))
def test_run(ranks, words):
    needs("mpich")
    runs_as_planned("out", words, ranks)


def test_other_run():
    """The comparison finds a run's differences from another plan."""
    needs("mpich")
    train("out", "strategy.plugin=ddp", 3)
    assert differences(plan("strategy.plugin=fsdp", 3), "out")


def planned(words):
    """Returns the plan of a model that needs no communicator."""
    return weft("plan run.ini --json", *words.split()).json


def test_shares():
    """A model of 134 million parameters without weights: memory of an fsdp rank decreases as 1/N, up to padding."""
    make_model("huge", 768, 192, 3072, 12, 36000)

    def rows(ranks, words=""):
        of = planned(f"model.path=huge strategy.plugin=fsdp train.global_batch=8 --ranks {ranks} {words}")
        return [row["lines"] for row in of["ranks"]]

    one = rows(1)[0]
    states = "parameters", "gradients", "optimizer"
    for ranks in 1, 2, 4, 8:
        for row in rows(ranks):
            for line in states:
                assert 1 <= row[line] * ranks / one[line] <= 1.01
    assert any(row["parameters"] * 8 > 1.01 * one["parameters"] for row in rows(8, "strategy.shard=optimizer"))
    seconds = 600 if SANITIZED else 60  # of the processor, independent of the machine's load
    run("sh", "-c", f'ulimit -t {seconds} && exec "$@"', "sh", WEFT, "plan", "run.ini", "model.path=huge",
        "strategy.plugin=fsdp", "train.global_batch=1024", "--ranks=1024", "--nodes=128")


def test_thousand_ranks():
    """Of 1024 ranks some update nothing of a small model."""
    said = weft("plan run.ini strategy.plugin=fsdp train.global_batch=1024 --ranks 1024 --nodes 128").out
    says(said, re.compile(" nothing$"))
    assert "to other nodes" in said


COUNT = "Total Parameter Count: "
ROOT = "[Non-FSDP Mode] Unit: root, " + COUNT


def sharding(words):
    return weft("plan run.ini --print-sharding", *words.split()).out


def test_sharding():
    """Shards of a rank; parameters that are complete on a rank, and those that are absent."""
    said = sharding("strategy.plugin=fsdp --ranks 4 --rank 3")
    assert "parameters on rank 3" in said.splitlines()
    says(said, re.compile(r"^\[FSDP Mode\] Model: LlamaForCausalLM, " + COUNT +
                          r"\d+, Sharded Parameter Count on device: \d+ \([\d.]+%\)$"), count=1)
    said = sharding("strategy.plugin=fsdp strategy.shard=optimizer --ranks 4")
    says(said, re.compile(r"^\[Non-FSDP Mode\] Model Layer: model.norm.weight, " + COUNT + r"\d+$"), count=1)
    assert not lines(said, re.compile(r"^\[FSDP"))
    says(sharding("strategy.plugin=mp --ranks 2"),
         re.compile(r"^\[Non-FSDP Mode\] Model Layer: model.layers.2.mlp.up_proj.weight, " + COUNT +
                    r"\d+, Parameter Count on device: 0 \(0.00%\)$"), count=1)


@pytest.fixture(scope="module")
def files(inputs):
    """Further INI files: ddp.ini, fsdp.ini, and root.ini with a replicated root."""
    for name, line in ("ddp", "plugin = ddp"), ("fsdp", "plugin = fsdp"), ("root", "root = replicated"):
        write(f"{name}.ini", f"{read('run.ini')}[strategy]\n{line}\n")


def difference(a, b, words):
    return weft("plan", a, "--diff", b, *words.split()).out


def test_diff(files):
    said = difference("ddp.ini", "fsdp.ini", "--ranks 3 strategy.reduce=tree")
    for row in (r"strategy.plugin +ddp +fsdp$", r"memory optimizer +[\d,]+ +[\d,]+ +-[\d.]+ %$",
                r"instructions GATHER +[\d,]+ +[\d,]+ "):
        says(said, re.compile("^" + row), count=1)
    assert difference("run.ini", "run.ini", "--ranks 3 strategy.plugin=ddp").split()[2:] == ["no", "difference"]


@pytest.mark.parametrize("was, becomes, facts", [
    ("global_batch = 12", "global_batch = 10", "odd.ini: [train] global_batch = 10"),
    ("micro_batch ", "micro_bacth ", "odd.ini:")])
def test_diff_errors(files, was, becomes, facts):
    """The message names the right file of the two, once."""
    write("odd.ini", read("ddp.ini").replace(was, becomes))
    for pair in ("ddp.ini", "odd.ini"), ("odd.ini", "ddp.ini"):
        said = refused("plan", pair[0], "--diff", pair[1], "--ranks", 3, says=facts)
        assert "odd.ini: odd.ini" not in str(said)


@pytest.mark.parametrize("words", ["", "strategy.shard=hybrid strategy.shard_group=2"])
def test_replicated_root(files, words):
    """A replicated root is held completely and refreshed, not gathered."""
    words += " --ranks 4 strategy.plugin=fsdp"
    said = difference("run.ini", "root.ini", words)
    says(said, re.compile(r"^instructions GATHER +[\d,]+ +[\d,]+ +-"), count=1)
    says(said, re.compile(r"^instructions REFRESH +0 +4$"), count=1)
    said = weft("plan root.ini --print-sharding --rank 3", *words.split()).out
    says(said, re.compile("^" + re.escape(ROOT) + r"\d+$"), count=1)
    says(said, re.compile(r"^\[FSDP Mode\] Unit: model.layers.0, .* \([2-5]\d\.\d+%\)$"), count=1)


@pytest.mark.parametrize("stage, name", [(1, "optimizer"), (2, "gradients"), (3, "full")])
def test_stages(stage, name):
    """DeepSpeed's stage numbers are names of the same modes."""
    words = "--ranks 4 strategy.plugin=fsdp strategy.shard="
    assert planned(words + str(stage)) == planned(words + name)


def test_sums():
    """The table says whether the sum of gradients is deterministic across ranks."""
    fast, ordered = (says(weft("plan run.ini strategy.plugin=ddp --ranks 3", word).out, re.compile("^sums "))
                     for word in ("strategy.reduce=fast", "strategy.reduce=ordered"))
    assert fast != ordered
    says(weft("plan run.ini").out, re.compile("^batch +12 sequences = 12 micro-batches of 1 sequence x 32 positions$"), count=1)


@pytest.mark.parametrize("words, facts", [
    # Keys of another policy or strategy have their own section (command/test_keys.py) and are an error elsewhere.
    ("policy.plugin=class policy.classe=layer", ["[policy]", "classe", "classes"]),
    ("strategy.plugin=ddp strategy.shard=full --ranks 2", ["shard", "[strategy.fsdp]"]),
    ("strategy.plugin=ddp --ranks 4 --nodes 3", ["4 ranks", "3 nodes"]),
    ("strategy.plugin=fsdp strategy.shard=4", ["shard = 4", "optimizer,gradients,full,hybrid,1,2,3"]),
    # Suggestions that keep the batch come first.
    ("strategy.plugin=ddp --ranks 5", ["12 micro-batches", "5 replicas", "1, 2, 3, 4, 6 or 12 ranks"]),
    ("strategy.plugin=ddp --ranks 2 train.global_batch=1", ["1 micro-batch", "2 replicas", "1 rank"]),
    ("strategy.plugin=ddp --ranks 2 train.global_batch=6 train.micro_batch=6", ["1 rank, or set micro_batch = 3"]),
    ("strategy.plugin=ddp --ranks 4 --print-sharding --rank 4", ["--rank 4", "0 to 3"])])
def test_errors(words, facts):
    said = refused("plan run.ini", *words.split(), says=facts)
    assert "did you mean" not in str(said) or "classe" in words


def test_suggestion():
    """The first suggestion above works."""
    weft("plan run.ini strategy.plugin=ddp --ranks 2 train.global_batch=6 train.micro_batch=3")
