#!/bin/sh
# Ids and decoded texts equal those of Hugging Face's tokenizers, for 10,000 random Unicode strings, one tokenizer per model
# family, and real ones among the assets. WEFT_PYTHON: a Python with that library.
set -eu
python=${WEFT_PYTHON:-python3}
if ! "$python" -c 'import tokenizers' 2>/dev/null; then
    echo "skipped: tokenizers against the library, which $python lacks (WEFT_PYTHON names another)"
    exit 77
fi
assets=${WEFT_ASSETS:-$WEFT_SOURCE/../shared/assets}
set --
for directory in "$assets/tokenizers/llama2" "$assets/tokenizers/gpt2" "$assets/stories260k/hf"; do
    if ! "$python" -c 'import transformers' 2>/dev/null; then echo "skipped: $directory, without transformers"
    elif [ -e "$directory/tokenizer.json" ]; then set -- "$@" "$directory"; else echo "skipped: $directory, which is not there"; fi
done
# shellcheck disable=SC2086
WEFT_PLUGIN_PATH=$WEFT_BUILD/plugins "$python" "$WEFT_SOURCE/tests/golden/make_tokenizer_families.py" \
    --compare "$WEFT_BUILD/tests/tokenizer_ids" --strings "${WEFT_STRINGS:-10000}" --also "$@"
