"""The scripts for machines with a GPU: tests/gpu/first on the CUDA emulator, with failing and slow steps, and the
archive of tests/gpu/pack in a root directory that holds only a C library."""
import os
import pathlib
import re
import shutil

import pytest
from harness import ANY, BUILD, EMULATOR, FAILS, FULL, SOURCE, read, run, says

STEPS = {1: "load replay-no replay-yes replay-bits two-fp32-cpu two-fp32-gpu two-fp32 profile",
         2: "speed-auto bits-one bits-two bits alone nccl nccl-bits"}
if FULL:
    STEPS[1] += " two-bf16-cpu two-bf16-gpu two-bf16 operators-rows operators-elementwise"
    STEPS[2] += " speed-cudnn speed-long prove golden chess-cpu chess-gpu chess"


def first(part, steps, status=0, **env):
    """Runs these steps of a part. Returns the report."""
    if not (EMULATOR / "weft-device-cuda.so").exists():
        pytest.skip("there is no CUDA emulator")
    shutil.rmtree("out", ignore_errors=True)
    run("sh", SOURCE / "tests/gpu/first", "out", BUILD, part, status=status, timeout=3600,
        env={"WEFT_ONLY": steps, **env})
    return read("out/report.txt")


@pytest.mark.parametrize("part", [1, 2])
def test_part(part):
    report = first(part, STEPS[part])
    for name in STEPS[part].split():
        says(report, f" {name}: passed")
    if part == 1:
        says(report, re.compile("^ .*device  *cuda .* ok "))
        assert read("out/profile.txt")
    else:
        says(report, "tokens/s, MFU of 989 TFLOP/s")
        says(report, " torch: skipped: ")


def test_failing_kernel():
    """The step is reported, and the others run."""
    report = first(1, "load replay-no", status=FAILS, WEFT_EMULATOR_FAIL="kernel:40=700")
    says(report, " load: passed")
    says(report, re.compile(" replay-no: FAILED: exit status [1-9]"))
    says(read("out/failures.txt"), "cudaErrorIllegalAddress")


def test_other_part():
    run("sh", SOURCE / "tests/gpu/first", "out", BUILD, 3, status=2)


def test_archive():
    """Where nothing else is installed, in a mount namespace of its own, each program reports the missing driver."""
    if (not (BUILD / "plugins/weft-device-cuda.so").exists() or pathlib.Path("/proc/driver/nvidia").exists() or
            run("unshare", "-m", "true", status=ANY).status != 0):
        pytest.skip("the archive in an empty root needs the CUDA device, unshare -m, and no driver")
    run("sh", SOURCE / "tests/gpu/pack", BUILD, "card.tgz", timeout=3600)
    for name in "lib64", "tmp", "card", "dev", "proc", "source/tests":
        os.makedirs(f"root/{name}")
    run("tar", "-xzf", "card.tgz", "-C", "root/card")
    shutil.copytree(SOURCE / "tests/golden", "root/source/tests/golden")
    libraries = run("ldconfig", "-p").out
    for name in "libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libutil.so.1".split():
        shutil.copy(re.search(rf"^\s*{re.escape(name)} .* => (\S+)$", libraries, re.M)[1], "root/lib64")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", "root/lib64")

    def inside(*command, status=0):
        return run("env", "-i", f"PATH={os.environ['PATH']}", "WEFT_TEST_DEVICE=cuda", "WEFT_PLUGIN_PATH=/card/plugins",
                   "WEFT_SOURCE=/source", "LD_LIBRARY_PATH=/lib64:/card/lib", "unshare", "-m", "sh", "-c",
                   'mount --bind /proc root/proc && exec chroot root "$@"', "sh", *command, status=status)

    assert "no NVIDIA driver" in inside("/card/weft", "plugins", "list").out
    for program in sorted(pathlib.Path("root/card/programs").iterdir()):
        said = str(inside(f"/card/programs/{program.name}", status=1))
        assert re.search("no NVIDIA driver|== 0. failed", said), program
