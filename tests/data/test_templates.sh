#!/bin/sh
# A model trained with a named template saves it: with the saved files only, transformers produces the trained ids of
# conversations and the same answer masks. WEFT_PYTHON: a Python with transformers.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
python=${WEFT_PYTHON:-python3}
if ! "$python" -c 'import jinja2, transformers' 2>/dev/null; then
    echo "skipped: saved templates against transformers, which $python lacks (WEFT_PYTHON names another)"
    exit 77
fi
conversations=$WEFT_SOURCE/tests/golden/instruct/conversations.jsonl
cat >run.ini <<INI
[model]
plugin = llama
path   = $WEFT_SOURCE/configs/chess/base
[tokenizer]
plugin = bpe
[data]
plugin         = instruct
path           = $conversations
context        = 512
packing        = no
special_tokens = yes
[train]
steps        = 1
global_batch = 1
micro_batch  = 1
[optimizer]
plugin = adamw
[device]
plugin = cpu
INI
for name in alpaca llama2 llama3 chatml mistral gemma; do
    prints "$weft" train run.ini run.out=$name data.template=$name
    prints "$weft" data show run.ini -n 99 --tokens data.template=$name
    cp printed rows
    prints "$python" "$WEFT_SOURCE/tests/golden/compare_rows.py" $name/model "$conversations" rows
done
[ "$failures" = 0 ]
