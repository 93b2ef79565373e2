#!/bin/sh
# weft plugins check: the templates of `weft plugins new` satisfy every rule, and each mutant of mutants/KIND.patch
# violates the rule that it is listed for. Such a file has one patch of the template per mutant, below a line
# "=== NAME": the rule that must detect it, or another name, for `variant`. The quick suite tests every 24th
# mutant and three templates. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
mutants=$WEFT_SOURCE/tests/conform/mutants
mkdir scratch
export TMPDIR="$dir/scratch"

make_plugin() { # make_plugin SOURCE FILE
    gcc -std=gnu11 -O1 -fno-math-errno -ffp-contract=off -fvisibility=hidden -fPIC -shared -I"$WEFT_SOURCE/sdk/include" \
        -I"$WEFT_SOURCE/tests/conform" -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" -Wl,--no-undefined "$1" -o "$2" -lm >log 2>&1
}
keys() { # keys KIND: arguments of its check
    [ "$1" != optimizer ] || echo weight_decay=0.1
}
for kind in optimizer policy strategy tokenizer data model adapter device comm; do
    prints "$weft" plugins new "$kind" "my-$kind"
    make_plugin "my-$kind/my_$kind.c" "my-$kind/sound.so" || failed "$kind does not compile" log
    case $kind in optimizer | policy | data) ;; *) is_full || continue ;; esac
    # shellcheck disable=SC2046 # no key, or one
    prints "$weft" plugins check "my-$kind/sound.so" $(keys "$kind")
    # The template's optimizer has no states for R114, its tokenizer no tables for R116, its data no `share` for R120.
    ! grep -E '^  R[0-9]+ +(broken|crashes|hangs|untried|moot)' printed | grep -vE '^  R(114|116|120) +moot' ||
        failed "$kind does not hold its rules" printed
done

mutate() { # mutate KIND PATCH TO: the template with that patch
    patch -s -F0 -o "$3" "my-$1/my_$1.c" "$2" >log 2>&1 || failed "$2 of $1 does not fit the template" log
}
split() { # split KIND: its mutants, one a file
    csplit -s -z -n 3 -b '%03d.patch' -f "my-$1/mutant" "$mutants/$1.patch" '/^=== /' '{*}'
}
variant() { # variant KIND NAME [FILE]: builds my-KIND/FILE.so, or my-KIND/NAME.so, with that patch
    mutate "$1" "$(grep -lx "=== $2" "my-$1"/mutant*.patch)" "my-$1/${3:-$2}.c"
    make_plugin "my-$1/${3:-$2}.c" "my-$1/${3:-$2}.so" || failed "the $1 $2 does not compile" log
}
for kind in optimizer policy strategy tokenizer data model adapter device comm; do split $kind; done

# A model with a custom operator, for the mutants of `square`, and data with a `share` slot, for those of `share`.
extended() { # extended NAME KIND: my-NAME is my-KIND with the patch NAME
    variant "$2" "$1"
    cp -r "my-$2" "my-$1"
    rm "my-$1"/mutant*.patch
    mv "my-$2/$1.c" "my-$1/my_$1.c"
    mv "my-$2/$1.so" "my-$1/sound.so"
    split "$1"
    is_full || return 0
    prints "$weft" plugins check "my-$1/sound.so"
    ! grep -E '^  R[0-9]+ +(broken|crashes|hangs|untried|moot)' printed || failed "$1 does not hold its rules" printed
}
extended square model
extended share data

n=0
for change in my-*/mutant*.patch; do
    read -r _ rule <"$change"
    case $rule in R[0-9]*) ;; *) continue ;; esac
    kind=${change#my-} n=$((n + 1))
    kind=${kind%%/*}
    is_full || [ $((n % 24)) = 0 ] || continue
    mutate "$kind" "$change" "${change%.patch}.c"
    make_plugin "${change%.patch}.c" "${change%.patch}.so" || { failed "$change ($rule) does not compile" log "$change"; continue; }
    status=0
    # shellcheck disable=SC2046
    "$weft" plugins check "${change%.patch}.so" --rule "$rule" --seconds 5 $(keys "$kind") >printed 2>&1 || status=$?
    { [ "$status" -ge 10 ] && [ "$status" -le 12 ] && grep -qE "^  $rule +(broken|crashes|hangs)" printed; } ||
        failed "$change holds $rule" printed "$change"
done
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
refuses_rule() { # refuses_rule RULE: for a policy, with the list of its rules
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
variant adapter unmerged
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
double=$WEFT_BUILD/tests/cuda/weft-device-cuda.so # the CUDA emulator, which has one GPU
[ ! -e "$double" ] || answers 13 untried "1 card for 2 ranks" "$double" --rule R28
answers 13 untried "not finished within 0.1 s" my-policy/sound.so --rule R28 --seconds 0.01
variant optimizer crash
answers 11 crashes "in optimizer:my-optimizer prepare, update 7" my-optimizer/crash.so --rule R31

variant optimizer endless
answers 12 hangs "has been in its prepare for 2 s, in training, in step 2" my-optimizer/endless.so --rule R27 --seconds 2
variant optimizer pid
answers 10 broken "of lm_head.weight is" my-optimizer/pid.so --rule R28
grep -qF "depend on the process: its id" printed || failed "it is not said why processes differ" printed
variant optimizer mute
answers 10 broken "standard output or error was closed" my-optimizer/mute.so --rule R27
variant optimizer shut
answers 10 broken "it closes descriptors that it has not opened" my-optimizer/shut.so --rule R31

variant optimizer raw
answers 11 crashes "optimizer:my-optimizer ended the process in its prepare, with status 0" my-optimizer/raw.so --rule R31
answers 10 broken "optimizer:my-optimizer ended the process in its prepare, with status 0: its work" my-optimizer/raw.so --rule R27
variant optimizer leaving
answers 11 crashes "leaving.so) ended the main thread in its prepare: its work" my-optimizer/leaving.so --rule R31
answers 10 broken "leaving.so) ended the main thread in its prepare, in training, at step 3: its work" my-optimizer/leaving.so --rule R27

# hp_size one member short, with members that cannot be parsed: prepare writes beyond it, and a run stops.
variant optimizer short
refused "short.so), in training: writes byte 8 of hp in its prepare, and its hp_size is 8" \
    "$weft" train my-optimizer/try/run.ini optimizer.plugin="$dir/my-optimizer/short.so" run.out="$dir/short"
# A key that is never read violates no rule, because it may need another key, and is named.
variant optimizer deaf
answers 0 holds "so check whether it reads them: momentum" my-optimizer/deaf.so weight_decay=0.1 --rule R31
# Built with floating-point contraction, on a processor with FMA.
if grep -qw fma /proc/cpuinfo; then
    gcc -O3 -march=native -std=gnu11 -fvisibility=hidden -fPIC -shared -I"$WEFT_SOURCE/sdk/include" \
        -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" my-optimizer/my_optimizer.c -o my-optimizer/fma.so -lm
    answers 10 broken "it was built with contraction of products and sums" my-optimizer/fma.so weight_decay=0.1 --rule R117
fi
status=0
CC=nothing PATH=/nonexistent "$weft" plugins check my-optimizer/sound.so --rule R117 >printed 2>&1 || status=$?
{ [ "$status" = 13 ] && grep -qE '^  R117 +untried' printed; } || failed "without a compiler: status $status" printed

# A plugin that cannot work on this machine, and reports that in works, in its entry or in a slot, passes.
variant policy deaf
answers 0 holds "so check whether it reads them: blocks" my-policy/deaf.so --rule R41
variant policy idle
answers 13 untried "no loom is connected here" my-policy/idle.so
[ "$(grep -c '^  R[0-9]* *untried' printed)" = 7 ] || failed "not all but R26 are untried" printed
grep -qE '^  R26 +holds' printed || failed "a plugin that cannot work here is not loaded" printed
variant policy shy
answers 13 untried "no loom is connected here" my-policy/shy.so

# Rejected inputs are not tested: the rule's share is reported, and a policy that rejects most inputs is
# untried.
variant policy picky
answers 13 untried "tested on 1 of 27 trees, which is too few for a result: it rejects 26, first tree 1 of 5 modules: 5 modules are too many" \
    my-policy/picky.so --rule R40
variant policy fussy
answers 0 holds "tested on 26 of 27 trees: it rejects 1, first tree 25 of" my-policy/fussy.so --rule R41
answers 0 holds "jobs in a mode: it rejects" "$WEFT_BUILD/plugins/weft-strategy-single.so" --rule R50
for code in user unsupported; do # a rejection has one of these codes
    variant strategy $code
    answers 0 holds "jobs in a mode: it rejects" my-strategy/$code.so --rule R50
done
variant policy narrow
answers 0 holds "tested on 26 of 27 trees: it rejects 1" my-policy/narrow.so --rule R40

# A required list of paths. A path on the command line starts at the working directory.
variant policy listed
answers 13 untried "also is missing" my-policy/listed.so --rule R40
answers 0 holds "" my-policy/listed.so also=here,/there --rule R40
seq 1 4000 | sed 's/$/ words of a line/' >text.txt
answers 0 holds "" "$WEFT_BUILD/plugins/weft-data-text.so" path=text.txt --rule R70
answers 0 holds "" "$WEFT_BUILD/plugins/weft-data-text.so" path=text.txt --rule R27
prints "$weft" plugins check my-policy/sound.so --rule R40
! grep -q "tested on" printed || failed "a policy that takes all trees is said to refuse some" printed

# A reason is only the error, without earlier warnings; its further lines follow below the first.
variant policy loner
chmod o+w my-policy/loner.so # causes a warning
answers 10 broken "ends with status 1: [0] weft prove: policy:my-policy ($dir/my-policy/loner.so) makes other units on rank 1 than on rank 0: " \
    my-policy/loner.so --rule R28
variant optimizer dies
answers 10 broken "weft prove: rank" my-optimizer/dies.so --rule R28
grep -q "signal 11" printed || failed "the crash is not told" printed
! grep -vE '^( |optimizer:)' printed || failed "a line of the reason stands under no rule" printed
# A run without anything to evaluate names the split's data plugin.
variant data empty
refused "of split validation from [data] plugin = my-data have no target" "$weft" train my-data/try/run.ini \
    data.plugin="$dir/my-data/empty.so" eval.every=2

# An error is attributed to the plugin that causes it, not to its caller.
blames() { # blames KIND NAME SENTENCE: a run with that variant of the tokenizer or adapter, in the file wrong.so
    variant "$1" "$2" wrong
    refused "$3" "$weft" train "my-$1/try/run.ini" "$1.plugin=$dir/my-$1/wrong.so" run.out="$dir/blamed"
    ! grep -E "(data|model):[a-z]+ \(.*: .*my-$1" log || failed "another plugin than the $1 is blamed" log
    rm -rf blamed
}
wrong_tokenizer="tokenizer:my-tokenizer ($dir/my-tokenizer/wrong.so)"
blames tokenizer id "wrong.so): returns the id 999 in its encode"
blames tokenizer fails "text.txt:1: $wrong_tokenizer: it failed in its encode"
blames tokenizer rounds "$wrong_tokenizer: changed the floating-point mode"
blames tokenizer umask "changed the umask while its create ran. It called tokenizer:my-tokenizer ("
in_adapter="adapter:my-adapter ($dir/my-adapter/wrong.so), in training: at 'model.layers.0."
blames adapter same "$in_adapter"
blames adapter rounds "$in_adapter"
blames adapter umask "changed the umask while it was called"

# Built and archived plugins satisfy the rules, or are not tested.
for file in "$WEFT_BUILD"/plugins/weft-*.so "$WEFT_BUILD"/tests/cuda/weft-device-cuda.so "$WEFT_SOURCE"/tests/archive/sdk-*/*.so; do
    is_full || break
    [ -e "$file" ] || continue
    case $file in
        *weft-optimizer*) set -- weight_decay=0.1 ;;
        *weft-policy-class*) set -- classes=LlamaDecoderLayer ;;
        */tests/cuda/*) set -- share=yes ;;
        *weft-device-archive*) continue ;; # the minimal one, which trains, but lacks features that the small model does not need
        *) set -- ;;
    esac
    "$weft" plugins check "$file" "$@" >printed 2>&1 || true
    grep -q '^  R26  *holds' printed || failed "$file is not loaded" printed
    ! grep -E '^  R[0-9]+ +(broken|crashes|hangs)' printed || failed "$file does not hold its rules" printed
done

# Families other than the small model's compute correctly, too.
for family in "$WEFT_SOURCE"/tests/golden/family-*; do
    is_full || break
    type=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["model_type"])' "$family/config.json")
    for rule in R80 R84 R85 R86 R87 R118 R119; do
        answers 0 holds "" "$WEFT_BUILD/plugins/weft-model-$type.so" --directory "$family" --rule "$rule"
    done
done
[ "$failures" = 0 ]
