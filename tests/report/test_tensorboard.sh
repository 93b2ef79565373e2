#!/bin/sh
# Event files next to the records, read by the real tensorboard package: the same numbers at the same steps,
# also after a resume from a step before the last one. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

# Downloaded once per build directory; an incomplete environment has another name.
venv=$WEFT_BUILD/tensorboard
if [ ! -d "$venv" ]; then
    rm -rf "$venv.new"
    if ! { python3 -m venv "$venv.new" && "$venv.new/bin/python" -m pip install -q --disable-pip-version-check \
        --retries 1 --timeout 60 tensorboard; } >log 2>&1 </dev/null; then
        echo "skipped: the tensorboard package cannot be installed here: $(tail -n 1 log)"
        exit 77
    fi
    mv "$venv.new" "$venv" 2>/dev/null || [ -d "$venv" ]
fi

make_run <<'INI'
steps = 5
schedule = constant
[eval]
every = 2
[checkpoint]
every = 2
INI
train() { # train argument...: output in log
    limit "$weft" train run.ini "$@" >log 2>&1 || failed "train $*" log
}
cat >compare.py <<'PY'
"""Holds what tensorboard reads of out/tensorboard against out/*.jsonl."""
import json, struct, sys
from tensorboard.backend.event_processing import event_accumulator

read = event_accumulator.EventAccumulator("out/tensorboard", size_guidance={event_accumulator.SCALARS: 0})
read.Reload()
FIELDS = {"train/loss": ("metrics", "loss"), "train/learning_rate": ("metrics", "lr"),
          "train/grad_norm": ("metrics", "grad_norm"), "train/epoch": ("metrics", "epoch"),
          "train/tokens_per_second": ("metrics", "tokens_per_second"), "memory/resident": ("metrics", "resident"),
          "eval/loss": ("evaluations", "loss"), "eval/perplexity": ("evaluations", "perplexity")}
single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
tags = sorted(read.Tags()["scalars"])
assert tags == sorted(FIELDS), tags
for tag, (kind, field) in FIELDS.items():
    lines = [json.loads(line) for line in open(f"out/{kind}.jsonl")]
    events = read.Scalars(tag)
    assert [e.step for e in events] == [line["step"] for line in lines], (tag, [e.step for e in events])
    for event, line in zip(events, lines):
        # Values printed with fewer digits are compared with that precision.
        near = abs(event.value - line[field]) <= 1e-5 * abs(line[field]) + 0.06 * (field == "tokens_per_second")
        assert single(line[field]) == event.value or (kind == "metrics" and field in ("epoch", "tokens_per_second") and near), (tag, line, event)
        assert abs(event.wall_time - line["time"]) < 60, (tag, event)
print(len(read.Scalars("train/loss")), "steps")
PY
agrees() { # agrees N: tensorboard and the records agree on N steps
    "$venv/bin/python" compare.py >said 2>&1 || failed "tensorboard reads something else" said
    [ "$(tail -n 1 said)" = "$1 steps" ] || failed "not $1 steps" said
}
train
[ ! -e out/tensorboard ] || failed "event files that nobody asked for"
train --overwrite run.tensorboard=yes
agrees 5
# Killed before step 5 was saved: its events are removed.
rm -r out/checkpoints/step-5 out/model
train --resume run.tensorboard=yes train.steps=8
[ "$(ls out/tensorboard | wc -l)" = 2 ] || failed "a file for each process: $(ls out/tensorboard)"
agrees 8
# The reader detects a changed byte, so the test is meaningful.
cp -r out good
file=$(ls out/tensorboard/* | tail -n 1)
printf 'X' | dd of="$file" bs=1 seek=$(($(wc -c <"$file") - 20)) conv=notrunc 2>/dev/null
if "$venv/bin/python" compare.py >said 2>&1; then failed "a damaged event is read" said; fi
rm -r out && mv good out
train --overwrite
[ ! -e out/tensorboard ] || failed "--overwrite leaves the event files of the run before"
[ "$failures" = 0 ]
