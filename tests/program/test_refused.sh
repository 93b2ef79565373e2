#!/bin/sh
# A rejected program is reported with the strategy's kind, id, file and mode, and can be printed with a mark
# at the error. Programs of any rank and mode can be printed. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

make_model model 16 4 24 2 512
make_text 40
cat >run.ini <<'INI'
[model]
plugin = llama
path   = model
start  = fresh
[data]
path       = games.txt
document   = line
context    = 32
validation = 5
[train]
steps        = 2
global_batch = 4
micro_batch  = 2
INI
mkdir plugins
mutant() { # mutant ID FROM TO: `single` with one edit
    sed "s/\"single\"/\"$1\"/; s/$2/$3/" "$WEFT_SOURCE/plugins/strategy/single/single.c" >"$1.c"
    ! sed "s/\"single\"/\"$1\"/" "$WEFT_SOURCE/plugins/strategy/single/single.c" | cmp -s - "$1.c" || failed "$1 is no mutant"
    build strategy "$1" "${CC:-cc}" -O2 "$1.c"
}
mutant unnormed 'weft_emit_plain(e, WEFT_INSTRUCTION_NORM);' ''
mutant unstepped 'weft_emit_plain(e, WEFT_INSTRUCTION_STEP);' ''
mutant eager 'else forward(&e, job, 0);' 'else { forward(\&e, job, 0); if (job->mode == WEFT_MODE_EVALUATE) forward(\&e, job, 0); }'
mutant mute 'return weft_emit_end(&e, err);' 'if (job->mode != WEFT_MODE_GENERATE) return weft_emit_end(\&e, err); return weft_error_set(err, WEFT_E_PLUGIN, "no.");'
mutant endless 'weft_emit_plain(e, WEFT_INSTRUCTION_NORM);' 'for (volatile int i = 0;; i = 1 - i);'
mutant flood 'weft_emit_plain(e, WEFT_INSTRUCTION_NORM);' 'for (int i = 0; i < 5000; i++) weft_emit_plain(e, WEFT_INSTRUCTION_NORM);'
export WEFT_PLUGIN_PATH="$PWD/plugins"

refuses() { # refuses ID MODE SENTENCE MARKED: reports the error; with the flag it also prints the program
    id=$1 mode=$2
    shift 2
    ! "$weft" plan run.ini "strategy.plugin=$id" "$mode" --print-program >shown 2>told || failed "$id is not refused"
    grep -qF "strategy:$id ($PWD/plugins/weft-strategy-$id.so), in ${mode#--mode=}: $1" told || failed "$id: $1" told
    [ "$(grep -c '<==' shown)" = "${3:-1}" ] && grep -Eq "$2" shown || failed "$id: $2" shown told
}
refuses unnormed --mode=training 'rank 0, instruction ' ' STEP +<== refused$'
grep -q '^program of rank 0 in training, with the rejected instruction highlighted$' shown || failed "whose program it is" shown
refuses unstepped --mode=training 'rank 0: its program ends after ' '^ +[0-9]+  <== something is missing$'
refuses eager --mode=evaluation 'rank 0, instruction 6, FORWARD embed micro-batch 0: instruction 0 has done this already' '^ +6 .*  <== refused$'
refuses mute --mode=generation 'no.' '^program of rank 0 in generation' 0
! "$weft" train run.ini strategy.plugin=eager run.out=one >shown 2>told || failed "eager trains"
! grep -q '<==' shown || failed "a program is shown that nobody asked for" shown

# ---- a call that never returns, and an endless program
refused "strategy:endless ($PWD/plugins/weft-strategy-endless.so) has been in its compile for 0.3 s, which [plugins] compile_seconds allows" \
    "$weft" plan run.ini strategy.plugin=endless plugins.compile_seconds=0.3
refused 'emits more than 200 instructions for one program, which [plugins] compile_events allows' \
    "$weft" plan run.ini strategy.plugin=flood plugins.compile_events=200
refused 'NORM: instruction 31 has done this already' "$weft" plan run.ini strategy.plugin=flood # with enough memory for it
prints "$weft" plan run.ini plugins.compile_seconds=60 plugins.compile_events=200

# ---- an accepted plan
instructions() { # events FILE: the printed instructions of a program
    sed -n '/^index /,$p' "$1" | awk '/^ +[0-9]+ /{ print $3 }' | sort | uniq -c | tr -s ' \n' ' '
}
prints "$weft" plan run.ini strategy.plugin=mp --ranks 2 --print-program
cp printed first
prints "$weft" plan run.ini strategy.plugin=mp --ranks 2 --print-program --rank 1
grep -q 'FORWARD head' printed && ! grep -q 'FORWARD embed' printed || failed "not the program of rank 1" printed
grep -q 'FORWARD embed' first && ! grep -q 'FORWARD head' first || failed "not the program of rank 0" first
for mode in evaluation generation; do
    prints "$weft" plan run.ini --print-program --mode "$mode"
    [ "$(instructions printed)" = " 6 FORWARD " ] || failed "not the program of $mode" printed
done
refused '--mode eval does not exist' "$weft" plan run.ini --print-program --mode eval
refused '--mode requires --print-program' "$weft" plan run.ini --mode evaluation

[ "$failures" = 0 ]
