"""Planned memory of low-bit bases: bytes per parameter of LoRA and QLoRA compared to published figures, and the memory
of LLaMA-2-7B on two ranks, from its config.json only."""
import pytest
from harness import BUILD, SOURCE, make_model, make_text, needs, refused, weft, write_ini

QLORA = SOURCE / "configs/qlora.ini"


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_PLUGIN_PATH", f"{BUILD}/plugins")
        make_text(20)
        write_ini("run.ini", run="out=out", model="path=square start=fresh", tokenizer="",
                  data="path=games.txt context=32", train="steps=1 global_batch=2 precision=bf16", eval="every=none",
                  optimizer="plugin=adamw", adapter="plugin=lora", **{"adapter.lora": "r=8"})
        make_model("square", 1024, 256, 1024, 4, 521, num_key_value_heads=4)
        make_model("7b", 4096, 128, 11008, 32, 32000, num_attention_heads=32, num_key_value_heads=32,
                   tie_word_embeddings=False)
        yield


class Plan:
    """A plan's numbers."""

    def __init__(self, words):
        self.json = weft(f"plan run.ini --json {words}").json
        self.trained = self.json["trained"]
        memory = self.json["memory"]
        self.total, self.gradients, self.optimizer = (memory[key] for key in ("total", "gradients", "optimizer"))

    def stored(self, type):
        """Bytes of all parameters in that dtype."""
        return [entry["bytes"] for entry in self.json["layout"]["storage"] if entry["type"] == type][-1]

    def with_states(self, stored, weight):
        """Bytes of a base and of its trained parameters, of `weight` bytes each, with gradients and states."""
        return stored + weight * self.trained + self.gradients + self.optimizer


# Four layers of seven square matrices, 1,024 wide: rank 8 adds 2 * 8 * 1024 numbers to each, one in 64. A trained
# number has a master, a gradient and two AdamW states, 4 bytes each; publications count 2 for the gradient, hence 14.
NUMBERS = 4 * 7 * 1024 * 1024


@pytest.mark.parametrize("base, bytes, factor, total, published", [
    ("bf16", NUMBERS * 2, 1, 2.250, 2.219), ("nf4", NUMBERS // 1024 * 536, 512 / 536, 0.773, 0.719)])  # without scales
def test_bytes_per_parameter(base, bytes, factor, total, published):
    plan = Plan(f"model.base={base} train.global_batch=1")
    assert plan.stored(base) == bytes and plan.trained == NUMBERS // 64
    assert plan.gradients == 4 * plan.trained and plan.optimizer == 8 * plan.trained
    assert round(plan.with_states(bytes, 4) / NUMBERS, 3) == total
    assert round(plan.with_states(bytes * factor, 2) / NUMBERS, 3) == published


def test_nf4_with_unquantized_scales():
    assert Plan("model.base=nf4x64 train.global_batch=1").stored("nf4x64") == NUMBERS // 64 * 36


def test_llama_2_7b_on_two_ranks():
    needs("mpich")
    two = "comm.plugin=mpi-mpich strategy.plugin=fsdp model.path=7b --ranks 2"
    linears = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    qlora, lora = (Plan(f"{two} model.base={base}") for base in ("nf4", "bf16"))
    assert qlora.stored("nf4") == linears // 1024 * 536 and qlora.trained == 19988480
    assert lora.stored("bf16") == linears * 2
    # Half of the difference in storage, except for gathered parts; and 16 bytes per number instead of 2.
    assert lora.total - qlora.total > 0.47 * (linears * 2 - linears // 1024 * 536)
    full = Plan(f"{two} adapter.plugin=none train.trainable=all")
    assert full.total - lora.total > 0.47 * 14 * linears


@pytest.mark.parametrize("base", ["nf4", "nf4x64", "fp8"])
def test_suggestions_next_to_qlora_ini(base):
    weft(f"plan {QLORA} model.base={base}")


def test_type_of_longer_blocks_than_the_rows():
    refused(f"plan {QLORA} model.base=int8",
            says=["[model] base = int8", "'model.layers.0.mlp.down_proj.weight'", "344", "64"])
