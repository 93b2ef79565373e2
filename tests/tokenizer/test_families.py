"""Ids and decoded texts equal those of Hugging Face's tokenizers, for 10,000 random Unicode strings, one tokenizer per
model family, and real ones among the assets. WEFT_PYTHON: a Python with that library."""
import os

import pytest
from harness import ANY, ASSETS, BUILD, SOURCE, run, skip_check

PYTHON = os.environ.get("WEFT_PYTHON", "python3")


def test_ids_and_texts():
    if run(PYTHON, "-c", "import tokenizers", status=ANY).status:
        pytest.skip(f"tokenizers against the library, which {PYTHON} lacks (WEFT_PYTHON names another)")
    also = []
    for directory in ASSETS / "tokenizers/llama2", ASSETS / "tokenizers/gpt2", ASSETS / "stories260k/hf":
        if run(PYTHON, "-c", "import transformers", status=ANY).status:
            skip_check(f"{directory}, without transformers")
        elif (directory / "tokenizer.json").exists():
            also.append(directory)
        else:
            skip_check(f"{directory}, which is not there")
    run(PYTHON, SOURCE / "tests/golden/make_tokenizer_families.py", "--compare", BUILD / "tests/tokenizer_ids",
        "--strings", os.environ.get("WEFT_STRINGS", "10000"), "--also", *also,
        env={"WEFT_PLUGIN_PATH": BUILD / "plugins"})
