#!/bin/sh
# Output of a run on a terminal: one updated line with a bar that fits the width, also on several ranks;
# colours if supported; and plain lines if the output is not a terminal. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
unset COLUMNS NO_COLOR LC_ALL LC_CTYPE LANG
export TERM=xterm

make_run <<'INI'
steps = 60
global_batch = 1
[eval]
every = 30
[device]
threads = 1
INI
sed -i '/^global_batch = 12/d; s/^context .*/context = 8/' run.ini
if ! command -v script >/dev/null; then
    echo "skipped: no terminal to be measured without script"
    exit 77
fi
on_terminal() { # on_terminal COLUMNS ARGUMENT...: a run on a terminal of that width; its output is in screen
    columns=$1
    shift
    limit script -qec "stty cols $columns; $weft train run.ini --overwrite $*" /dev/null </dev/null >screen 2>&1 ||
        failed "a run on $columns columns" screen
    # The visible text at each update of the line: without colours, one character per column.
    tr '\r' '\n' <screen | LC_ALL=C sed 's/\x1b\[[0-9;]*m//g; s/\x1b\[K//g; s/[\x80-\xbf]//g; s/[\xc0-\xff]/#/g' >seen
}
renews() { # renews COLUMNS: every state of the line is complete and fits
    grep -aE '^ *(step )? *[0-9,]+(/[0-9,]+|%) +[=.#]+ ' seen >states || true
    [ "$(wc -l <states)" -ge 2 ] || failed "the line is not renewed on $1 columns" screen
    [ "$(awk 'length > most { most = length } END { print most }' states)" -lt "$1" ] || failed "wider than $1 columns" states
    ! grep -avE ' (loss )?[0-9.]+ +[0-9,.]+[kM]?( tok)?/s ' states || failed "loss or speed is missing on $1 columns" states
    ! sed '$d' states | grep -avE '([0-9]+(s|m[0-9]+s|h[0-9]+m)|[0-9.]+ (ms|s|min [0-9]+ s) left) *$' || failed "time left is missing on $1 columns" states
}
grows() { # the bar is empty at the start, full at the end, and of constant length
    [ "$(sed -E 's/^[^=.#]*%? *//; s/^[^=.#]*//; s/ .*//' states | awk '{ print length }' | sort -u | wc -l)" = 1 ] || failed "the bar changes its length" states
    head -n 1 states | grep -qE ' \.+ | #+ ' || failed "the bar at the beginning" states
    tail -n 1 states | grep -qE '^(step )?(60/60|100%) +(=+|#+) ' || failed "the bar at the end" states
}

for columns in 24 40 60 100; do
    on_terminal $columns
    if [ $columns = 24 ]; then # too narrow for everything, but the line fits
        [ "$(grep -aE '^ *[0-9]+%' seen | awk 'length > most { most = length } END { print most }')" -lt 24 ] || failed "wider than 24 columns" seen
        continue
    fi
    renews $columns
    grows
done
grep -qE '^step 60/60 +=+ +loss [0-9.]+ +[0-9,]+ tok/s *$' states || failed "words where there is room" states
# An evaluation, too; its result replaces the line.
limit script -qec "stty cols 40; $weft eval run.ini" /dev/null </dev/null >screen 2>&1 || failed "eval" screen
tr '\r' '\n' <screen | LC_ALL=C sed 's/\x1b\[[0-9;]*m//g; s/\x1b\[K//g' >seen
grep -aE '^ *[0-9]+/[0-9]+ +[=.]+ [0-9.]+ +[0-9.]+k?/s +[0-9]+s *$' seen >states || failed "eval shows how far it is" screen
[ "$(awk 'length > most { most = length } END { print most }' states)" -lt 40 ] || failed "eval is wider than 40 columns" states
[ "$(grep -c '^loss  ' seen)" = 1 ] || failed "the result is told once" screen
limit script -qec "stty cols 40; $weft eval run.ini --json" /dev/null </dev/null >screen 2>&1 || failed "eval --json" screen
! grep -q '===' screen && ! grep -q '[.][.][.]' screen || failed "an object alone" screen
# COLUMNS has priority over the terminal's width.
export COLUMNS=40
on_terminal 132
renews 40
unset COLUMNS

# ---- characters and colours
signs() { # signs BYTES COLOURS: whether the output contains UTF-8 characters and colours
    utf8=no colours=no
    ! grep -aq "$(printf '\342\224\201')" screen || utf8=yes
    ! grep -aq "$(printf '\033\\[3')" screen || colours=yes
    [ "$utf8 $colours" = "$1 $2" ] || failed "UTF-8 $utf8 and colours $colours, not $1 and $2" screen
}
on_terminal 80
signs no yes
export LC_ALL=C.UTF-8 NO_COLOR=1
on_terminal 60
signs yes no
renews 60
unset NO_COLOR
on_terminal 60
signs yes yes
TERM=dumb on_terminal 60
signs no no
! grep -aq "$(printf '\033')" screen || failed "a dumb terminal is sent controls" screen
grep -aqE '^step 60/60  loss .* tok/s' seen || failed "plain lines on a dumb terminal" screen
export TERM=xterm

# ---- before the first loss, and after the last: each fact once
header() { # header FILE: the lines before the first loss
    sed '/^eval/,$d; /^step/,$d; /^weft: /d' "$1" | sed 's/^\[0\] //' >header # without notes
}
"$weft" train run.ini --overwrite train.steps=3 >plain 2>&1 || failed "a run into a file" plain
! LC_ALL=C grep -q "$(printf '[\r\033]')" plain || failed "controls in a file" plain
header plain
[ "$(sed 's/ .*//' header | tr '\n' ' ')" = "model data batch method lr device memory fits " ] || failed "another header" header
[ "$(cut -c12- header | sed 's/\([0-9]\),\([0-9]\)/\1\2/g' | tr ',;=' '\n\n\n' | sed 's/^ *//; s/ *$//' | sort | uniq -d | wc -l)" = 0 ] || failed "a fact twice" header
"$weft" train run.ini --overwrite train.steps=3 --verbose >loud 2>&1 || failed "a verbose run" loud
header loud
[ "$(sed 's/ .*//' header | tr '\n' ' ')" = "run lr model wrapping data batch world sums device memory fits " ] || failed "another verbose header" header
status=0
"$weft" train run.ini --overwrite --verbose --quiet >log 2>&1 || status=$?
[ "$status" = 2 ] && grep -q "quiet and --verbose exclude each other" log || failed "both words end with $status" log

# ---- several ranks: rank 0 writes to the terminal itself
for mpi in mpich openmpi; do
    has $mpi || continue
    [ $mpi = mpich ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for columns in 40; do
        on_terminal $columns --ranks 2 strategy.plugin=ddp comm.plugin=mpi-$mpi train.global_batch=2
        grep -aE '^ *(step )? *[0-9,]+(/[0-9,]+|%) +#+ ' seen >states || true
        [ "$(wc -l <states)" -ge 2 ] || failed "the line of two ranks of $mpi is not renewed" screen
        [ "$(awk 'length > most { most = length } END { print most }' states)" -lt $columns ] || failed "wider than $columns columns on two ranks" states
        ! grep -aq '^\[1\]' seen || failed "rank 1 speaks" screen
    done
    limit "$weft" train run.ini --overwrite --ranks 2 strategy.plugin=ddp comm.plugin=mpi-$mpi train.global_batch=2 train.steps=3 >plain 2>&1 ||
        failed "two ranks into a file" plain
    ! LC_ALL=C grep -q "$(printf '[\r\033]')" plain || failed "controls in a file of two ranks" plain
    grep -q '^\[0\] step 3/3 ' plain || failed "plain lines of two ranks" plain
done
[ "$failures" = 0 ]
