"""`weft prove` on configs/prove.ini with various settings: rounded communication, parameters that stay gathered, each
MPI, bf16, a replicated root, unavailable ranks, user-defined maps and pins."""
import hashlib
import os
import shutil

import pytest
from harness import (BUILD, FAULTS, FULL, SOURCE, WEFT, change_json, full_only, launcher, needs, run, says,
                     weft)

pytestmark = pytest.mark.skipif(not (FAULTS / "weft-comm-ring.so").exists(),
                                reason="weft prove on ranks: no MPI was built")
CONFIG = SOURCE / "configs/prove.ini"
FEW = 4 if FULL else 2


def prove(words, *arguments, program=WEFT, config=CONFIG, status=0):
    return run(program, "prove", config, *words.split(), *arguments, status=status)


def all_equal(said, cells=38):
    says(said.out, f"{cells} cells of ", f" {cells} equal, 0 not covered, 0 different")


@pytest.mark.parametrize("ranks, arguments", [
    (FEW, "strategy.reduce_dtype=bf16"),  # rounded also if one rank sums the gradients
    # Gathered parameters are sent rounded, complete ones are copied; a table for lookups is rounded when it is read.
    (FEW, "train.precision=bf16"),
    *[pytest.param(4, arguments, marks=full_only) for arguments in (
        "strategy.plugin=fsdp strategy.reshard_after_forward=no", "comm.plugin=mpi-openmpi")]])
def test_setting(ranks, arguments):
    if "openmpi" in arguments:
        needs("openmpi")
    all_equal(prove(f"--ranks {ranks} --steps 2 {arguments}"))


@full_only
def test_bf16_base(scratch):
    """Its frozen parameters are stored and sent in bf16; its table may not be tied."""
    weft("train", CONFIG, f"run.out={scratch}/narrow", "checkpoint.dtype=bf16", "train.steps=1")
    all_equal(prove("--ranks 3 --steps 2 train.precision=bf16 model.start=weights train.trainable=last:1",
                    f"model.path={scratch}/narrow/model"), 37)
    shutil.copytree(SOURCE / "configs", "configs")
    change_json("configs/prove/config.json", tie_word_embeddings=False)
    all_equal(prove("--ranks 4 --steps 2 train.precision=bf16", config="configs/prove.ini"))


@full_only
def test_replicated_root():
    """It is passed on to the fsdp cells, whose programs then differ. The quick suite has it in ranks.plan."""
    programs = []
    for argument in "strategy.root=replicated", "":
        found = prove(f"--ranks 4 --steps 2 strategy.plugin=fsdp {argument} --json").json
        assert found["different"] == 0 and found["equal"] == 38
        programs.append({cell["program"] for cell in found["cells"]
                         if (cell["strategy"], cell["settings"], cell["policy"]) == ("fsdp", "full", "block")})
    assert programs[0] and programs[1] and not programs[0] & programs[1]


@pytest.mark.parametrize("arguments, facts", [
    ("--steps 1", ["38 cells of 1 step", "38 equal"]),  # the default is 4 ranks
    ("--ranks 1 --steps 1", ["left out: mp, ddp, fsdp: ", "--ranks 4"]),
    ("--steps 1 comm.plugin=self", ["left out: mp, ddp, fsdp: [comm] plugin = self"]),
    ("--ranks 4 --steps 1 train.global_batch=4", ["left out: ddp, fsdp on 3, 4 ranks: 2 micro-batches"])])
def test_cells_and_hints(arguments, facts):
    says(prove(arguments).out, *facts)


@full_only
def test_hint_in_json():
    says(prove("--ranks 4 --steps 1 train.global_batch=4 --json").out, '"ddp, fsdp on 3, 4 ranks: 2 micro-batches')


def test_more_steps_than_the_run_has():
    said = prove("--ranks 1 --steps 9 train.steps=6").out
    says(said, "left out: steps 7 to 9: ", " 6 ")
    says(said, "8 cells of 6 steps")
    says(prove("--ranks 1 --steps 6 train.steps=6").out, "left out: steps", count=0)


def test_build_without_mpi(scratch):
    os.makedirs("lone/plugins")
    shutil.copy(WEFT, "lone/weft")
    shutil.copytree(BUILD / "libexec", "lone/libexec")  # a link would resolve to the build's own plugins
    for file in (BUILD / "plugins").glob("*.so"):
        if "-comm-mpi" not in file.name:
            (scratch / "lone/plugins" / file.name).symlink_to(file)
    says(prove("--steps 1", program="lone/weft").out, "left out: mp, ddp, fsdp: ", "mpi-*")


def test_one_rank_of_a_launcher():
    needs("mpich")
    said = run(*launcher("mpich", 1), WEFT, "prove", CONFIG, "--steps", "1")
    says(said.out, "left out: mp, ddp, fsdp: ", "(PMI_SIZE = 1)")


def test_map_of_the_user():
    """It is tested with a matching number of ranks."""
    said = prove("--ranks 3 --steps 1 strategy.plugin=mp",
                 "strategy.device_map=embed,layers.0 = 0; layers.1-2,head = 1")
    all_equal(said)
    for parts in (["mp naive, own map"], ["left out: ", "device_map on 3 ranks", "for 2"],
                  ["left out: ", "device_map under 1f1b"]):
        says(said.out, *parts)
    assert not [line for line in said.out.splitlines() if line.split()[:1] == ["3"] and "own map" in line]


def pin(kind, id, of=None):
    file = BUILD / f"plugins/weft-{kind}-{of or id}.so"
    return f"{kind}:{id}={hashlib.sha256(file.read_bytes()).hexdigest()}"


def test_pins():
    """A pin applies to the configuration's own plugin, although cells replace it, and not to the replacements."""
    own = ",".join([pin("strategy", "single"), pin("policy", "block"), pin("optimizer", "adamw")])
    says(prove("--ranks 1 --steps 2", f"plugins.pin={own}").out, "8 cells of 2 steps", "8 equal")
    all_equal(prove("--ranks 2 --steps 1 strategy.plugin=fsdp", f"plugins.pin={pin('strategy', 'fsdp')}"))


@pytest.mark.parametrize("id, of", [("block", "size"), ("size", "size")])
def test_pin_of_another_plugin(id, of):
    says(prove("--ranks 1 --steps 2", f"plugins.pin={pin('policy', id, of)}", status=1).err, f"policy:{id}")
