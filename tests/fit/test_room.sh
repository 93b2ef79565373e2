#!/bin/sh
# Whether a run fits: what is told, that each change that is told gives what it says when it is typed, that train starts
# nothing that cannot fit, and that plan refuses the weights that train refuses. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

told() { # told TEXT: what the last command printed has it
    cat printed printed.err | grep -qF -- "$1" || failed "not told: $1" printed printed.err
}
total() { # total FLAG...: bytes that are planned where the room is looked at
    prints "$weft" plan run.ini --json "$@"
    sed -n '/"fit": {/,/}/s/.*"planned": \([0-9]*\).*/\1/p' printed | head -n 1
}
changes() { # changes FLAG...: what the plan with these flags suggests, a line each: BYTES, and the words to type
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
holds() { # holds ROOM FLAG...: each change that is told, typed behind these flags, plans what it says, and that fits
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

# ---- it fits: one line, the same for two plans, whatever else runs on the machine
prints "$weft" plan run.ini
told "fits        this "
told "; largest: "
planned=$(total)
prints "$weft" plan run.ini --fit "${planned}B"
told "fits        a device's"
prints "$weft" plan run.ini --fit "$((planned - 1))B"
told "does not fit a device's"

# ---- what the data plugin holds is counted, in its own category and in what has to fit
data_bytes() { # data_bytes FLAG...: that are planned for the data
    prints "$weft" plan run.ini --json "$@"
    sed -n 's/.*"data": \([0-9]*\).*/\1/p' printed | head -n 1
}
for i in 1 2 3 4 5 6 7 8; do cat games.txt; done >eight.txt
one=$(data_bytes)
held=$one
eight=$(data_bytes data.path=eight.txt)
# A token takes two bytes, a document and a window more.
[ "$one" -gt $(($(wc -c <games.txt) / 2)) ] && [ "$eight" -gt $((7 * one)) ] && [ "$eight" -lt $((9 * one)) ] ||
    failed "80 documents take $one bytes and 640 take $eight" printed
[ $(($(total data.path=eight.txt) - planned)) = $((eight - one)) ] || failed "what the data take is not in the total" printed

# ---- a step of many micro-batches is planned in a time that grows as they do: with their square it would take minutes
prints timeout 60 "$weft" plan run.ini train.global_batch=32768 train.micro_batch=1

# ---- changes are found by planning: each, typed, gives what it is said to give
holds "$((planned / 2))"
grep -q "train.micro_batch=[0-9]* --ranks 1 --nodes 1$" changes.txt || failed "a smaller micro-batch is no change" changes.txt
grep -q "strategy.plugin=fsdp" changes.txt && failed "sharding what a model keeps does not halve its activations" changes.txt
# the mildest: a larger piece that divides the batch would not fit
micro=$(sed -n 's/.* train.micro_batch=\([0-9]*\) .*/\1/p' changes.txt)
[ "$(total train.micro_batch=$((2 * micro)))" -gt "$((planned / 2))" ] || failed "micro_batch=$((2 * micro)) is enough" changes.txt
room=$(total train.activation_checkpointing=yes)
holds "$room"
grep -q "^$room train.activation_checkpointing=yes " changes.txt || failed "checkpointing is no change" changes.txt
# none is enough alone: joined, and what is not needed is left out
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
# as people read them: each line within 80 columns
prints "$weft" plan run.ini --fit "$((planned / 6))B"
told "would fit, behind the same command:"
[ "$(sed -n '/^does not fit/,/^schedule/p' printed | awk 'length > 80' | wc -l)" = 0 ] || failed "a line is too wide" printed
# ... and nothing is
prints "$weft" plan run.ini --fit 1kB
told "nothing that was tried would fit; the least of it is"

# ---- ranks of one machine count together, the data that they share once; on devices of their own each by itself
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

# ---- what cannot fit is not started, and nothing is left behind; unless told
refused "It would fit with train." "$weft" train run.ini --fit "$((planned / 2))B"
grep -q "nothing was started" log || failed "a run that does not fit" log
[ ! -e out ] || failed "a run that was not started left its directory"
refused "are planned" "$weft" profile run.ini --fit 100kB --steps 1
refused "It would fit with train.micro_batch=" "$weft" eval run.ini --fit 900kB
# a proof starts no cell where one of them does not fit; what it is told to change is what it leaves as it is, and enough
prove="prove run.ini --ranks 1 --steps 1"
# shellcheck disable=SC2086
{
    refused "It would fit with train.micro_batch=" "$weft" $prove --fit "$((planned / 2))B"
    grep -q "on 1 rank: .* are planned, .* of it activations, and a device has .*: nothing was started" log || failed "a proof that does not fit" log
    grep -qE "activation_checkpointing=|--ranks|fsdp|beside=" log && failed "a proof is told to change what it varies" log
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
for size in 80 GB x 80XB 0GB -1GB 1e400GB; do refused "is no size" "$weft" plan run.ini "--fit=$size"; done
refused "give one of them" "$weft" train run.ini --fit 1GB --no-fit
for size in 1gb 1G "1 GB" 1000MB 1e9B 1000000kB; do
    prints "$weft" plan run.ini --fit "$size"
    told "a device's 953.7 MiB"
done

# ---- weights: plan refuses what train refuses, by the same sentence, whatever else it is to show
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
