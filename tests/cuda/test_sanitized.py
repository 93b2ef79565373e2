"""The emulator and its device and communicator under ASan and UBSan: a separate build in the build directory, and the
quick tests of this directory in it."""
import os

import pytest
from harness import BUILD, SANITIZED, SOURCE, run


def test_sanitized(emulator):
    if SANITIZED:
        pytest.skip("this build is under the sanitizers")
    own = BUILD / "sanitized"
    run("cmake", "-S", SOURCE, "-B", own, "-G", "Ninja", "-DWEFT_TESTS=ON", "-DWEFT_SANITIZE=ON",
        "-DWEFT_SANITIZE_EMULATOR=ON", "-DWEFT_CUDA=OFF")
    run("ninja", "-C", own, timeout=7200)
    run("ctest", "--test-dir", own, "--output-on-failure", "-j", os.cpu_count(), "-R", r"^cuda\.", "-LE", "^full$",
        timeout=14400, env={"WEFT_FULL": None, "WEFT_PLUGIN_PATH": None, "WEFT_EMULATOR_DEVICES": None})
