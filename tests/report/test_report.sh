#!/bin/sh
# weft report: its output agrees with the records of runs; damaged files have a message. ctest sets WEFT_BUILD
# and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
unset COLUMNS

make_run <<'INI'
steps = 6
[eval]
every = 2
[checkpoint]
every = 2
keep  = 1
[optimizer]
lr = 1e-2
INI
train() { # train OUT argument...
    out=$1
    shift
    limit "$weft" train run.ini run.out="$out" "$@" >log 2>&1 || failed "train $out $*" log
}
shows() { # shows FILE TEXT...: the file contains each text
    file=$1
    shift
    for text; do grep -qF -- "$text" "$file" || failed "$file does not show $text" "$file"; done
}
page() { # page FILE: it is self-contained, and its elements are closed
    [ -s "$1" ] || { failed "no page $1"; return; }
    if grep -Eq '<script|<link|<img|src=|href=|url\(|@import|https?:' "$1"; then failed "$1 wants something else"; fi
    if command -v python3 >/dev/null; then
        python3 - "$1" >said 2>&1 <<'PY' || failed "$1 is no HTML" said
import sys
from html.parser import HTMLParser
VOID = {"meta", "br"}
class Judge(HTMLParser):
    open = []
    def handle_starttag(self, tag, attrs):
        if tag not in VOID: self.open.append(tag)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open, self.getpos())
        self.open.pop()
judge = Judge()
judge.feed(open(sys.argv[1], encoding="utf-8").read())
judge.close()
assert not judge.open, judge.open
PY
    else echo "skipped: the elements of a page are not held against each other without python3"; fi
}
field() { # field FILE ROW NAME: of a CSV with a header; cells here contain no commas
    awk -F, -v row="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } NR == row + 1 { print $at }' "$1"
}
near() { # near A B: equal within the digits of a record
    awk "BEGIN { d = $1 - $2; if (d < 0) d = -d; exit !(d <= 2e-3 * (1 + ($1 < 0 ? -$1 : $1))) }" || failed "$1 is not $2"
}
record() { # record RUN FILE NAME: value in the last line
    sed -n "\$s/.*\"$3\": \([^,}]*\).*/\1/p" "$1/$2"
}

# ---- one run
train one
prints "$weft" report one
shows printed "page  one/report.html" "learning rate" "evaluation loss"
! grep -q 'factor\|speed-up' printed || failed "a run alone is compared" printed
page one/report.html
line=$(grep -n '^lr ' run.ini | cut -d: -f1)
shows one/report.html "finished after 6 steps" "<code>optimizer.lr</code>" "run.ini:$line" "command line" "keys at their defaults" \
    "evaluation loss $(printf %.4f "$(record one evaluations.jsonl loss)")" "checkpoint" "no longer kept" "result saved in" "began at step 0" \
    "prefers-color-scheme:dark"
[ "$(grep -c '<path class="line' one/report.html)" = 5 ] || failed "not five lines" one/report.html
[ "$(grep -c '<circle class="dot' one/report.html)" = 4 ] || failed "not four evaluations" one/report.html

# ---- numbers, against the records
prints "$weft" report one --csv
cp printed one.csv
[ ! -e report.html ] || failed "--csv writes a page"
near "$(field one.csv 1 seconds)" "$(record one checkpoints.jsonl seconds)"
sum=0
for part in compute communication evaluation checkpoint start; do sum="$sum + $(field one.csv 1 ${part}_seconds)"; done
near "$(field one.csv 1 seconds)" "($sum)"
near "$(field one.csv 1 compute_seconds)" "($(sed 's/.*"phases": {\(.*\)}, "sec.*/\1/; s/"[a-z]*": //g; s/, /+/g' one/metrics.jsonl | paste -sd+))"
near "$(field one.csv 1 evaluation_seconds)" "($(sed 's/.*"took": \([^,]*\),.*/\1/' one/evaluations.jsonl | paste -sd+))"
near "$(field one.csv 1 checkpoint_seconds)" "($(sed 's/.*"took": \([^,]*\),.*/\1/' one/checkpoints.jsonl | paste -sd+))"
near "$(field one.csv 1 loss)" "$(record one metrics.jsonl loss)"
near "$(field one.csv 1 eval_loss)" "$(record one evaluations.jsonl loss)"
near "$(field one.csv 1 resident_bytes)" "$(record one phases.jsonl resident_peak | tr -d ']')"
for pair in steps=6 ranks=1 global_batch=12 micro_batch=1 micro_batches=12 replicas=1 lr=0.01 strategy=single precision=fp32 \
    "planned_bytes=$(sed -n 's/.*"planned": \[{"first": 0, "last": 0, "total": \([0-9]*\).*/\1/p' one/starts.jsonl)"; do
    [ "$(field one.csv 1 "${pair%%=*}")" = "${pair#*=}" ] || failed "not $pair" one.csv
done

# ---- comparison of runs
train 'two&<b>' optimizer.lr=0.02 train.activation_checkpointing=yes
prints "$weft" report one 'two&<b>' --html both.html
shows printed "what differs in their configurations" "page  both.html" "12 = 1 x 12 x 1" "speed-up"
grep -Eqx 'optimizer\.lr +0\.01 +0\.02' printed || failed "the learning rates" printed
grep -Eqx 'train\.activation_checkpointing +no +yes' printed || failed "checkpointing" printed
sed '1,/^what differs/d; /^$/,$d' printed >differences
[ "$(wc -l <differences)" = 3 ] || failed "a head and two keys differ" differences
page both.html
shows both.html 'two&amp;&lt;b&gt;' "2 runs side by side" "optimizer.lr"
! grep -qF 'two&<b>' both.html || failed "a name that is written as it is" both.html
prints "$weft" report one 'two&<b>' --markdown
shows printed 'two&\<b>' '| optimizer.lr | 0.01 | 0.02 |'
[ "$(grep -c '^|---|' printed)" = 2 ] || failed "two tables" printed
prints "$weft" report one 'two&<b>' one --csv
cp printed three.csv
[ "$(wc -l <three.csv)" = 4 ] || failed "a line per run" three.csv
near "$(field three.csv 2 speedup)" "$(field three.csv 1 seconds) / $(field three.csv 2 seconds)"
near "$(field three.csv 2 memory_factor)" "$(field three.csv 2 planned_bytes) / $(field three.csv 1 planned_bytes)"
near "$(field three.csv 3 speedup)" 1
# A name is text in a spreadsheet, and cannot control a terminal.
escape=$(printf 'a\033[31mred\302\23331m\nline')
cp -r one "$escape"
cp -r one '=1+1'
prints "$weft" report '=1+1' "$escape" --csv
[ "$(sed 1d printed | cut -d, -f1)" = "$(printf '"'"'"'=1+1"\na [31mred  31m line')" ] || failed "a formula or a sequence in the CSV" printed
for form in --markdown ""; do
    printf '{"step": "x\033[31m"\n' >"$escape/metrics.jsonl"
    # shellcheck disable=SC2086
    "$weft" report one "$escape" $form >printed 2>printed.err || true
    ! grep -q "$(printf '\033')" printed printed.err || failed "a sequence of a name reaches the terminal" printed printed.err
    grep -q "red" printed.err || failed "the run with a sequence in its name is not reported" printed printed.err
done
rm -r "$escape" '=1+1'
prints "$weft" report one one
shows printed "differ only in the output directories"
[ ! -e report.html ] || failed "a page that nobody asked for"

# ---- terminal: no line is too wide; supported characters and colours
narrow() { # narrow COLUMNS FILE: output of report on a terminal of that width
    if command -v script >/dev/null; then
        limit script -qec "stty cols $1; $weft report one 'two&<b>'" /dev/null </dev/null >"$2" 2>&1 || failed "on a terminal" "$2"
        tr -d '\r' <"$2" >plain.txt
        [ "$(awk 'length > most { most = length } END { print most }' plain.txt)" -le "$1" ] || failed "wider than $1 columns" plain.txt
        shows plain.txt speed-up optimizer.lr
    else echo "skipped: no terminal to be narrow without script"; fi
}
export LC_ALL=C
for columns in 40 64 200; do narrow $columns narrow.txt; done
prints "$weft" report one
! LC_ALL=C grep -q '[^ -~]' printed || failed "a locale without UTF-8 gets signs of it" printed
LC_ALL=C.UTF-8 "$weft" report one >printed
shows printed "$(printf '\342\226\210')" # a full block
unset LC_ALL

# ---- damaged, incomplete and missing files
told() { # told TEXT ARGUMENT...: report succeeds, prints the text, and writes a page
    text=$1
    shift
    rm -f "$1/report.html"
    prints "$weft" report "$@"
    grep -qF -- "$text" printed.err || failed "no word of: $text" printed.err
    page "$1/report.html"
}
cp -r one bad
printf '{"step": 7, "loss": 2.0, "lr"' >>bad/metrics.jsonl
told "bad: metrics.jsonl: its last line is not finished and is left out" bad
sed -i '3s/.*/{"step": /; 4s/.*/\x00\x01\xff/' bad/metrics.jsonl
told "bad: metrics.jsonl: 2 lines are no complete records and are skipped; the first is line 3" bad
rm bad/starts.jsonl
told "bad: starts.jsonl is not there: configuration, plan and ranks are not known" bad
rm bad/phases.jsonl && mkdir bad/phases.jsonl
told "bad: phases.jsonl is no file, and is left out" bad
: >bad/metrics.jsonl
rm -r bad/phases.jsonl
refused "bad contains no run: " "$weft" report bad
refused "nowhere: No such file or directory. Allowed: the directory of a run" "$weft" report one nowhere
refused "run.ini is a file. Allowed: the directory of a run" "$weft" report run.ini
# Records in the format of an earlier version.
mkdir old && echo '{"step": 1, "loss": 2.5, "lr": 0, "grad_norm": 0.6, "tokens": 99}' >old/metrics.jsonl
told "old: starts.jsonl is not there" old
# A run that has just started, one that is active, and other values instead of numbers.
cp -r one begun && rm begun/[mepc]*.jsonl
told "begun: no step was recorded yet" begun
cp -r one under && sed -i '5,$d' under/metrics.jsonl && sed -i '$d' under/checkpoints.jsonl
prints "$weft" report under
shows under/report.html "step 4 of 6: running, or stopped"
cp -r one odd
sed -i 's/"loss": [^,]*/"loss": "high"/; s/"phases": {[^}]*}/"phases": [1]/' odd/metrics.jsonl
sed -i 's/"ranks": \[/"ranks": [7, {}, /' odd/phases.jsonl
sed -i 's/"planned": \[/"planned": [null, 3, /; s/"config": \[/"config": [5, {"key": 1}, /' odd/starts.jsonl
prints "$weft" report odd
page odd/report.html
# Random changed bytes: it may fail with a message, but never otherwise.
changed=40
! is_full || changed=400
for i in $(seq $changed); do
    rm -rf torn && cp -r one torn
    for file in starts metrics evaluations checkpoints phases; do
        at=$(awk -v s="$i$file" -v n="$(wc -c <torn/$file.jsonl)" 'BEGIN { h = 7; for (k = 1; k <= length(s); k++) h = (h * 31 + index("abcdefghijklmnopqrstuvwxyz0123456789", substr(s, k, 1))) % 1000003; print h % n }')
        printf '%b' "\\0$((i % 8))$((at % 8))$((i * at % 8))" | dd of=torn/$file.jsonl bs=1 seek="$at" conv=notrunc 2>/dev/null
    done
    status=0
    "$weft" report torn >log 2>&1 || status=$?
    [ "$status" -le 1 ] || failed "bytes changed, draw $i: exit status $status" log
done
# An unwritable page.
refused "nowhere/page.html" "$weft" report one --html nowhere/page.html
status=0
"$weft" report one --csv --markdown >log 2>&1 || status=$?
[ "$status" = 2 ] || failed "two forms at once end with $status" log

# ---- several ranks
if has mpich; then
    train ranks --ranks 2 strategy.plugin=ddp comm.plugin=mpi-mpich
    prints "$weft" report one ranks
    grep -Eq '^ranks +1 +2$' printed || failed "how many ranks" printed
    grep -Eq '^effective batch +12 = 1 x 12 x 1 +12 = 1 x 6 x 2$' printed || failed "batches" printed
    prints "$weft" report ranks
    shows ranks/report.html '<span>rank 0</span>' '<span>rank 1</span>' "exchange" "ddp on 2 ranks"
    page ranks/report.html
fi
[ "$failures" = 0 ]
