"""Fixtures of the tests in Python, and the report of skipped checks that tests/run.sh counts.

Each test file runs in one temporary directory. A file whose checks were all skipped exits with 77, as ctest expects."""
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

sys.dont_write_bytecode = True
pytest.register_assert_rewrite("harness")
import harness  # noqa: E402  (after the line above)

signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that fixtures clean up


@pytest.fixture(scope="module", autouse=True)
def scratch():
    """The file's temporary directory, which is the working directory of its tests."""
    before = os.getcwd()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-test-")).resolve()
    os.chdir(directory)
    yield directory
    harness.kill_started()
    os.chdir(before)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def _processes():
    """Kills the processes that a test started and left."""
    first = len(harness.started)
    yield
    harness.kill_started(first)


@pytest.fixture(scope="module")
def plugin_path(scratch):
    """WEFT_PLUGIN_PATH is plugins/ of the temporary directory, then the build's plugins, in all tests of the file."""
    (scratch / "plugins").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{scratch}/plugins:{harness.BUILD}/plugins")
        yield scratch / "plugins"


@pytest.fixture(scope="module")
def emulator(scratch):
    """CUDA is the emulator in all tests of the file, with 4 devices. Returns the MonkeyPatch of its variables."""
    if not (harness.EMULATOR / "weft-device-cuda.so").exists():
        pytest.skip("there is no CUDA emulator")
    (harness.EMULATOR / "compiled").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{harness.EMULATOR}:{harness.BUILD}/plugins")
        patch.setenv("WEFT_EMULATOR_DEVICES", "4")
        yield patch


def pytest_terminal_summary(terminalreporter):
    reasons = list(harness.skipped)
    for report in terminalreporter.stats.get("skipped", []):
        reasons.append(report.longrepr[2].replace("Skipped: ", "", 1))
    reasons = [reason for reason in reasons if reason != harness.full_only.kwargs["reason"]]
    terminalreporter.ensure_newline()
    for reason in dict.fromkeys(reasons):
        terminalreporter.write_line(f"skipped: {reason}")


def pytest_sessionfinish(session, exitstatus):
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus == 0 and stats.get("skipped") and not stats.get("passed"):
        session.exitstatus = 77
