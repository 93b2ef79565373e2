"""A model trained with a named template saves it: with the saved files only, transformers produces the trained ids of
conversations and the same answer masks. WEFT_PYTHON: a Python with transformers."""
import os

import pytest
from harness import ANY, SOURCE, run, weft, write, write_ini

PYTHON = os.environ.get("WEFT_PYTHON", "python3")
CONVERSATIONS = SOURCE / "tests/golden/instruct/conversations.jsonl"


@pytest.mark.parametrize("name", ["alpaca", "llama2", "llama3", "chatml", "mistral", "gemma"])
def test_saved_template(name):
    if run(PYTHON, "-c", "import jinja2, transformers", status=ANY).status:
        pytest.skip(f"saved templates against transformers, which {PYTHON} lacks (WEFT_PYTHON names another)")
    write_ini("run.ini", model=f"plugin=llama path={SOURCE}/configs/chess/base", tokenizer="plugin=bpe",
              data=f"plugin=instruct path={CONVERSATIONS} context=512 packing=no special_tokens=yes",
              train="steps=1 global_batch=1 micro_batch=1", optimizer="plugin=adamw", device="plugin=cpu")
    weft(f"train run.ini run.out={name} data.template={name}")
    write("rows", weft(f"data show run.ini -n 99 --tokens data.template={name}").out)
    run(PYTHON, SOURCE / "tests/golden/compare_rows.py", f"{name}/model", CONVERSATIONS, "rows")
