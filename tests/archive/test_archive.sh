#!/bin/sh
# Plugins of every kind, built with earlier headers, small and stripped, run in the current host, on one and
# on several ranks. Their results equal the bits of the built-in plugin if it computes the same, else stored
# losses. Each incompatible header change is reported with its line. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
archive=$WEFT_SOURCE/tests/archive
today=$WEFT_SOURCE/sdk/include
plugins="model:archive policy:archive strategy:archive optimizer:archive data:archive tokenizer:archive device:archive
    device:archive-wrap comm:archive comm:archive-files comm:archive-wrap adapter:archive"

sh "$archive/build.sh" "$WEFT_SOURCE" "$today" "$dir/today" >log 2>&1 || failed "the archive of today's headers" log
[ "$(find today -name '*.so' -size -100k | wc -l)" = "$(echo $plugins | wc -w)" ] || failed "they are not all there and small"
known=$(grep -o 'KIND([a-z]*, ' "$WEFT_SOURCE/host/plugin/kinds.c" | sed 's/KIND(\(.*\), /\1/' | grep -vx name)
[ -n "$known" ] || failed "the host's kinds cannot be read"
for kind in $known; do
    [ -e "today/weft-$kind-archive.so" ] || failed "no plugin of kind $kind is archived"
done
export TMPDIR="$dir" # directory for messages of archive-files

# ---- runs
cp -r "$archive/try" .
cp -r try try-model
cp try/model/config.json try-model
train() { # train OUT ARGUMENT...: it trains, with its records in OUT
    out=$1
    shift
    limit "$weft" train "$run/run.ini" "run.out=$dir/$out" "$@" >log 2>&1 || failed "weft train $*: exit status $?" log
    losses "$out" >"$out.losses" 2>log || failed "$out has no losses" log
}
same() { # same OUT BUILTIN: same bits of weights and optimizer states
    same_tensors "$1 trains to other bits than $2" "$1/checkpoints/step-4" "$2/checkpoints/step-4"
}
# Relative tolerance of a loss. Stored losses come from one machine, and bits differ between machines. After
# these steps two devices differ by 1e-9, and a learning rate larger by 1e-4 causes 1e-5.
near=1e-6
alike() { # alike WHAT A B: files of four losses
    paste "$2" "$3" | awk -v most=$near '
        NF != 2 { bad = 1; next }
        { apart = $1 > $2 ? $1 - $2 : $2 - $1; if (!($2 > 0) || apart > most * $2) bad = 1 }
        END { exit bad || NR != 4 }' || { paste "$2" "$3" >log; failed "$1" log; }
}
run_ranks() { # several ranks with the archived communicators
    files=$archived/weft-comm-archive-files.so
    train "$set-ranks" --ranks 2 "strategy.plugin=$archived/weft-strategy-archive.so" "comm.plugin=$files"
    same "$set-ranks" builtin
    train "$set-fsdp" --ranks 2 strategy.plugin=fsdp "comm.plugin=$files" "policy.plugin=$archived/weft-policy-archive.so"
    same "$set-fsdp" builtin
    train "$set-stages" --ranks 2 strategy.plugin=mp "comm.plugin=$files" \
        "device.plugin=$archived/weft-device-archive-wrap.so"
    same "$set-stages" builtin
    prints limit "$weft" plugins exchange try/run.ini --ranks 3 strategy.plugin=ddp "comm.plugin=$files"
    [ $mpi = yes ] || return 0
    train "$set-wrap" --ranks 2 "strategy.plugin=$archived/weft-strategy-archive.so" \
        "comm.plugin=$archived/weft-comm-archive-wrap.so"
    same "$set-wrap" builtin
}
run=try
train builtin
train builtin-sgd optimizer.plugin=sgd optimizer.momentum=0.9
has mpich && mpi=yes || mpi=no
for archived in "$dir/today" "$archive"/sdk-*; do
    set=${archived##*/}
    for plugin in $plugins; do
        kind=${plugin%:*} id=${plugin#*:}
        file=$archived/weft-$kind-$id.so out=$set-$kind-$id
        prints "$weft" plugins describe "$kind:$file"
        [ "$set" != today ] || is_full || continue # the same sources, which other tests train
        case $plugin in
            comm:archive-wrap) [ $mpi = yes ] || continue ;; # for several ranks, below
            model:*)
                run=try-model
                train "$out" "$kind.plugin=$file"
                run=try
                ;;
            *) train "$out" "$kind.plugin=$file" ;;
        esac
        # Plugins with the same computation; communication pattern and placement do not affect the numbers.
        case $plugin in
            policy:* | strategy:* | comm:archive | comm:archive-files | device:archive-wrap) same "$out" builtin ;;
            device:archive) alike "$out learns another thing than the device cpu" "$out.losses" builtin.losses ;;
            optimizer:*) alike "$out learns another thing than sgd" "$out.losses" builtin-sgd.losses ;;
        esac
        if [ "$set" != today ] && [ -e "$out.losses" ]; then
            sed -n "s/^$kind $id //p" "$archived/losses.txt" | tr ' ' '\n' >kept
            alike "$out does not learn what it did" "$out.losses" kept
        fi
    done
    [ "$set" = today ] && ! is_full || run_ranks
    if [ "$set" != today ] && ! sh "$archive/compare.sh" "$archived/measured.txt" "$today" >log; then
        failed "today's headers break the binaries of $set" log
    fi
done

# ---- compatible and incompatible changes
compared() { # compared STATUS OLD NEW: the lines are in log
    status=0
    sh "$archive/compare.sh" "$2" "$3" >log 2>err || status=$?
    [ "$status" = "$1" ] || failed "compare.sh $2 $3: status $status, not $1" log err
}
compared 0 "$today" "$today"
[ ! -s log ] || failed "headers differ from themselves" log
compared 0 "$dir/today/measured.txt" "$today"
sh "$WEFT_SOURCE/tests/sdk/grow.sh" "$today" grown
compared 0 "$today" grown
[ "$(grep -c '^adds     weft_[a-z_0-9]*\.grown$' log)" -gt 50 ] || failed "what grows is not told" log
compared 1 grown "$today"

broken() { # broken HEADER SED LINE: that edit of a header breaks with this line
    rm -rf edited
    cp -r "$today" edited
    sed -i "$2" "edited/weft/$1"
    ! cmp -s "edited/weft/$1" "$today/weft/$1" || failed "$2 changes nothing in $1"
    compared 1 "$today" edited
    grep -q "^breaks   $3" log || failed "$1, $2: not told: $3" log
}
broken random.h 's/0xD2511F53/0xD2511F55/' 'random.h:weft_random computes otherwise, and a binary carries what it was built with'
if is_full; then
    broken policy.h '/int32_t is_block;/d' 'weft_module_view.is_block is gone, which was at '
    broken policy.h 's/    int32_t parent; .*/    int64_t parent;/' 'weft_module_view.parent is of 8 bytes, and was of 4'
    broken policy.h '/const char \*path; /{h;d};/const char \*class_name; /{G}' 'weft_module_view.name moves from 16 to 8'
    broken policy.h 's/void (\*claim_rest)(weft_wrap_ctx \*ctx, int32_t unit, int32_t module);/void (*claim_rest)(weft_wrap_ctx *ctx, int32_t module, int32_t unit);/' \
        'weft_wrap.claim_rest is declared otherwise: '
    broken strategy.h 's/WEFT_SHARDED = 1, WEFT_OWNED = 2/WEFT_OWNED = 1, WEFT_SHARDED = 2/' 'constant WEFT_SHARDED is 2, and was 1'
    broken policy.h 's/#define WEFT_UNIT_ROOT   (-1)/#define WEFT_UNIT_ROOT   (-2)/' 'define WEFT_UNIT_ROOT is (-2), and was (-1)'
    broken host.h 's|"weft.host.world/1"|"weft.host.world/2"|' 'define WEFT_HOST_WORLD is "weft.host.world/2"'
    broken device.h 's/^} weft_ref;/    int64_t more;\n&/' 'weft_ref.more is new in a struct that is passed by value'
    broken strategy.h 's/    int32_t reserved; .*0 .*/    int32_t reserved;\n    int32_t in_between;/;s/^    int32_t kind; .*/    int32_t early;\n&/' \
        'weft_instruction.early is new at 8, within the 48 bytes'
    broken policy.h '/^typedef struct weft_parameter_view {/,/^}/{s/^} weft_parameter_view;/} weft_parameter_sight;\ntypedef weft_parameter_sight weft_parameter_view;/;s/struct weft_parameter_view/struct weft_parameter_sight/}' \
        'struct weft_parameter_view is gone'
    broken comm.h 's/weft_comm_handle \*\*out, const weft_exchange \*what,/const weft_exchange *what, weft_comm_handle **out,/' \
        'type weft_exchange_fn is declared otherwise: '
    broken plugin.h 's/weft_plugin_entry_fn(const weft_host \*host, weft_error \*err)/weft_plugin_entry_fn(weft_error *err, const weft_host *host)/' \
        'type weft_plugin_entry_fn is declared otherwise: '
    broken plugin.h 's|weft-plugin/1|weft-plugin/2|' 'note WEFT_NOTE is declared otherwise: '
fi
rm -rf edited
cp -r "$today" edited
sed -i 's/(const char \*)job->sites/(const char *)(job->sites)/' edited/weft/adapter.h
compared 0 "$today" edited
[ "$(cat log)" = "carries  adapter.h:weft_adapter_site is written otherwise" ] || failed "a helper's other text" log
echo 'no C at all' >>edited/weft/emit.h
refused 'cannot compile the headers of edited/weft' sh "$archive/compare.sh" "$today" edited
echo hello >junk
refused 'is neither a directory of headers' sh "$archive/compare.sh" junk "$today"
refused 'usage: compare.sh' sh "$archive/compare.sh" "$today"
refused 'has no headers of the SDK' sh "$archive/measure.sh" "$dir"
refused 'is neither a directory of headers' sh "$archive/compare.sh" nowhere "$today"
[ -z "$(find . -maxdepth 1 -name 'weft-archive-*')" ] || failed "messages between ranks stay"
[ "$failures" = 0 ]
