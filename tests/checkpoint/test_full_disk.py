"""A disk that becomes full during a save, at each call of the save in turn, loses no data: the run reports the failed
write, the previous checkpoint is unchanged, no partial file remains, and a resume has the same bits. The same for a
record, and for an unreadable one. Then a resume with one failing read call, each in turn and on each rank, stops or has
the bits of an undisturbed run."""
import os
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, FULL, WEFT, hashes, lines, make_model, make_text, needs, read, records, run,
                     same_tensors, says, weft, write, write_ini)

KEPT = {"config.ini", "run.json", "manifest.json"}  # files of a checkpoint that differ between runs


@pytest.fixture(scope="module", autouse=True)
def saved(scratch):
    """The run whole, and the calls of the same run's save and the following ones until the final model is written.
    Returns the number of the call that renames the complete checkpoint."""
    make_model("model", 16, 4, 24, 1, 512)
    make_text(40)
    write_ini("run.ini", model="plugin=llama path=model start=fresh", data="path=games.txt document=line context=32",
              train="steps=4 global_batch=4 micro_batch=2", optimizer="plugin=adamw", device="threads=1",
              checkpoint="every=2")
    with pytest.MonkeyPatch.context() as patch:  # a process cannot be traced two times
        options = os.environ.get("ASAN_OPTIONS")
        patch.setenv("ASAN_OPTIONS", (options + ":" if options else "") + "detect_leaks=0")
        train("whole")
        result = failing("ENOSPC change counted/ step-4 0", "counted", status=[0, 77])
        if result.status == 77:
            pytest.skip(result.out.strip())
        shutil.copy("calls.txt", "saving")
        call, = lines(read("saving"), re.compile(r" rename .*/\.step-4\.tmp$"))
        assert int(call.split()[0]) > 40
        yield int(call.split()[0])


def train(out, *arguments, **options):
    return weft(f"train run.ini run.out={out} --quiet", *arguments, **options)


def failing(calls, out, *arguments, ini="run.ini", **options):
    """A run of which those calls fail (fail_calls.c)."""
    return run(BUILD / "tests/fail_calls", *calls.split(" "), WEFT, "train", ini, f"run.out={out}", "--quiet",
               *arguments, **options)


def called(number):
    return read("calls.txt").splitlines()[number - 1]


def test_disk_that_becomes_full(saved):
    """The quick suite uses the first call of each kind and the rename, the full one all calls."""
    chosen, kinds = [], set()
    for line in read("saving").splitlines()[:saved + 1]:
        number, kind = line.split()[:2]
        if FULL or kind not in kinds or int(number) == saved:
            chosen.append(int(number))
        kinds.add(kind)
    assert len(chosen) > 5
    for number in chosen:
        shutil.rmtree("full", ignore_errors=True)
        result = failing(f"ENOSPC change full/ step-4 {number}", "full", status=1)
        says(result, "full/checkpoints/step-4 ", "full/", "No space left on device")
        # After the rename the checkpoint is complete, also if later calls fail.
        assert sorted(os.listdir("full/checkpoints")) == ["step-2", "step-4"][:1 + (number > saved)], called(number)
        unchanged, now = (hashes(f"{out}/checkpoints/step-2") for out in ("whole", "full"))
        assert unchanged.keys() == now.keys()
        assert {pathlib.Path(file).name for file in now if now[file] != unchanged[file]} <= KEPT
        train("full", "--resume")
        same_tensors("whole/model", "full/model")
        steps = [[(record["step"], record["loss"], record["lr"], record["grad_norm"], record["tokens"])
                  for record in records(f"{out}/metrics.jsonl")] for out in ("whole", "full")]
        assert steps[0] == steps[1]


def test_next_save_removes_files_of_an_interrupted_one():
    train("cut", "train.steps=2")
    write("cut/checkpoints/.step-4.tmp/model.safetensors", "half")
    os.mkdir("cut/checkpoints/.step-9.tmp")
    train("cut", "--resume")
    assert sorted(os.listdir("cut/checkpoints")) == ["step-2", "step-4"]
    same_tensors("whole/model", "cut/model")


def test_record_that_cannot_be_written():
    """The training state is saved if possible."""
    result = failing("ENOSPC change record/metrics.jsonl metrics 5", "record", status=1)
    says(result, "record/metrics.jsonl", "No space left on device", "step 3", "--resume")
    assert os.path.exists("record/checkpoints/step-3/manifest.json")
    train("record", "--resume")
    same_tensors("whole/model", "record/model")


def test_unreadable_record_is_not_treated_as_short():
    before = read("whole/metrics.jsonl")
    result = failing("EIO read whole/metrics.jsonl metrics 1", "whole", "train.steps=6", "--resume", status=1)
    says(result, "whole/metrics.jsonl", "Input/output error")
    assert read("whole/metrics.jsonl") == before


def numbers():
    """Of the newest checkpoint and the model of the resumed run."""
    return {part: hashes(f"grid/cut/{part}", "*.safetensors") for part in ("model", "checkpoints/step-4")}


def resume(call, *arguments, status=0, **options):
    """From step 2, with a failing call."""
    shutil.rmtree("grid/cut", ignore_errors=True)
    shutil.copytree("grid/two", "grid/cut", symlinks=True)
    at = pathlib.Path("grid").resolve()
    return failing(f"EIO read {at}/  {call}", f"{at}/cut", "--resume", *arguments, ini="grid/run.ini", status=status,
                   **options)


@pytest.fixture(scope="module")
def right(saved):
    """The numbers of an undisturbed resume, whose calls are in the file calls.txt."""
    os.mkdir("grid")
    shutil.copytree("model", "grid/model")
    for file in "games.txt", "run.ini":
        shutil.copy(file, "grid")
    train("grid/two", "train.steps=2")
    resume(0)
    found = numbers()
    assert hashes("whole/checkpoints/step-2")["model.safetensors"] not in found["model"].values()
    return found


def each(right, kinds, *arguments, **options):
    """A resume with each call of the kinds failing; the quick suite uses the first of each in each directory."""
    chosen = {}
    for line in read("calls.txt").splitlines():
        number, kind, path = line.split(maxsplit=2)
        if FULL or kind in kinds:
            chosen.setdefault(number if FULL else (kind, os.path.dirname(path)), line)
    assert chosen
    for line in chosen.values():
        result = resume(f"={line.split()[0]}", *arguments, status=[0, 1, 2], **options)
        if result.status == 0:
            assert numbers() == right, line
        else:
            says(result, "--overwrite", count=0)


def test_resume_with_a_failing_call(right):
    """It reads, lists or examines a file of the run, its model or its data."""
    resume(0)
    each(right, ["access", "getdents64"])


@pytest.mark.parametrize("rank", [0, 1] if FULL else [1])  # rank 0 makes the calls of a single-rank run, too
def test_resume_with_a_failing_call_of_a_rank(right, rank):
    needs("mpich")
    words, options = "--ranks 2 comm.plugin=mpi-mpich strategy.plugin=ddp".split(), {"env": {"FAIL_RANK": rank}}
    resume(0, *words, **options)
    assert numbers() == right
    assert rank == 0 or lines(read("calls.txt"), " pread64 ", "/state/exp_avg.safetensors")
    each(right, ["access"], *words, **options)
