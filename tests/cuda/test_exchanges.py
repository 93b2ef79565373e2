"""The communicator nccl on the emulated NCCL and CUDA: the tests of tests/comm, in each of the emulator's modes, with
one GPU per rank; and a rank that dies."""
import pytest
from harness import BUILD, EMULATOR, FULL, run

PARTS = [(1, "exchanges,several,wrong"), (2, "several,pairs,rounding"), (3, "several,pairs,wrong,crossing"),
         (2, "gone")]
if FULL:
    PARTS += [(n, "exchanges,several,pairs,wrong,rounding") for n in (2, 3, 4, 7)]
    PARTS += [(4, "crossing"), (2, "large"), (4, "gone")]


@pytest.mark.parametrize("ranks, cases", PARTS)
@pytest.mark.parametrize("mode", ["last", "any", "soon"] if FULL else ["last", "any"])
def test_exchanges(emulator, mode, ranks, cases):
    """The ranks print nothing. 137 is the status of a killed rank, after which the others free their memory."""
    result = run(BUILD / "tests/ranks", "start", ranks, cases, EMULATOR / "weft-comm-nccl.so",
                 status=137 if cases == "gone" else 0,
                 env={"WEFT_TEST_DEVICE": "cuda", "WEFT_TEST_DEVICE_FILE": EMULATOR / "weft-device-cuda.so",
                      "WEFT_TEST_KEYS": f"workspace=1Mi cache={EMULATOR}/compiled", "WEFT_EMULATOR_DEVICES": 7,
                      "WEFT_EMULATOR_MODE": mode})
    assert "not released" not in str(result) if cases == "gone" else str(result) == ""
