"""`weft prove` on a model of each family: its differences from LLaMA (slices of fused weights, post-norms, windows,
caps, biases) change no bit between strategies and rank counts, on the CPU and on the CUDA emulator."""
import pathlib
import re
import shutil

import pytest
from harness import BUILD, FAULTS, FULL, SOURCE, full_only, read, read_json, says, weft, write

pytestmark = pytest.mark.skipif(not (FAULTS / "weft-comm-ring.so").exists(), reason="no MPI was built: no ranks")
FAMILIES = ["phi3"] + (["llama3", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "gemma", "gemma2", "gemma3"]
                       if FULL else [])
TRAINED = "model.embed_tokens.weight, model.layers.0.mlp.*, last:1, model.norm.weight"


def prove(family, *words, **options):
    """The golden model's configuration with the vocabulary of the tokenizer in configs/prove.ini."""
    golden = SOURCE / f"tests/golden/family-{family}/config.json"
    if not pathlib.Path("configs").exists():
        shutil.copytree(SOURCE / "configs", "configs")
    write("configs/prove/config.json", read(golden).replace('"vocab_size": 19', '"vocab_size": 521'))
    said = weft("prove configs/prove.ini", f"model.plugin={read_json(golden)['model_type']}", *words,
                f"train.trainable={TRAINED}", **options)
    says(said.out, " equal, 0 not covered, 0 different")


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    if not FULL:
        return prove(family, "--ranks=2", "--steps=2")
    prove(family, "--ranks=4", "--steps=3")
    prove(family, "--ranks=3", "--steps=2", "train.precision=bf16")


@full_only
@pytest.mark.parametrize("family", FAMILIES)
def test_emulator(family):
    """On the CUDA emulator, where the ranks share the GPU."""
    if not (BUILD / "tests/cuda/weft-device-cuda.so").exists():
        pytest.skip("no CUDA emulator was built")
    shutil.copytree(SOURCE / "configs", "configs", dirs_exist_ok=True)
    pathlib.Path("compiled").mkdir(exist_ok=True)
    write("configs/prove.ini", re.split(r"^\[device", read(SOURCE / "configs/prove.ini"), flags=re.M)[0] +
          "[device]\nplugin = cuda\n[device.cuda]\nshare = yes\nworkspace = 1Mi\n"
          f"cache = {pathlib.Path('compiled').resolve()}\n")
    for words in ["--steps=2"], ["--steps=1", "train.precision=bf16"]:
        prove(family, "--ranks=2", *words, env={"WEFT_PLUGIN_PATH": f"{BUILD}/tests/cuda:{BUILD}/plugins"})
