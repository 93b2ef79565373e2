#!/bin/sh
# weft plugins check: what `weft plugins new` writes holds every rule, and each mistake of mutants.txt is named by the rule that
# it is listed for: a quarter of them, all with the full suite. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
list=$WEFT_SOURCE/tests/conform/mutants.txt
mkdir scratch
export TMPDIR="$dir/scratch"

make_plugin() { # make_plugin SOURCE FILE
    gcc -std=gnu11 -O1 -fno-math-errno -ffp-contract=off -fvisibility=hidden -fPIC -shared -I"$WEFT_SOURCE/sdk/include" \
        -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" -Wl,--no-undefined "$1" -o "$2" -lm >log 2>&1
}
keys() { # keys KIND: that its check is given
    [ "$1" != optimizer ] || echo weight_decay=0.1
}
for kind in optimizer policy strategy tokenizer data model adapter device comm; do
    prints "$weft" plugins new "$kind" "my-$kind"
    make_plugin "my-$kind/my_$kind.c" "my-$kind/sound.so" || failed "$kind does not compile" log
    # shellcheck disable=SC2046 # no key, or one
    prints "$weft" plugins check "my-$kind/sound.so" $(keys "$kind")
    # R114 is about states that the template's optimizer does not have, R116 about tables that its tokenizer does not have.
    ! grep -E '^  R[0-9]+ +(broken|crashes|hangs|untried|moot)' printed | grep -vE '^  R11[46] +moot' ||
        failed "$kind does not hold its rules" printed
done

# A model with an operator of its own, whose mistakes are those of `square`.
cp -r my-model my-square
perl -0pe 'BEGIN { local $/; open my $f, "<", shift or die; $op = <$f> } s/static weft_value perceptron/$op\n$&/;
    s/ops->activation\(g, (.*?), WEFT_SILU\)/square(g, ops, $1)/' \
    "$WEFT_SOURCE/tests/conform/square.c" my-model/my_model.c >my-square/my_square.c
make_plugin my-square/my_square.c my-square/sound.so || failed "the model with an operator does not compile" log
prints "$weft" plugins check my-square/sound.so
! grep -E '^  R[0-9]+ +(broken|crashes|hangs|untried|moot)' printed || failed "square does not hold its rules" printed

n=0
while read -r kind rule change; do
    case $kind in '' | '#'*) continue ;; esac
    n=$((n + 1))
    is_full || [ $((n % 4)) = 0 ] || continue
    source=my-$kind/mutant$n.c
    perl -0pe "$change" "my-$kind/my_$kind.c" >"$source"
    if cmp -s "$source" "my-$kind/my_$kind.c"; then
        failed "mutant $n of $kind changes nothing: $change"
        continue
    fi
    make_plugin "$source" "my-$kind/mutant$n.so" || { failed "mutant $n of $kind does not compile: $change" log; continue; }
    status=0
    # shellcheck disable=SC2046
    "$weft" plugins check "my-$kind/mutant$n.so" --rule "$rule" --seconds 5 $(keys "$kind") >printed 2>&1 || status=$?
    { [ "$status" -ge 10 ] && [ "$status" -le 12 ] && grep -qE "^  $rule +(broken|crashes|hangs)" printed; } ||
        failed "mutant $n of $kind holds $rule: $change" printed
done <"$list"
[ "$n" -ge 60 ] || failed "$n mutants are too few"
[ -z "$(find scratch -name 'weft-check-*')" ] || failed "what a rule wrote stays"
echo "$n mutants"

prints "$weft" plugins check my-policy/sound.so my-data/sound.so --json --rule R26
python3 -c 'import json, sys; a = json.load(open("printed")); assert [p["kind"] for p in a] == ["policy", "data"], a' ||
    failed "--json" printed
refused "no file is named" "$weft" plugins check blocks=2
refused "no-such.so" "$weft" plugins check ./no-such.so
status=0
"$weft" plugins check "$WEFT_BUILD/plugins/weft-policy-class.so" >printed 2>&1 || status=$?
[ "$status" = 13 ] || failed "a key that is missing gives status $status" printed
grep -qF 'classes is missing' printed || failed "the missing key is not named" printed
refuses_rule() { # refuses_rule RULE: of a policy, with the ones that it has
    status=0
    "$weft" plugins check my-policy/sound.so --rule "$1" >printed 2>&1 || status=$?
    { [ "$status" = 2 ] && grep -qF "R26, R40, R41, R42, R43, R44" printed; } || failed "--rule $1 gives status $status" printed
}
refuses_rule R99
refuses_rule 26
refuses_rule R30
refused "has no key block; did you mean blocks?" "$weft" plugins check my-policy/sound.so block=3
refused "[policy] blocks = 0 " "$weft" plugins check my-policy/sound.so blocks=0 --rule R40
prints "$weft" plugins check "$WEFT_BUILD/plugins/weft-policy-class.so" classes=LlamaDecoderLayer --rule R40
grep -qE '^  R40 +holds' printed || failed "a class of the try model is in no tree" printed
status=0
"$weft" plugins check "$WEFT_BUILD/plugins/weft-policy-class.so" classes=NoSuchClass --rule R40 >printed 2>&1 || status=$?
{ [ "$status" = 13 ] && grep -qE '^  R40 +untried' printed; } || failed "an untried rule gives status $status" printed
refused "has no key class; did you mean classes?" "$weft" plugins check "$WEFT_BUILD/plugins/weft-policy-class.so" class=x
sed 's/ my_adapter_merge,/ NULL,/; s/^static weft_status my_adapter_merge/WEFT_UNUSED &/; 1i #define WEFT_UNUSED __attribute__((unused))' \
    my-adapter/my_adapter.c >my-adapter/unmerged.c
make_plugin my-adapter/unmerged.c my-adapter/unmerged.so || failed "an adapter without merge does not compile" log
prints "$weft" plugins check my-adapter/unmerged.so --rule R92
grep -qE '^  R92 +moot' printed || failed "an adapter without merge is not moot" printed
answers() { # answers STATUS VERDICT WHY FILE ARGUMENT...: of one rule
    want=$1 verdict=$2 why=$3 status=0
    shift 3
    "$weft" plugins check "$@" >printed 2>&1 || status=$?
    { [ "$status" = "$want" ] && grep -qE "^  R[0-9]+ +$verdict" printed && grep -qF -- "$why" printed; } ||
        failed "$*: status $status, not $want and $verdict" printed
}
answers 13 untried "/nonexistent cannot be read" "$WEFT_BUILD/plugins/weft-data-text.so" path=/nonexistent --rule R27
prints "$weft" plugins check "$WEFT_BUILD/plugins/weft-strategy-fsdp.so" --rule R52
grep -qE '^  R52 +holds' printed || failed "a strategy that has its keys to itself is not taken" printed
double=$WEFT_BUILD/tests/cuda/weft-device-cuda.so # which has one card
[ ! -e "$double" ] || answers 13 untried "1 card for 2 ranks" "$double" --rule R28
answers 13 untried "not finished within 0.1 s" my-policy/sound.so --rule R28 --seconds 0.01
perl -0pe 's/    \(void\)err;\n    out->lr/    if (step->update == 7) *(volatile int *)0 = 1;\n    out->lr/' \
    my-optimizer/my_optimizer.c >my-optimizer/crash.c
make_plugin my-optimizer/crash.c my-optimizer/crash.so || failed "an optimizer that crashes does not compile" log
answers 11 crashes "in optimizer:my-optimizer prepare, update 7" my-optimizer/crash.so --rule R31

optimizer() { # optimizer NAME CHANGE: my-optimizer/NAME.so is the template with that mistake
    perl -0pe "$2" my-optimizer/my_optimizer.c >"my-optimizer/$1.c"
    make_plugin "my-optimizer/$1.c" "my-optimizer/$1.so" || failed "the optimizer $1 does not compile" log
}
optimizer endless 's/    \(void\)err;\n    out->lr/    while (step->update == 2) (void)*(volatile char *)hp;\n    out->lr/'
answers 12 hangs "has been in its prepare for 2 s, in training, in step 2" my-optimizer/endless.so --rule R27 --seconds 2
optimizer pid 's/out->lr = \(float\)step->lr;/out->lr = (float)step->lr * (1 + (float)(getpid() % 997) * 1e-4f);/; s/^/#include <unistd.h>\n/'
answers 10 broken "of lm_head.weight is" my-optimizer/pid.so --rule R28
grep -qF "depends on the process: on its number" printed || failed "it is not said why processes differ" printed
optimizer mute 's/(static weft_status my_optimizer_prepare\(.*?\{\n)/$1    (void)close(1);\n    (void)close(2);\n/s; s/^/#include <unistd.h>\n/'
answers 10 broken "standard output or error was closed" my-optimizer/mute.so --rule R27
optimizer shut 's/(static weft_status my_optimizer_prepare\(.*?\{\n)/$1    for (int i = 1; i < 256; i++) (void)close(i);\n/s; s/^/#include <unistd.h>\n/'
answers 10 broken "it closes descriptors that it has not opened" my-optimizer/shut.so --rule R31

optimizer raw 's/(static weft_status my_optimizer_prepare\(.*?\{\n)/$1    if (step->update == 3) (void)syscall(SYS_exit_group, 0);\n/s; s/^/#include <sys\/syscall.h>\n#include <unistd.h>\n/'
answers 11 crashes "optimizer:my-optimizer ended the process in its prepare, with status 0" my-optimizer/raw.so --rule R31
answers 10 broken "optimizer:my-optimizer ended the process in its prepare, with status 0: its work" my-optimizer/raw.so --rule R27
optimizer leaving 's/(static weft_status my_optimizer_prepare\(.*?\{\n)/$1    if (step->update == 3) pthread_exit(NULL);\n/s; s/^/#include <pthread.h>\n/'
answers 11 crashes "leaving.so) ended the main thread in its prepare: its work" my-optimizer/leaving.so --rule R31
answers 10 broken "leaving.so) ended the main thread in its prepare, in training, at step 3: its work" my-optimizer/leaving.so --rule R27

# hp_size one member short, where the members are no text that can be read: prepare writes past it, and a run stops.
optimizer short 's/return \(int64_t\)sizeof\(my_optimizer_hp\);/return (int64_t)sizeof(my_optimizer_hp) - 4;/; s/(WEFT_HP\(my_optimizer_hp,) float/$1 my_number/; s/WEFT_HP\(my/typedef float my_number;\n$&/'
refused "short.so), in training: writes byte 8 of hp in its prepare, and its hp_size is 8" \
    "$weft" train my-optimizer/try/run.ini optimizer.plugin="$dir/my-optimizer/short.so" run.out="$dir/short"
# A key that is never read breaks no rule, for another key may have to be set before it counts, and is named.
optimizer deaf 's/out->momentum = \(float\)optimizer->config.momentum;/out->momentum = 0.9f;/'
answers 0 holds "so look whether it reads them: momentum" my-optimizer/deaf.so weight_decay=0.1 --rule R31
# Built so that products and sums are joined, on a processor that has such an instruction.
if grep -qw fma /proc/cpuinfo; then
    gcc -O3 -march=native -std=gnu11 -fvisibility=hidden -fPIC -shared -I"$WEFT_SOURCE/sdk/include" \
        -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" my-optimizer/my_optimizer.c -o my-optimizer/fma.so -lm
    answers 10 broken "it was built with contraction of products and sums" my-optimizer/fma.so weight_decay=0.1 --rule R117
fi
status=0
CC=nothing PATH=/nonexistent "$weft" plugins check my-optimizer/sound.so --rule R117 >printed 2>&1 || status=$?
{ [ "$status" = 13 ] && grep -qE '^  R117 +untried' printed; } || failed "without a compiler: status $status" printed

# A plugin that cannot work on this machine, and says so in works, in its entry or for what it is asked, is no broken one.
policy() { # policy NAME CHANGE: my-policy/NAME.so is the template with that change
    perl -0pe "$2" my-policy/my_policy.c >"my-policy/$1.c"
    make_plugin "my-policy/$1.c" "my-policy/$1.so" || failed "the policy $1 does not compile" log
}
policy deaf 's/const int64_t blocks = (.*?);/const int64_t blocks = 2; (void)config;/'
answers 0 holds "so look whether it reads them: blocks" my-policy/deaf.so --rule R41
no_loom='return weft_error_set(err, WEFT_E_DEVICE, "no loom is connected here");'
policy idle "s/    while \\(first >= 0\\) \\{/    if (first >= 0) $no_loom\n\$&/; s/WEFT_PLUGIN\\(policy(.*?)_table\\)/static weft_status my_policy_works(const weft_host *host, weft_error *err) { (void)host; $no_loom }\nWEFT_PLUGIN_THAT(policy\$1_table, my_policy_works)/s"
answers 13 untried "no loom is connected here" my-policy/idle.so
[ "$(grep -c '^  R[0-9]* *untried' printed)" = 7 ] || failed "not all but R26 are untried" printed
grep -qE '^  R26 +holds' printed || failed "a plugin that cannot work here is not loaded" printed
policy shy "s/WEFT_PLUGIN\\(policy/#define weft_plugin_entry real_entry\n\$&/; s/\\z/\n#undef weft_plugin_entry\nWEFT_EXPORT weft_plugin_entry_fn weft_plugin_entry;\nconst weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) { (void)host; (void)weft_error_set(err, WEFT_E_DEVICE, \"no loom is connected here\"); return NULL; }\n/"
answers 13 untried "no loom is connected here" my-policy/shy.so

# What a plugin refuses was not tried: of how much the rule holds is said, and a policy that refuses most is untried.
policy picky 's/int64_t first = block_behind\(job, 0, 1\), i;/$&\n    if (job->n_modules > 3) return weft_error_set(err, WEFT_E_USER, "%u modules are too many", job->n_modules);/'
answers 13 untried "tried on 1 of 27 trees, which is too few to say that it holds: it refuses 26, first tree 1 of 5 modules: 5 modules are too many" \
    my-policy/picky.so --rule R40
policy fussy 's/int64_t first = block_behind\(job, 0, 1\), i;/$&\n    if (job->n_modules > 1000) return weft_error_set(err, WEFT_E_USER, "%u modules are too many", job->n_modules);/'
answers 0 holds "tried on 26 of 27 trees: it refuses 1, first tree 25 of" my-policy/fussy.so --rule R41
answers 0 holds "jobs in a mode: it refuses" "$WEFT_BUILD/plugins/weft-strategy-single.so" --rule R50
for code in WEFT_E_USER WEFT_E_UNSUPPORTED; do # a refusal has either of these
    perl -0pe 's/(static weft_status my_strategy_replicas\(.*?\{\n)/$1    if (job->world > 1) return weft_error_set(err, '$code', "one rank");\n/s' \
        my-strategy/my_strategy.c >my-strategy/single.c
    make_plugin my-strategy/single.c my-strategy/single.so || failed "a strategy for one rank does not compile" log
    answers 0 holds "jobs in a mode: it refuses" my-strategy/single.so --rule R50
done
policy narrow 's/int64_t first = block_behind\(job, 0, 1\), i;/$&\n    if (job->n_modules > 1000) return weft_error_set(err, WEFT_E_UNSUPPORTED, "too many");/'
answers 0 holds "tried on 26 of 27 trees: it refuses 1" my-policy/narrow.so --rule R40

# A required list of paths. A path on the command line starts at the working directory.
policy listed 's/(    K\(I64, blocks, "2")/    K(LIST, also, NULL, "", "", WEFT_PATHS, "Files.") \\\n$1/; s/int64_t first = block_behind\(job, 0, 1\), i;/$&\n    const char *also = ((const my_policy_config *)config)->also;\n    if (also[0] != 47 || strstr(also, "\x2fhere,\x2fthere") == NULL || strstr(also, "weft-check") != NULL) return WEFT_E_PLUGIN;/'
answers 13 untried "also is missing" my-policy/listed.so --rule R40
answers 0 holds "" my-policy/listed.so also=here,/there --rule R40
seq 1 4000 | sed 's/$/ words of a line/' >text.txt
answers 0 holds "" "$WEFT_BUILD/plugins/weft-data-text.so" path=text.txt --rule R70
answers 0 holds "" "$WEFT_BUILD/plugins/weft-data-text.so" path=text.txt --rule R27
prints "$weft" plugins check my-policy/sound.so --rule R40
! grep -q "tried on" printed || failed "a policy that takes all trees is said to refuse some" printed

# A reason is the error alone, without what was warned of or told before it, and its further lines stand below the first.
policy loner 's/const int64_t blocks = (.*?);/const char *own = getenv("PMI_RANK"), *rank = own != NULL ? own : getenv("OMPI_COMM_WORLD_RANK"); const int64_t blocks = 1 + (rank == NULL ? 0 : atoi(rank));/; s/^/#include <stdlib.h>\n/'
chmod o+w my-policy/loner.so # which is warned of
answers 10 broken "ends with status 1: [0] weft prove: policy:my-policy ($dir/my-policy/loner.so) makes other units on rank 1 than on rank 0: " \
    my-policy/loner.so --rule R28
optimizer dies 's/    \(void\)err;\n    out->lr/    if (step->update == 2) *(volatile int *)0 = 1;\n    out->lr/'
answers 10 broken "weft prove: rank" my-optimizer/dies.so --rule R28
grep -q "signal 11" printed || failed "the crash is not told" printed
! grep -vE '^( |optimizer:)' printed || failed "a line of the reason stands under no rule" printed
# A run that finds nothing to evaluate says whose split it is.
perl -0pe 's/    if \(split == WEFT_SPLIT_VALIDATION\) return;.*\n//' my-data/my_data.c >my-data/empty.c
make_plugin my-data/empty.c my-data/empty.so || failed "data without a target in validation do not compile" log
refused "[data] plugin = my-data gives of its split validation have no target" "$weft" train my-data/try/run.ini \
    data.plugin="$dir/my-data/empty.so" eval.every=2

# A mistake is blamed on the plugin that makes it, and not on the one that calls it.
blames() { # blames KIND SENTENCE CHANGE: a run with that change of the template's tokenizer or adapter
    perl -0pe "$3; s/^/#include <fenv.h>\n#include <sys\/stat.h>\n/" "my-$1/my_$1.c" >"my-$1/wrong.c"
    make_plugin "my-$1/wrong.c" "my-$1/wrong.so" || failed "the $1 does not compile: $3" log
    refused "$2" "$weft" train "my-$1/try/run.ini" "$1.plugin=$dir/my-$1/wrong.so" run.out="$dir/blamed"
    ! grep -E "(data|model):[a-z]+ \(.*: .*my-$1" log || failed "another plugin than the $1 is blamed" log
    rm -rf blamed
}
encode='(static weft_status my_tokenizer_encode\(.*?\{\n)'
blames tokenizer "wrong.so): gives the id 999 in its encode" "s/$encode/\$1    { int32_t id = 999; return sink->put(sink->context, \&id, 1); }\n/s"
blames tokenizer "text.txt:1: tokenizer:my-tokenizer ($dir/my-tokenizer/wrong.so): it failed in its encode" "s/$encode/\$1    if (tokenizer != NULL) return WEFT_E_PLUGIN;\n/s"
blames tokenizer "tokenizer:my-tokenizer ($dir/my-tokenizer/wrong.so): changed the floating-point mode" "s/$encode/\$1    (void)fesetround(FE_UPWARD);\n/s"
blames tokenizer "changed the umask while its create ran. It called tokenizer:my-tokenizer (" "s/$encode/\$1    (void)umask(0);\n/s"
linear='(static weft_value my_adapter_linear\(.*?\{\n)'
blames adapter "adapter:my-adapter ($dir/my-adapter/wrong.so), in training: at 'model.layers.0." "s/$linear/\$1    if (self != NULL) return x;\n/s"
blames adapter "adapter:my-adapter ($dir/my-adapter/wrong.so), in training: at 'model.layers.0." "s/$linear/\$1    (void)fesetround(FE_UPWARD);\n/s"
blames adapter "changed the umask while it was called" "s/$linear/\$1    (void)umask(0);\n/s"

# What is built and what is kept holds the rules, or they are not tried.
for file in "$WEFT_BUILD"/plugins/weft-*.so "$WEFT_BUILD"/tests/cuda/weft-device-cuda.so "$WEFT_SOURCE"/tests/archive/sdk-*/*.so; do
    is_full || break
    [ -e "$file" ] || continue
    case $file in
        *weft-optimizer*) set -- weight_decay=0.1 ;;
        *weft-policy-class*) set -- classes=LlamaDecoderLayer ;;
        */tests/cuda/*) set -- share=yes ;;
        *weft-device-archive*) continue ;; # the plainest one, which trains, and lacks what the small model does not need
        *) set -- ;;
    esac
    "$weft" plugins check "$file" "$@" >printed 2>&1 || true
    grep -q '^  R26  *holds' printed || failed "$file is not loaded" printed
    ! grep -E '^  R[0-9]+ +(broken|crashes|hangs)' printed || failed "$file does not hold its rules" printed
done

# What the small model is not of: the other families compute as they should, too.
for family in "$WEFT_SOURCE"/tests/golden/family-*; do
    is_full || break
    type=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["model_type"])' "$family/config.json")
    for rule in R80 R84 R85 R86 R87; do
        answers 0 holds "" "$WEFT_BUILD/plugins/weft-model-$type.so" --directory "$family" --rule "$rule"
    done
done
[ "$failures" = 0 ]
