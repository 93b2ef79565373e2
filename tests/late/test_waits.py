"""Every wait of a step is necessary. On the late device, which executes only when required, each strategy trains the
bits of the CPU device. If any wait is skipped (of a stream for another, or of the host for the device), it trains other
bits or fails: with everything as late as possible, or with the first stream ahead of or behind the others. The same
holds for captured and replayed steps, where updated inputs must not be frozen at capture. The device finds the call
sites, and whether there was something to wait for (late/sites.c)."""
import pathlib
import shutil

import pytest
from harness import ANY, BUILD, hashes, make_model, make_text, needs, read, records, run, weft, write_ini

CPU = BUILD / "plugins"
LATE = f"{BUILD}/tests/late:{BUILD}/tests/faults:{BUILD}/plugins"
MODES = ["last", "ahead", "behind"]
missed, not_missed = set(), {}  # call sites: those that some program needs, and those that one did not, with a name


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    needs("mpich")
    make_model("model", 32, 8, 56, 4, 512)
    make_text(60)
    write_ini("run.ini", run="out=out", model="plugin=llama path=model start=fresh",
              data="plugin=text path=games.txt document=line context=32", train="steps=3 global_batch=4 micro_batch=1",
              device="threads=1")


def train(words, **variables):
    """The trained weights, and each step's numbers, or None if it fails."""
    shutil.rmtree("out", ignore_errors=True)
    if weft(f"train run.ini {words}", env=variables, status=ANY).status:
        return None
    return hashes("out", "*.safetensors"), [
        (record["loss"], record["grad_norm"]) for record in records("out/metrics.jsonl")]


def callers(number, sites):
    """Callers of a site, by name."""
    line = next(line for line in sites if number in line)
    return " ".join(run("addr2line", "-f", "-e", *at.rsplit("+", 1)).out.splitlines()[0] for at in line.split()[3:])


@pytest.mark.parametrize("kinds, words", [
    ("", ""), ("", "--ranks 2 strategy.plugin=fsdp strategy.prefetch=1"),
    ("", "--ranks 2 strategy.plugin=fsdp strategy.prefetch=1 train.precision=bf16 strategy.reduce_dtype=bf16"),
    ("", "--ranks 2 strategy.plugin=fsdp strategy.shard=optimizer"), ("", "--ranks 2 strategy.plugin=ddp"),
    ("", "--ranks 2 strategy.plugin=mp strategy.schedule=1f1b"),
    # Replayed. Steps have different numbers of targets there. This communicator has its own progress.
    ("recorded-", "data.context=100"),
    ("recorded-", "--ranks 2 data.context=100 strategy.plugin=fsdp strategy.prefetch=1")])
def test_waits(kinds, words):
    late = f"{words} run.replay=yes comm.plugin=own" if kinds else f"{words} run.replay=no comm.plugin=mpi-mpich"
    expected = train(f"{words} comm.plugin=mpi-mpich", WEFT_PLUGIN_PATH=CPU)
    assert expected is not None
    file = pathlib.Path("sites").resolve()
    file.write_text("")

    def equal(mode, **variables):
        return train(late, WEFT_PLUGIN_PATH=LATE, WEFT_LATE_MODE=mode, **variables) == expected

    for mode in MODES:
        assert equal(mode, WEFT_LATE_SITES=file), mode
    sites = read(file).splitlines()
    for site in {tuple(line.split()[:2]) for line in sites if line.startswith(kinds)}:
        if all(equal(mode, WEFT_LATE_DROP=site[1]) for mode in MODES):
            not_missed[site] = f"{site[0]} of {callers(site[1], sites)}"
        else:
            missed.add(site)


def test_each_wait_is_needed_by_some_program():
    """One may not need it, because its condition already holds. The exception times a matmul before the first step,
    whose result is not used. Micro-batches, COUNT and the optimizer's struct are read anew in replayed steps."""
    assert [name for site, name in not_missed.items() if site not in missed and " time_product" not in name] == []
    assert len(missed) >= 10 and len([kind for kind, _ in missed if kind.startswith("recorded-upload")]) >= 3
