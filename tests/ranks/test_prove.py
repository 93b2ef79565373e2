"""`weft prove` on configs/prove.ini, 4 ranks: the number of cells, which are all equal; non-deterministic cells; and
detection of planted errors."""
import re

import pytest
from harness import FAULTS, FULL, SOURCE, full_only, lines, says, weft

pytestmark = pytest.mark.skipif(not (FAULTS / "weft-comm-ring.so").exists(),
                                reason="weft prove on ranks: no MPI was built")
ARCHIVE = SOURCE / "tests/archive/sdk-1.0/weft-strategy-archive.so"


def prove(words, *arguments, status=0):
    return weft("prove", SOURCE / "configs/prove.ini", *words.split(), *arguments, status=status)


def table(said):
    """Returns the rows of the table."""
    return lines(said.out, re.compile("^ +[1-4]  "))


def all_equal(said, cells, steps, reduce="ordered"):
    says(said.out, f"{cells} cells of {steps} steps", f"reduce = {reduce}",
         f"{cells} equal, 0 not covered, 0 different")


def test_four_ranks():
    """Cells on 1, 2, 3 and 4 ranks."""
    steps = 10 if FULL else 2
    said = prove(f"--ranks 4 --steps {steps}")
    all_equal(said, 38, steps)
    assert {row.split()[0] for row in table(said)} == set("1234")


@full_only
@pytest.mark.parametrize("cells, arguments, reduce, facts", [
    (229, "", "ordered", ["skipped: 19 cells"]),
    # With a tree of 8 micro-batches, also those that reduce at the last micro-batch, and in two hops.
    (295, "strategy.reduce=tree train.global_batch=16", "tree", ["fsdp hybrid 2, last"])])
def test_full_grid(cells, arguments, reduce, facts):
    said = prove(f"--ranks 4 --grid full --steps 3 {arguments}")
    all_equal(said, cells, 3, reduce)
    says(said.out, *facts)


def test_one_rank():
    """It needs no launcher. More threads change no bits, another seed does."""
    hashes = []
    for arguments in "", "device.threads=2", "run.seed=6":
        said = prove(f"--ranks 1 --steps 2 {arguments}")
        says(said.out, "8 cells of 2 steps", "8 equal")
        hashes.append(re.search(r" ([0-9a-f]{12}) ", table(said)[0]).group(1))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("arguments, facts", [
    pytest.param("strategy.plugin=ddp strategy.reduce_at=last",
                 [["reduce_at = each, or reduce = tree"], ["not covered [1]"],
                  ["38 cells", "16 equal, 22 not covered, 0 different"]], marks=full_only),
    ("strategy.reduce=fast", [["[1] reduce = fast"], ["38 cells", " 0 equal, 38 not covered, 0 different"]])])
def test_cells_that_are_not_covered(arguments, facts):
    """They are reported with the reason, and are no failure."""
    said = prove(f"--ranks 2 --steps 2 {arguments}")
    for parts in facts:
        says(said.out, *parts)


def test_json():
    found = prove("--ranks 1 --steps 1 --json").json
    assert (found["equal"], found["different"]) == (8, 0)


@pytest.mark.parametrize("ranks, fault, tensor, equal, different", [
    (2, "comm.plugin={}/weft-comm-ring.so", "exp_avg of model.embed_tokens.weight", " mp ", None),
    # Clipping by a local norm affects only strategies that shard gradients.
    pytest.param(4, "comm.plugin={}/weft-comm-local.so", "exp_avg of", " ddp ", " fsdp ", marks=full_only),
    pytest.param(4, "device.plugin={}/weft-device-inside.so", "exp_avg of model.layers.0.mlp", " mp ", " ddp | fsdp ",
                 marks=full_only)])
def test_planted_error(ranks, fault, tensor, equal, different):
    """It is detected, with step and parameter."""
    said = prove(f"--ranks {ranks} --steps 2", fault.format(FAULTS), status=1)
    says(said.out, "DIFFERENT", "step 1", tensor)
    says(said.err, "differ")
    rows = table(said)
    assert any(equal in row and "equal" in row for row in rows)
    if ranks == 4 and equal == " ddp ":
        assert not any(equal in row and "DIFFERENT" in row for row in rows)
    assert different is None or not any(re.search(different, row) and "equal" in row for row in rows)


@full_only
def test_strategy_that_rejects_the_number_of_ranks():
    """It is left out, with the reason; one cell must remain."""
    archive = f"strategy.plugin={ARCHIVE}"
    said = prove("--ranks 3 --steps 2 train.global_batch=8", archive)
    all_equal(said, 42, 2)
    assert any("  archive " in row and "equal" in row for row in table(said) if row.startswith("    2"))
    for parts in ["left out: 8 of "], ["strategy archive on 3 ranks: "], ["4 micro-batches", "3 replicas"]:
        says(said.out, *parts)
    said = prove("--ranks 3 --steps 2 train.global_batch=2", archive, status=1)
    says(said.err, "strategy archive", "16 cells", "2, 3 ranks")


@pytest.mark.parametrize("arguments, status, facts", [
    ("--ranks 1 --steps 2 optimizer.plugin=sgd optimizer.lr=0", 1, ["no parameter"]),
    ("--grid medium", 2, ["--grid small", "--grid full"])])
def test_error(arguments, status, facts):
    says(prove(arguments, status=status).err, *facts)
