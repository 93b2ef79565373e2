"""On a device with delayed execution, weft profile attributes time to the right row: a slow kernel counts for its
caller, whether it runs immediately or at the next wait."""
import re

import pytest
from harness import BUILD, make_model, make_text, weft, write_ini


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    make_model("model", 32, 8, 56, 1, 512)
    make_text(40)
    write_ini("run.ini", model="plugin=llama path=model start=fresh", data="path=games.txt document=line context=16",
              train="steps=4 global_batch=2 micro_batch=1", device="threads=1")


@pytest.mark.parametrize("mode, row, kernel, words", [
    *((mode, row, kernel, "") for mode in ("last", "soon") for row, kernel in (
        ("optimizer", "update"), ("norm", "square_sum"), ("reduce", "copy"), ("rope forward", "rope"))),
    ("soon", "reduce", "copy", "strategy.plugin=ddp strategy.reduce_at=last")])
def test_time_of_a_slow_kernel(mode, row, kernel, words):
    """A delayed kernel takes at least its delay, on a machine with any load: 40 ms."""
    out = weft(f"profile run.ini --steps 1 --warmup 1 {words}", env={
        "WEFT_PLUGIN_PATH": f"{BUILD}/tests/late:{BUILD}/plugins", "WEFT_LATE_MODE": mode,
        "WEFT_LATE_SLOW": kernel}).out
    assert float(re.search(f"(?m)^{row} +[^ ]+ +([^ ]+)", out).group(1)) >= 40, out
