"""`weft train run.ini --ranks N` with a note-only communicator and a minimal launcher, and with each MPI of this build.
Strategy single rejects several ranks: here before any is started, and otherwise in the ranks, which shows that the
launcher started them."""
import os
import pathlib
import re
import shutil

import pytest
from harness import (BUILD, SOURCE, WEFT, build_plugin, checkpoints, launcher, make_run, needs, records, run,
                     same_tensors, says, start, weft, write)

# A device that only the first rank of a machine has: the other one reports an error, and waits for no one.
HALF = """
#include "fault.h"
#include <weft/device.h>
static weft_device_plugin real, table;
static weft_status create(weft_device **out, const weft_host *host, const void *config, int32_t index,
                          weft_error *err) {
    if (index == 1) return weft_error_set(err, WEFT_E_DEVICE, "There is no second one.");
    return real.create(out, host, config, index, err);
}
FAULT_NOTE(device, "half")
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.create = create;
    return fault_list(plugin, "half", &table);
}
"""
# weft train with the arguments after "--" on rank 1, else with those before it
EARLY = """
case ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} in
1) while [ "$1" != -- ]; do shift; done; shift; exec "$weft" train "$@" ;;
esac
other=
for word; do [ "$word" != -- ] || break; other="$other $word"; done
exec "$weft" train $other
"""
SINGLE = "strategy.plugin=single"


@pytest.fixture(scope="module", autouse=True)
def no_world(scratch, plugin_path):
    """The facts of the error of the fake communicator."""
    shutil.copy(SOURCE / "tests/launch/launcher.sh", "launcher")
    file = build_plugin("comm", "mpi-fake", SOURCE / "tests/launch/fake.c", flags=[
        '-DFAKE_ID="mpi-fake"', f'-DFAKE_LAUNCH="{scratch}/launcher -n {{ranks}}"',
        '-DFAKE_LAUNCHED="FAKE_RANK FAKE_SIZE"'])
    make_run("steps = 2\n[strategy]\nplugin = ddp\n")
    return f"comm:mpi-fake ({file}): A fake communicator makes no world."


def train(words="", status=1, lines=None):
    """Returns standard error, which has that number of lines."""
    err = weft(f"train run.ini {words}", status=status).err
    assert lines is None or err.count("\n") == lines, err
    return err


def launched(n, words, status=1, lines=None):
    """Runs weft under the launcher, and returns standard error."""
    err = run("./launcher", "-n", n, WEFT, *words.split(), status=status).err
    assert lines is None or err.count("\n") == lines, err
    return err


# ---- started by weft


def test_ranks_are_started(no_world, plugin_path):
    err = train("--ranks 3", lines=4)
    for rank in 0, 1, 2:
        says(err, f"[{rank}] weft train: {no_world}")
    says(err, re.compile("^weft train: .*3 ranks .*status 1"))
    says(train("--ranks 3 --verbose", lines=5), "[comm] plugin = mpi", "mpi-fake")
    train("--ranks 2 --quiet", lines=3)
    train("--ranks=2 comm.plugin=mpi-fake", lines=3)  # no launcher is selected automatically
    says(train(f"--ranks 2 comm.plugin={plugin_path}/weft-comm-mpi-fake.so"), f"[1] weft train: {no_world}")


@pytest.mark.parametrize("words, file, facts", [
    ("optimizer.lr=fast", None, ["command line: [optimizer] lr = fast"]),
    ("run.seed=1", "config.json", ["/model/config.json"]), ("run.seed=1", "tokenizer.json", ["tokenizer.json"]),
    (SINGLE, None, ["strategy single", "3"]), ("model.start=weights", None, ["/model: "]),
    ("model.start=weights", "model.safetensors", ["/model: ", "/model/config.json"])])
def test_error_common_to_all_ranks(words, file, facts):
    """It is reported once, and no rank is started. The file is missing, or without tensors."""
    path = pathlib.Path(f"model/{file}")
    kept = path.read_bytes() if path.exists() else None
    if file == "model.safetensors":
        path.write_bytes(b"\2\0\0\0\0\0\0\0{}")
    elif file:
        path.unlink()
    says(train(f"run.out=three --ranks 3 {words}", lines=1), "weft train: ", *facts)
    if kept:
        path.write_bytes(kept)
    elif file:
        path.unlink()
    assert not os.path.exists("three")


def test_stopped():
    """The message about continuing fits the command."""
    os.rename("launcher", "kept")
    write("launcher", "#!/bin/sh\nexit 75\n").chmod(0o755)
    says(train("--ranks 2 --quiet", status=75), "weft train: ", "2 ranks", "--resume")
    err = weft("prove run.ini --ranks 2", status=75).err
    says(err, "weft prove: ", "2 ranks")
    says(err, "--resume", count=0)
    os.rename("kept", "launcher")


# ---- started by a launcher


def test_launched_ranks(no_world):
    launched(2, "train run.ini", lines=2)
    err = launched(2, "train run.ini --verbose", lines=3)
    says(err, "[0] weft: [comm] plugin = mpi", "mpi-fake", "FAKE_RANK")
    for rank in 0, 1:
        says(err, f"[{rank}] weft train: {no_world}")
    says(launched(2, "train run.ini --ranks 3"), "[1] weft train: --ranks", "3", "2 (FAKE_SIZE)")
    says(launched(2, "train run.ini --ranks 2 comm.plugin=self"), "self", "2 ranks", "mpi-fake")
    says(launched(2, "eval run.ini"), "[1] weft eval: ", "rank 1 of the 2")
    says(launched(2, "train run.ini run.log_ranks=0,x"),
         "[1] weft train: command line: [run] log_ranks = 0,x", "0, all")
    says(train("--ranks 2 run.log_ranks=2", lines=1),  # reported once, before any rank is started
         "weft train: command line: [run] log_ranks = 2", "0 to 1")


def test_launched_by_srun():
    """Open MPI's ranks see the variables of PMIx and Slurm."""
    needs("openmpi")

    def srun(rank, words):
        return weft(words, status=1, env={"PMIX_RANK": rank, "SLURM_STEP_NUM_TASKS": 2}).err

    err = srun(1, "train run.ini --ranks 3")
    says(err, "[1] weft train: --ranks", "3", "2 (SLURM_STEP_NUM_TASKS)")
    assert err.count("\n") == 1
    says(srun(1, "eval run.ini"), "[1] weft eval: ", "rank 1 of the 2", "(PMIX_RANK)")
    for rank in 0, 1:
        says(srun(rank, "train run.ini run.log_ranks=0,x"),
             f"[{rank}] weft train: command line: [run] log_ranks = 0,x", "0, all")
    says(srun(0, "train run.ini --verbose"), "[0] weft: [comm] plugin = mpi", "mpi-openmpi", "PMIX_RANK")
    says(srun(2, "train run.ini"), "weft train: ", "PMIX_RANK=2", "SLURM_STEP_NUM_TASKS=2")


# ---- one rank, and zero ranks


def test_one_rank():
    train("--ranks 1", status=0)
    launched(1, "train run.ini run.out=two", status=0)
    same_tensors("out/model", "two/model")
    says(train("run.out=three --ranks 2 comm.plugin=self"), "[comm] plugin = self", "--ranks", "2")
    train("run.out=three --ranks 0", status=2)
    says(weft("eval run.ini --ranks 2", status=2).err, "eval", "train", "plan", "--ranks")
    weft("plan run.ini --ranks 1")
    err = weft(f"plan run.ini --ranks 64 {SINGLE}", status=1).err  # without starting processes
    says(err, "weft plan: strategy single", "64")
    assert err.count("\n") == 2  # with the note about a padded vocabulary
    assert not os.path.exists("three")


# ---- with MPI


@pytest.mark.parametrize("mpi", [None, "mpich", "openmpi"])
def test_run_without_a_reader_for_its_output(mpi):
    """The same with one rank and with two."""
    if mpi:
        needs(mpi)
    words = f"--ranks 2 comm.plugin=mpi-{mpi}" if mpi else ""
    full, closed, left, both = (f"{name}-{mpi}" for name in ("full", "closed", "left", "both"))
    with open("/dev/full", "wb") as file:
        says(weft(f"train run.ini run.out={full} {words}", status=1, stdout=file).err, "cannot be written")
    run("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", WEFT, "train", "run.ini", f"run.out={closed}", *words.split(),
        status=1)
    same_tensors(f"{closed}/model", f"{full}/model")
    assert records(f"{closed}/metrics.jsonl")[-1]["step"] == 2
    for out, redirection in (left, ""), (both, "2>&1"):
        reader, writer = os.pipe()
        with os.fdopen(reader) as lines:
            process = start("sh", "-c", f'exec "$@" {redirection}', "sh", WEFT, "train", "run.ini", f"run.out={out}",
                            "train.steps=400", *words.split(), stdout=writer)
            os.close(writer)
            assert any(re.search("step  *[0-9]*/400", line) for line in lines)
        process.wait(75)
        assert checkpoints(out)


@pytest.fixture(params=["mpich", "openmpi"])
def mpi(request):
    needs(request.param)
    return request.param


def test_ranks_of_an_mpi(mpi):
    train(f"--ranks 2 comm.plugin=mpi-{mpi} run.out=of-{mpi}", status=0)
    err = run(*launcher(mpi, 2), WEFT, "train", "run.ini", "run.out=three", SINGLE, status=1).err
    says(err, "[0] weft train: strategy single", "2")  # once for both
    says(err, re.compile(r"^\[1\]"), count=0)


@pytest.mark.parametrize("reason", ["run.ini tokenizer.path=nowhere", "missing.ini", "run.ini optimizer.lr=fast"])
def test_rank_that_fails_early(mpi, reason):
    """It ends the job, before MPI is initialized. MPICH returns the status of the failed rank, or the signal by which
    it ended the other one."""
    out = f"run.out=early-{mpi}"
    result = run(*launcher(mpi, 2), "sh", write("early.sh", EARLY), "run.ini", out, "--", *reason.split(), out,
                 env={"weft": WEFT}, status=[1, 9] if mpi == "mpich" else 1, timeout=120)
    says(result.err, re.compile(r"^(\[1\] )?weft train: "))


def test_device_of_one_rank(mpi, plugin_path):
    file = build_plugin("device", "half", write("half.c", HALF), flags=[
        "-O2", f'-DFAULT_OF="{BUILD}/plugins/weft-device-cpu.so"', f"-I{SOURCE}/tests/ranks"])
    says(train(f"--ranks 2 comm.plugin=mpi-{mpi} run.out=three device.plugin=half"),
         f"[1] weft train: device:half ({file}): There is no second one.")
