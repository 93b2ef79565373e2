"""A machine without a driver or without a GPU. The CUDA device is listed with that reason, its keys can be listed and
validated, and no rule is reported as broken. A run with it stops with the same message. The emulator imitates such
machines; the test machine is one if it has no driver."""
import pathlib
import re

import pytest
from harness import BUILD, EMULATOR, SOURCE, lines, refused, says, weft, write, write_ini

NO_DRIVER = "no NVIDIA driver"
REAL = BUILD / "plugins"


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    write("text.txt", "1. e4 e5 2. f4 exf4 3. Nf3 g5\n" * 40)
    write_ini("run.ini", run="out=out", model=f"plugin=llama path={SOURCE}/configs/chess/base start=fresh",
              tokenizer="plugin=bpe", data="plugin=text path=text.txt context=16",
              train="steps=1 global_batch=1 micro_batch=1", optimizer="plugin=sgd", device="plugin=cuda tf32=yes")


def is_unusable(text, plugin, reason):
    """The line after that of the plugin has the reason."""
    rows = text.splitlines()
    assert any(re.search(plugin, row) and reason in after for row, after in zip(rows, rows[1:]))


@pytest.mark.parametrize("directory, reason, devices", [
    (EMULATOR, NO_DRIVER, "-1"), (EMULATOR, "no NVIDIA card", "0"), (REAL, NO_DRIVER, None)])
def test_unusable(directory, reason, devices, monkeypatch):
    file = directory / "weft-device-cuda.so"
    if not file.exists() or devices is None and pathlib.Path("/proc/driver/nvidia").exists():
        pytest.skip(f"no CUDA device without a driver: {file}")
    monkeypatch.setenv("WEFT_PLUGIN_PATH", str(directory))
    if devices is not None:
        monkeypatch.setenv("WEFT_EMULATOR_DEVICES", devices)
    said = weft("plugins list").out
    is_unusable(said, rf"^device +cuda +[\d.]* +unusable +{file}$", reason)
    if directory == REAL and (REAL / "weft-comm-nccl.so").exists():
        is_unusable(said, r"^comm +nccl +[\d.]* +unusable ", reason)
    says(weft("plugins describe device:cuda").out, re.compile("^  tf32 +no "))
    weft("config check run.ini")
    said = str(weft("plugins check", file, status=13))
    says(said, re.compile("^  R26 +holds"))
    is_unusable(said, "^  R100 +untried", reason)
    assert not lines(said, re.compile(r"^  R\d+ +(broken|crashes|hangs)"))
    for command in "train", "plan":
        refused(f"{command} run.ini", says=reason)
    assert not pathlib.Path("out/model").exists()
