#!/bin/sh
# A slow plugin call is reported while it runs, with plugin, slot and rank, and the run continues: slots of
# the optimizer, its body in the device, one rank of two, the tokenizer, also in a
# thread of the data plugin. No report with [plugins] call_seconds
# = 0 or fast calls. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
make_run <<'INI'
steps = 3
[optimizer]
lr = 0.01
[plugins]
call_seconds = 0.4
[device]
threads = 1
INI
mkdir -p plugins
changed() { # changed ID PERL: sgd with that change, as a plugin of that id
    perl -0pe "s/(optimizer, 1, \"sgd\")/optimizer, 1, \"$1\"/; s/^/#include <stdlib.h>\n/; $2" \
        "$WEFT_SOURCE/plugins/optimizer/sgd/sgd.c" >"$1.c"
    grep -q usleep "$1.c" || failed "$1 is not slow"
    build optimizer "$1" "${CC:-cc}" -fno-math-errno -ffp-contract=off "$1.c"
}
changed slow 's/(    sgd_hp \*out = hp;)/$1\n    const char *rank = getenv("PMI_RANK");\n    if (step->update == 2 \&\& (rank == NULL || atoi(rank) == 1)) usleep(1500000);/; s/^/#include <unistd.h>\n/'
changed body 's/(static const weft_elementwise \*sgd_update.*?\n}\n)/static void rests(const weft_elementwise_call *call);\n$1static const weft_elementwise *slowly(const weft_optimizer *optimizer) { static weft_elementwise k; k = *sgd_update(optimizer); k.cpu = rests; return \&k; }\nstatic void rests(const weft_elementwise_call *call) { if (call->range->offset == 0) usleep(700000); sgd_plain.cpu(call); }\n/s; s/ sgd_update,/ slowly,/; s/^/#include <unistd.h>\n/'
changed end 's/static void sgd_destroy\(.*?\{\n/$&    usleep(700000);\n/s; s/^/#include <unistd.h>\n/'
trained() { # trained NAME argument...: the run succeeds; its output is in said
    name=$1
    shift
    limit "$weft" train run.ini "run.out=$name" "$@" >said 2>&1 || failed "$name" said
}
told() { # told N TEXT: N lines contain the text
    [ "$(grep -cF -- "$2" said)" = "$1" ] || failed "not told $1 times: $2" said
}
slow=$dir/plugins/weft-optimizer-slow.so
sentence="weft: warning: optimizer:slow ($slow) has been in its prepare for 0.4 s, in training, in step 2, at instruction "
trained alone "optimizer.plugin=$slow"
told 1 "$sentence"
grep -F "$sentence" said | grep -qF ", STEP, and goes on; other processes may wait for it. [plugins] call_seconds sets" ||
    failed "no position and key in the warning" said
trained never "optimizer.plugin=$slow" plugins.call_seconds=0
told 0 "has been in its"
trained quick optimizer.plugin=sgd plugins.call_seconds=20
told 0 "has been in its"
if has mpich; then
    trained two "optimizer.plugin=$slow" strategy.plugin=fsdp --ranks 2 comm.plugin=mpi-mpich
    told 1 "has been in its prepare"
    told 1 "[1] $sentence"
fi

# A body that is slow in each step is reported once, with both plugins that run it.
trained body "optimizer.plugin=$dir/plugins/weft-optimizer-body.so" policy.plugin=whole
told 1 "has been in its update of optimizer:body ($dir/plugins/weft-optimizer-body.so) for 0.4 s"
# The same for slots called before the ranks start, or after they end, by each command.
trained end "optimizer.plugin=$dir/plugins/weft-optimizer-end.so"
told 1 "weft: warning: optimizer:end ($dir/plugins/weft-optimizer-end.so) has been in its destroy for 0.4 s"
"$weft" plugins new tokenizer my-tokenizer >said 2>&1 || failed "no tokenizer is written" said
for slot in info destroy; do
    perl -0pe "s/(my_tokenizer_$slot\(.*?\{\n)/\$1    usleep(700000);\n/s; s/^/#include <unistd.h>\n/" \
        my-tokenizer/my_tokenizer.c >"$slot.c"
    build tokenizer my-tokenizer "${CC:-cc}" "$slot.c"
    for command in "data show run.ini -n 1" "generate run.ini --prompt a --tokens 1"; do
        # shellcheck disable=SC2086 # several words
        limit "$weft" $command "tokenizer.plugin=$dir/plugins/weft-tokenizer-my-tokenizer.so" </dev/null >said 2>&1 || true
        grep -qF "weft-tokenizer-my-tokenizer.so) has been in its $slot for 0.4 s" said || failed "$command: $slot lasts, and nothing is said" said
    done
done

# The tokenizer's encode in another thread of the data plugin's create: the main thread waits for it, and its create is
# not reported, although the thread encodes more texts. Each of two threads encodes 3,277 lines. The main thread begins
# when the other thread is in its first encode, which ends 3 s after the main thread's last one.
cat >thread.inc <<'C'
    static _Atomic long begun, last;
    static _Thread_local long calls;
    const int is_main = syscall(SYS_gettid) == getpid();
    struct timespec now;
    for (int i = 0; i < 1000 && (is_main ? begun == 0 : calls == 0); i++) {
        begun += !is_main;
        usleep(20000);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        calls = last != 0 && now.tv_sec - last > 3;
    }
    calls++;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (is_main) last = now.tv_sec;
C
perl -0pe 'BEGIN { local $/; open my $f, "<", "thread.inc"; $body = <$f> } s/(my_tokenizer_encode\(.*?\{\n)/$1$body/s; s/^/#include <sys\/syscall.h>\n#include <time.h>\n#include <unistd.h>\n/' \
    my-tokenizer/my_tokenizer.c >thread.c
build tokenizer my-tokenizer "${CC:-cc}" thread.c
yes "One line of a text." | head -n 6554 >long.txt
if [ "$(nproc)" -gt 1 ]; then
    trained thread data.path=long.txt train.steps=1 plugins.call_seconds=1 \
        "tokenizer.plugin=$dir/plugins/weft-tokenizer-my-tokenizer.so"
    told 1 "weft: warning: tokenizer:my-tokenizer ($dir/plugins/weft-tokenizer-my-tokenizer.so) has been in its encode for 1 s"
    told 0 "has been in its create"
fi
[ "$failures" = 0 ]
