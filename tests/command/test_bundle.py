"""The bundle: one movable folder. Run from another directory, without this machine's library directories, it plans,
trains and lists its plugins. It loads only the C library from outside."""
import os
import pathlib
import re
import shutil

import pytest
from harness import BUILD, SANITIZED, SOURCE, lines, read, run, says, write, write_ini


def test_bundle(scratch, monkeypatch):
    if not shutil.which("objdump") or SANITIZED:
        pytest.skip("a bundle is made with objdump, of a build without sanitizers")
    for name in "LD_LIBRARY_PATH", "WEFT_PLUGIN_PATH":
        monkeypatch.delenv(name, raising=False)
    run("sh", SOURCE / "configs/bundle.sh", BUILD, scratch / "made")
    os.rename("made", "moved here")
    bundled = scratch / "moved here/weft"

    found = run(bundled, "plugins", "list").out
    says(found, re.compile(f"^device  *cpu  *[0-9.]*  *ok  *{scratch}/moved here/plugins/weft-device-cpu.so$"))
    assert all(f"{scratch}/moved here/plugins/" in line for line in lines(found, re.compile(" (ok|unusable|failed) ")))
    says(found, " failed ", count=0)

    write("text.txt", "1. e4 e5 2. f4 exf4 3. Nf3 g5\n" * 40)
    write_ini("run.ini", model=f"plugin=llama path={SOURCE}/configs/chess/base", tokenizer="plugin=bpe",
              data="plugin=text path=text.txt context=16", train="steps=2 global_batch=2 micro_batch=1",
              optimizer="plugin=adamw", device="plugin=cpu", run="out=out")
    run(bundled, "train", "run.ini", env={"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": scratch / "loaded"})
    assert pathlib.Path("out/model/model.safetensors").exists()
    loaded = {name for file in scratch.glob("loaded.*") for name in re.findall("calling init: (.*)", read(file))}
    assert any(name.startswith(f"{scratch}/moved here/") for name in loaded)
    assert [name for name in loaded if not name.startswith(f"{scratch}/moved here/") and not re.search(
        r"/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread)\.so", name)] == []
