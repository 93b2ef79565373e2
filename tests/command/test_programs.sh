#!/bin/sh
# The command line as a whole: tools, external commands, help, the manual page and completions.
set -u
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

# A program weft-NAME on the PATH is a command. It receives the arguments and the path of weft.
mkdir bin
cat >bin/weft-count <<'SH'
#!/bin/sh
echo "count $*"
"$WEFT_PROGRAM" --version
exit 7
SH
chmod +x bin/weft-count
status=0
PATH=$dir/bin:$PATH "$weft" count a "b c" --json >out 2>err || status=$?
[ $status = 7 ] || failed "weft count: exit status $status" out err
says out "count a b c --json"
says out "$("$weft" --version)"
PATH=$dir/bin:$PATH "$weft" --help >out
says out "$dir/bin/weft-count"
PATH=bin:$PATH "$weft" count >out 2>err && failed "a relative directory of PATH is searched" out
status=0
PATH=$dir/bin:$PATH "$weft" ../count >out 2>err || status=$?
[ $status = 2 ] || failed "a name with a slash: exit status $status" out err

# The example of docs/commands.md.
sed -n '/^    #!\/bin\/sh$/,/^$/s/^    //p' "$WEFT_SOURCE/docs/commands.md" >bin/weft-losses
chmod +x bin/weft-losses
mkdir some-run
printf '{"step": 1, "loss": 2.5, "lr": 0.1}\n{"step": 2, "loss": 1.25}\n' >some-run/metrics.jsonl
PATH=$dir/bin:$PATH "$weft" losses some-run >out 2>err || failed "weft losses" out err
printf '2.5\n1.25\n' | cmp -s - out || failed "the losses" out

# Without its tools the program names the missing file, and its own commands work.
mkdir lone
cp "$weft" lone/weft
refused weft-prove lone/weft prove run.ini
prints lone/weft --version

# Each command's help fits 80 columns and has two examples that start with the command.
"$weft" --help >help
[ "$(grep -c '^  weft ' help)" = 2 ] || failed "the help has not two examples" help
sed -n 's/^  \([a-z]*\( [a-z]*\)\{0,1\}\)  *[A-Z].*\.$/\1/p' help | sed 's/ *$//' >names
[ "$(wc -l <names)" -gt 20 ] || failed "the help lists too few commands" help
while read -r name; do
    # shellcheck disable=SC2086  # a name may have two words
    prints "$weft" $name --help
    cat printed >>help
    [ "$(sed -n '/^Examples:/,$p' printed | grep -c "weft $name")" = 2 ] || failed "weft $name --help has not two examples" printed
done <names
awk 'length > 80' help >long
[ ! -s long ] || failed "help is wider than 80 columns" long

# The manual page and the completions contain all commands and flags of the help.
manual=$WEFT_BUILD/manual
while read -r name; do says "$manual/weft.1" ".SS \"weft $name\""; done <names
grep -o '^  --[a-z-]*' help | sort -u | while read -r flag; do
    grep -qF -- "$(echo "$flag" | sed 's/-/\\-/g')" "$manual/weft.1" && grep -qF -- "$flag" "$manual/weft.bash" &&
        grep -qF -- "$flag" "$manual/_weft" || echo "$flag"
done >missing
[ ! -s missing ] || failed "flags are missing in the manual or a completion" missing
if command -v groff >/dev/null; then
    groff -man -ww -Tascii "$manual/weft.1" >page 2>err || failed "groff fails" err
    [ ! -s err ] || failed "groff warns of the manual page" err
fi
if command -v bash >/dev/null; then
    offered() { # offered WORD...: completions of bash for the last word
        bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; echo "${COMPREPLY[*]}"' "$manual/weft.bash" "$@"
    }
    [ "$(offered weft tr)" = train ] || failed "completion of tr: $(offered weft tr)"
    [ "$(offered weft plugins ch)" = check ] || failed "completion of plugins ch"
    [ "$(offered weft train run.ini --over)" = --overwrite ] || failed "completion of --over"
    [ "$(offered weft plugins check --se)" = --seconds ] || failed "completion of --se"
fi

# One run of each listed command; the sanitizers run these.
make_run <<'INI'
steps = 2
[optimizer]
lr = 1e-3
[checkpoint]
every = 2
[strategy]
plugin = single
INI
run() { # run NAME ARGUMENT...: it succeeds
    echo "$1" >>ran
    words=$1
    shift
    # shellcheck disable=SC2086  # a name may have two words
    prints limit "$weft" $words "$@"
}
run "config check" run.ini
run "config describe" train
run "config explain" run.ini --json
run "data show" run.ini --n 1
run "data stats" run.ini
run plan run.ini --print-program
run train run.ini run.out=base
run train run.ini model.path=base/model model.start=weights adapter.plugin=lora adapter.r=2 run.out=learned
run eval learned
run generate learned --prompt "1. e4" --tokens 4
run merge base/model learned/model merged
run report learned base
run profile run.ini --steps 1 --warmup 0
run prove run.ini --ranks 1 --steps 1
echo ab >>ran
status=0
limit "$weft" ab run.ini --vary train.micro_batch=1,2 --rounds 2 --steps 1 --learn 0 >printed 2>printed.err || status=$?
[ $status -ge 10 ] || [ $status = 0 ] || failed "ab: exit status $status" printed printed.err
run init base/model games.txt -o first.ini
run tokenize model <games.txt
run "plugins list"
run "plugins describe" optimizer:adamw
run "plugins new" policy mine
run "plugins check" "$WEFT_BUILD/plugins/weft-policy-block.so" --rule R26
if has mpich; then run "plugins exchange" run.ini --ranks 2; else echo "plugins exchange" >>ran; fi
sort -u ran >ran.names
sort -u names >listed
cmp -s ran.names listed || failed "commands were not run" listed ran.names
exit "$failures"
