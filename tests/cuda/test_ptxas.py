"""Device code as compiled for GPUs: for every architecture, no kernel spills registers or has its wgmma serialized."""
import re

import pytest
from harness import BUILD, SOURCE, read

LOGS = BUILD / "cuda-objects"


@pytest.mark.parametrize("name", sorted(path.stem for path in (SOURCE / "plugins/device/cuda").glob("*.cu")))
def test_registers(name):
    if not LOGS.exists():
        pytest.skip("no device code was compiled for cards here")
    log = read(LOGS / f"{name}.ptxas")
    for card in ["sm_90a"] if name == "attention_hopper" else ["sm_80", "sm_89", "sm_90"]:
        assert f"' for '{card}'" in log
    assert not re.search("C7512|serialized", log)
    spills = re.findall(r".*spill stores.*", log)
    assert spills and all("0 bytes spill stores, 0 bytes spill loads" in spill for spill in spills)
