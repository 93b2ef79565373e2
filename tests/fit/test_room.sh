#!/bin/sh
# Memory checks: messages, effects of the suggested changes, no start of a run that cannot fit, and weights
# that plan and train both reject. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

told() { # told TEXT: the last command printed it
    cat printed printed.err | grep -qF -- "$1" || failed "not told: $1" printed printed.err
}
total() { # total FLAG...: planned bytes if memory is checked
    prints "$weft" plan run.ini --json "$@"
    sed -n '/"fit": {/,/}/s/.*"planned": \([0-9]*\).*/\1/p' printed | head -n 1
}
changes() { # changes FLAG...: the plan's suggestions with these flags, one per line: BYTES, and the arguments
    prints "$weft" plan run.ini --json "$@"
    awk '/"changes": \[/ { on = 1 }
         !on { next }
         /"set": \[/ { words = ""; inside = 1; next }
         inside && /\]/ { inside = 0; next }
         inside { gsub(/[ ",]/, ""); words = words " " $0 }
         /"ranks":/ { gsub(/[^0-9]/, ""); words = words " --ranks " $0 }
         /"nodes":/ { gsub(/[^0-9]/, ""); words = words " --nodes " $0 }
         /"planned":/ { gsub(/[^0-9]/, ""); print $0 words }' printed
}
holds() { # holds ROOM FLAG...: each suggested change, applied after these flags, has the stated plan and fits
    room=$1
    shift
    changes "$@" --fit "${room}B" >changes.txt
    [ -s changes.txt ] || failed "nothing would fit in $room with $*" printed
    while read -r bytes words; do
        [ "$bytes" -le "$room" ] || failed "$words with $bytes is said to fit in $room" changes.txt
        before=$*
        without_ranks=$(echo " $before " | sed 's/ --ranks [0-9]*//; s/ --nodes [0-9]*//')
        # shellcheck disable=SC2086
        now=$(total --fit "${room}B" $without_ranks $words)
        [ "$now" = "$bytes" ] || failed "$words plans $now and not $bytes" changes.txt
    done <changes.txt
}

make_model model 32 8 56 4 512
make_text 80
cat >run.ini <<'INI'
[run]
out = out
[model]
plugin = llama
path   = model
start  = fresh
[data]
path     = games.txt
document = line
context  = 64
[train]
steps        = 2
global_batch = 16
micro_batch  = 8
[device]
threads = 1
INI

# ---- it fits: one line, the same for two plans, independent of the machine's load
prints "$weft" plan run.ini
told "fits        this "
told "; largest: "
planned=$(total)
prints "$weft" plan run.ini --fit "${planned}B"
told "fits        a device's"
prints "$weft" plan run.ini --fit "$((planned - 1))B"
told "does not fit a device's"

# ---- memory of the data plugin is counted, in its own category and in the total
data_bytes() { # data_bytes FLAG...: bytes planned for the data
    prints "$weft" plan run.ini --json "$@"
    sed -n 's/.*"data": \([0-9]*\).*/\1/p' printed | head -n 1
}
for i in 1 2 3 4 5 6 7 8; do cat games.txt; done >eight.txt
one=$(data_bytes)
held=$one
eight=$(data_bytes data.path=eight.txt)
# A token takes two bytes, plus overhead per document and window.
[ "$one" -gt $(($(wc -c <games.txt) / 2)) ] && [ "$eight" -gt $((7 * one)) ] && [ "$eight" -lt $((9 * one)) ] ||
    failed "80 documents take $one bytes and 640 take $eight" printed
[ $(($(total data.path=eight.txt) - planned)) = $((eight - one)) ] || failed "what the data take is not in the total" printed

# ---- preparation of large data is planned, and it takes no more than that and what a small file takes
cat >peak.c <<'C'
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **words) {
    struct rusage used;
    int status = 0;
    const pid_t child = n > 1 ? fork() : -1;
    if (child == 0) return execvp(words[1], words + 1), 127;
    if (child < 0 || wait4(child, &status, 0, &used) != child || status != 0) return 1;
    return fprintf(stderr, "peak %lld\n", 1024LL * used.ru_maxrss) < 0;
}
C
"${CC:-cc}" -o peak peak.c
peak() { # peak FILE FLAG...: bytes that planning takes
    prints ./peak "$weft" plan --json "$@"
    sed -n 's/^peak //p' printed.err
}
preparation() { # of the plan that is printed
    sed -n 's/.*"preparation": \([0-9]*\).*/\1/p' printed | head -n 1
}
repeat() { # repeat N LINE: this line N times
    awk -v n="$1" -v line="$2" 'BEGIN { for (i = 0; i < n; i++) print line }'
}
moves='1. e4 e5 2. f4 exf4 3. Nf3 g5 4. h4 g4 5. Ne5 Nf6 6. Bc4 d5 7. exd5 Bd6 8. d4 Nh5 1-0'
repeat 480000 "$moves" >large.txt # about 40 MB each
tr '\n' ' ' <large.txt >long.txt
repeat 250000 "[Event \"?\"]
[Result \"1-0\"]

$moves {a comment that is not part of the document}
" >large.pgn
repeat 250000 "{\"text\": \"$moves\", \"more\": \"a field that is not part of the document, and that is long\"}" >large.jsonl
repeat 250000 "{\"instruction\": \"a question about this game\", \"output\": \"$moves\"}" >large_chat.jsonl
sed '/^document/d' run.ini >chat.ini
small=$(peak run.ini)
while read -r words; do
    # shellcheck disable=SC2086
    grown=$(($(peak $words) - small))
    prepared=$(preparation)
    echo "$words: planned $prepared, measured $grown"
    if ldd "$weft" | grep -qE 'lib(a|t)san' || grep -qE '__(a|t)san_init' "$weft"; then continue; fi
    # The tokenizer holds the ids of 4 MiB of text and the buffers of each thread.
    [ "$grown" -lt $((prepared + (24 << 20) + ($(nproc) << 20))) ] && [ "$prepared" -lt $((grown * 5 / 4)) ] ||
        failed "preparation of $words: $prepared are planned, and it takes $grown" printed
done <<'CASES'
run.ini data.path=large.txt
run.ini data.path=large.txt data.document=file
run.ini data.path=large.txt data.validation=0.1
run.ini data.path=long.txt data.document=file
run.ini data.path=large.txt data.validation=./long.txt
run.ini data.path=large.pgn
run.ini data.path=large.jsonl
chat.ini data.plugin=instruct data.path=large_chat.jsonl data.template=alpaca data.validation=large_chat.jsonl
CASES
prints "$weft" plan run.ini data.path=large.jsonl
told "preparing data"
prepared=$(total data.path=large.jsonl)
[ "$prepared" = "$(preparation)" ] || failed "fit plans $prepared, the preparation takes $(preparation)" printed
prints "$weft" plan run.ini data.path=large.jsonl --fit "${prepared}B"
told "largest: data while it is prepared"
prints "$weft" plan run.ini data.path=large.jsonl --fit "$((prepared - 1))B"
told "does not fit a device's"
told "no setting reduces the preparation of the data"
[ -z "$(changes data.path=large.jsonl --fit "$((prepared - 1))B")" ] || failed "changes that cannot help are listed" printed
refused "The preparation of the data alone exceeds the memory" \
    "$weft" train run.ini data.path=large.jsonl --fit "$((prepared - 1))B"
rm large.* large_chat.jsonl long.txt

# ---- planning time of a step with many micro-batches is linear; quadratic time would be minutes
prints timeout 60 "$weft" plan run.ini train.global_batch=32768 train.micro_batch=1

# ---- changes are found by planning: each has the stated result
holds "$((planned / 2))"
grep -q "train.micro_batch=[0-9]* --ranks 1 --nodes 1$" changes.txt || failed "a smaller micro-batch is no change" changes.txt
grep -q "strategy.plugin=fsdp" changes.txt && failed "sharding what a model keeps does not halve its activations" changes.txt
# the mildest: a larger micro-batch that divides the batch would not fit
micro=$(sed -n 's/.* train.micro_batch=\([0-9]*\) .*/\1/p' changes.txt)
[ "$(total train.micro_batch=$((2 * micro)))" -gt "$((planned / 2))" ] || failed "micro_batch=$((2 * micro)) is enough" changes.txt
room=$(total train.activation_checkpointing=yes)
holds "$room"
grep -q "^$room train.activation_checkpointing=yes " changes.txt || failed "checkpointing is no change" changes.txt
# no single change suffices: changes are combined, without unnecessary ones
holds "$((planned / 6))"
grep -q ' train.* train.* ' changes.txt || failed "no changes are joined" changes.txt
while read -r bytes words; do
    for word in $words; do
        case $word in --*) break ;; esac
        # shellcheck disable=SC2046
        if "$weft" plan run.ini --json --fit "$((planned / 6))B" $(echo "$words" | sed "s/$word//") >without 2>&1 &&
            grep -q '"fits": true' without; then failed "$word is not needed" changes.txt; fi
    done
done <changes.txt
# for display: each line within 80 columns
prints "$weft" plan run.ini --fit "$((planned / 6))B"
told "would fit, behind the same command:"
[ "$(sed -n '/^does not fit/,/^schedule/p' printed | awk 'length > 80' | wc -l)" = 0 ] || failed "a line is too wide" printed
# ... and no change fits
prints "$weft" plan run.ini --fit 150kB # less than the parameters, more than the preparation of the data
told "nothing that was tried would fit; the least of it is"

# ---- ranks of one machine share its memory, and data only once; ranks with their own devices are separate
one=$(total strategy.plugin=ddp --ranks 1)
four=$(total strategy.plugin=ddp --ranks 4 train.micro_batch=4)
each=$(total strategy.plugin=ddp --ranks 4 train.micro_batch=4 --fit 1GB)
spread=$(total strategy.plugin=ddp --ranks 4 --nodes 2 train.micro_batch=4)
[ "$four" = $((4 * each - 3 * held)) ] || failed "four ranks want $four, each of them $each, $held of it shared data"
[ "$spread" = $((2 * each - held)) ] || failed "two ranks of a machine want $spread, each $each, $held of it shared data"
[ "$one" -gt 0 ] || failed "one rank wants nothing"
holds "$((each - 1))" strategy.plugin=ddp train.micro_batch=4 --ranks 4
grep -q ' strategy.plugin=fsdp --ranks 4 --nodes 1$' changes.txt || failed "sharding is no change" changes.txt
prints "$weft" plan run.ini --json --fit "$((planned / 2))B"
for text in '"fits": false' '"of": "a device"' '"largest": "activations"'  "\"train.micro_batch=$micro\""; do told "$text"; done

# ---- a run that cannot fit is not started and leaves no files, unless forced
refused "It would fit with train." "$weft" train run.ini --fit "$((planned / 2))B"
grep -q "nothing was started" log || failed "a run that does not fit" log
[ ! -e out ] || failed "a run that was not started left its directory"
refused "are planned" "$weft" profile run.ini --fit 100kB --steps 1
refused "It would fit with train.micro_batch=" "$weft" eval run.ini --fit 900kB
# a proof starts no cell if one of them does not fit; the suggested change is one that it does not vary, and
# sufficient
prove="prove run.ini --ranks 1 --steps 1"
# shellcheck disable=SC2086
{
    refused "It would fit with train.micro_batch=" "$weft" $prove --fit "$((planned / 2))B"
    grep -q "on 1 rank: .* are planned, .* of it activations, and a device has .*: nothing was started" log || failed "a proof that does not fit" log
    grep -qE "activation_checkpointing=|--ranks|fsdp|async=" log && failed "a proof is told to change what it varies" log
    grep -q "cells" log && failed "a proof that does not fit was started" log
    change=$(sed -n 's/.*It would fit with \(train.micro_batch=[0-9]*\) .*/\1/p' log)
    prints "$weft" $prove --fit "$((planned / 2))B" "$change"
    told ", 0 different"
    prints "$weft" $prove --no-fit
    told ", 0 different"
}
prints "$weft" train run.ini --no-fit
told "step 2/2"
rm -r out
prints "$weft" train run.ini --fit "${planned}B"
told "fits       a device's"
if has mpich; then
    refused "on 2 ranks: 5.9 MiB are planned, 3.3 MiB of it activations, and rank 0's device has 293.0 KiB: nothing was started" "$weft" prove run.ini --ranks 2 --steps 1 comm.plugin=mpi-mpich --fit 300kB
    refused "nothing was started" "$weft" train run.ini --overwrite --ranks 2 comm.plugin=mpi-mpich strategy.plugin=ddp --fit 300kB
    prints "$weft" train run.ini --overwrite --ranks 2 comm.plugin=mpi-mpich strategy.plugin=ddp
    told "of 2 ranks; largest: "
fi

# ---- sizes
for size in 80 GB x 80XB 0GB -1GB 1e400GB; do refused "is not a size" "$weft" plan run.ini "--fit=$size"; done
refused "use one of them" "$weft" train run.ini --fit 1GB --no-fit
for size in 1gb 1G "1 GB" 1000MB 1e9B 1000000kB; do
    prints "$weft" plan run.ini --fit "$size"
    told "a device's 953.7 MiB"
done

# ---- weights: plan rejects the same as train, with the same message, with any other flags
sentence() { sed 's/^weft [a-z]*: //; s/^weights.ini: //; /^weft: /d' log | tail -n 1; }
bad() { # bad WHAT
    "$weft" train weights.ini >log 2>&1 && failed "train takes $1" log
    sentence >by_train
    for flags in "" --json "--print-program --mode evaluation" "--diff weights.ini" "--ranks 2 strategy.plugin=fsdp"; do
        # shellcheck disable=SC2086
        "$weft" plan weights.ini $flags >log 2>&1 && failed "plan $flags takes $1" log
        sentence >by_plan
        cmp -s by_train by_plan || failed "plan $flags of $1 says something else" by_train by_plan
    done
    rm -rf weights_out
}
sed 's/^start .*//; s#^out .*#out = weights_out#; s#^path   = model#path   = copy#' run.ini >weights.ini
prints "$weft" train run.ini --overwrite run.out=made
cp -r made/model copy
prints "$weft" plan weights.ini
rm copy/model.safetensors
bad "no weights"
printf '\002\0\0\0\0\0\0\0{}' >copy/model.safetensors
bad "weights without tensors"
cp made/model/model.safetensors copy
sed -i 's/"intermediate_size": 56/"intermediate_size": 60/' copy/config.json
bad "weights of another shape"
sed -i 's/"intermediate_size": 60/"intermediate_size": 56/' copy/config.json
LC_ALL=C sed 's/"F32"/"F08"/' made/model/model.safetensors >copy/model.safetensors
bad "weights of an unknown type"
head -c 3000 made/model/model.safetensors >copy/model.safetensors
bad "half a file"

exit "$failures"
