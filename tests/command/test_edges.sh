#!/bin/sh
# Edge cases for users: ends of a run, output locations, files that a run may remove, invalid inputs. ctest
# sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"

make_model model 16 4 24 1 512
make_text 40
cat >run.ini <<'INI'
[model]
plugin = llama
path   = model
start  = fresh
[data]
path     = games.txt
document = line
context  = 32
[train]
steps        = 2
global_batch = 4
micro_batch  = 2
[optimizer]
plugin = adamw
[device]
threads = 1
INI
train() { # train OUT ARGUMENT...
    out=$1
    shift
    "$weft" train run.ini "run.out=$out" "$@"
}
await() { # await FILE: waits until the file has content
    while [ ! -s "$1" ]; do sleep 0.05; done
}
saved_at_its_end() { # saved_at_its_end OUT: one checkpoint, of the last record
    [ "$(ls "$1/checkpoints")" = "step-$(wc -l <"$1/metrics.jsonl")" ]
}

# ---- a closed terminal and a closed pipe stop a run like SIGTERM
"$weft" train run.ini run.out=hung train.steps=1000000 checkpoint.every=none --quiet >log 2>&1 &
pid=$!
await hung/metrics.jsonl
kill -HUP $pid
status=0
wait $pid || status=$?
[ "$status" = 75 ] && saved_at_its_end hung || failed "SIGHUP: exit status $status" log
grep -q 'hung up: stopping after this step and saving' log || failed "SIGHUP says nothing" log
train hung --quiet --resume train.steps="$(($(wc -l <hung/metrics.jsonl) + 1))" || failed "no resume after SIGHUP"

# one line per 1,000 steps: the first line without a reader stops the run
{ train piped train.steps=20000 checkpoint.every=none 2>log || echo $? >status; } | { read -r _ && await piped/metrics.jsonl; }
await status
[ "$(cat status)" = 75 ] && saved_at_its_end piped || failed "SIGPIPE: exit status $(cat status)" log
grep -q 'the output has no reader: stopping after this step and saving' log || failed "SIGPIPE says nothing" log

# ---- valid output locations
refused '[run] out = / is the root of the file system' "$weft" train run.ini run.out=/
refused 'is the directory of the model that this run reads' "$weft" train run.ini run.out=model
cp -r model words
refused 'the directory of the tokenizer' "$weft" train run.ini run.out=words tokenizer.path=words
diff -r model words || failed "model/ has changed"
refused 'contains no run to resume' "$weft" train run.ini run.out=here/mistyped --resume
[ ! -e here ] || failed "a mistyped run.out leaves a directory"

# ---- --overwrite removes only files that a run wrote
train one --quiet checkpoint.every=1 || failed "a run"
for mine in model/notes.txt checkpoints/notes.txt checkpoints/step-1/notes.txt checkpoints/step-1/state/notes.txt; do
    echo mine >"one/$mine"
    find one | sort >before
    refused "no run wrote $PWD/one/$mine" "$weft" train run.ini run.out=one --overwrite
    find one | sort | cmp - before || failed "--overwrite removes something beside $mine"
    rm "one/$mine"
done
mkdir -p one/tensorboard && echo mine >one/tensorboard/notes.txt
refused "no run wrote $PWD/one/tensorboard/notes.txt" "$weft" train run.ini run.out=one --overwrite
rm -r one/tensorboard
mkdir one/checkpoints/.step-7.tmp
train one --quiet --overwrite || failed "--overwrite"
# Where no run was made it removes and replaces nothing, on a second try neither; .lock may be another program's.
mkdir -p mine/model && echo mine | tee mine/config.ini mine/metrics.jsonl mine/starts.jsonl >mine/model/config.json
touch mine/.lock
find mine | sort >before
for flag in --overwrite --overwrite --resume --quiet; do
    refused "[run] out = $PWD/mine: it contains config.ini, and no run was made there" "$weft" train run.ini run.out=mine $flag
    find mine | sort | cmp - before || failed "$flag without a run: $(ls -A mine)"
    [ "$(cat mine/config.ini mine/starts.jsonl mine/model/config.json | sort -u)" = mine ] || failed "$flag replaces files"
done
rm -r mine && mkdir mine && echo mine | tee mine/notes.txt mine/config.ini.7.tmp >mine/model.7.tmp
train mine --quiet --overwrite || failed "a run beside other files"
[ "$(cat mine/notes.txt mine/config.ini.7.tmp mine/model.7.tmp | sort -u)" = mine ] || failed "a run beside other files: $(ls -A mine)"
# The lock or the record of starts shows a run that was killed or copied.
for left in .lock starts.jsonl; do
    train one --quiet --overwrite || failed "a run"
    find one -mindepth 1 -maxdepth 1 ! -name $left ! -name config.ini -exec rm -r {} +
    train one --quiet --overwrite || failed "--overwrite with $left alone"
done

# ---- foreign files remain if a run replaces or removes the files around them
train kept --quiet checkpoint.every=1 checkpoint.keep=1 || failed "a run"
mkdir kept/model/onnx && echo mine >kept/model/onnx/model.onnx
echo mine | tee kept/model/README.md >kept/checkpoints/step-2/notes.txt
for steps in 3 4; do
    train kept --quiet --resume checkpoint.every=1 checkpoint.keep=1 train.steps=$steps >log 2>&1 || failed "a resume" log
    [ -e kept/model/README.md ] && [ -e kept/model/onnx/model.onnx ] || failed "files in model/ are lost: $(ls kept/model)"
    [ "$(ls kept/checkpoints | tr '\n' ' ')" = "step-2 step-$steps " ] || failed "what is kept: $(ls kept/checkpoints)"
    says log "no run wrote $PWD/kept/checkpoints/step-2/notes.txt"
done

# ---- a lock is a file of the directory itself
mkdir linked && ln -s "$PWD/elsewhere" linked/.lock
refused "$PWD/linked/.lock is a symbolic link" "$weft" train run.ini run.out=linked
[ ! -e elsewhere ] || failed "a lock is made through a link"
mkdir locked && echo mine >locked/.lock
refused "$PWD/locked/.lock: no run wrote this file" "$weft" train run.ini run.out=locked
[ "$(ls -A locked) $(cat locked/.lock)" = ".lock mine" ] || failed "a foreign lock: $(ls -A locked)"

# ---- the next run removes temporary files of killed processes
train one --quiet --overwrite checkpoint.every=1 || failed "a run"
touch one/config.ini.4711.tmp one/metrics.jsonl.12.tmp one/config.ini.mine.tmp
train one --quiet --resume train.steps=3 || failed "a resume"
[ "$(ls one | grep tmp)" = config.ini.mine.tmp ] || failed "temporary files: $(ls one)"

# ---- a directory is renamed, removed or replaced while a run writes to it
build_held_adamw
hold() { # hold OUT ARGUMENT...: trains in the background until update 3 is due; pid
    rm -f go
    HOLD_AT=3 HOLD_UNTIL=$PWD/go WEFT_PLUGIN_PATH=$PWD/plugins "$weft" train run.ini run.out="$@" --quiet >log 2>&1 &
    pid=$!
}
ends() { # ends STATUS
    touch go
    status=0
    wait $pid || status=$?
    [ "$status" = "$1" ] || failed "exit status $status" log
}
until_lines() { # until_lines FILE N: waits for N lines of a process that then blocks
    for _ in $(seq 3000); do
        [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ] && return 0
        sleep 0.05
    done
    failed "$1 does not come to $2 lines" log
}
for change in renamed removed replaced; do
    hold "was-$change" train.steps=6 checkpoint.every=1
    until_lines "was-$change/checkpoints.jsonl" 2
    case $change in
    removed) rm -r "was-$change" ;;
    *) mv "was-$change" "is-$change" ;;
    esac
    if [ $change = replaced ]; then
        train "was-$change" --quiet checkpoint.every=1 || failed "a run of the same name"
        find "was-$change" -type f | sort | xargs sha256sum >before
    fi
    ends 1
    says log "[run] out = $PWD/was-$change: the directory was renamed, removed or replaced"
    if [ $change = replaced ]; then find "was-$change" -type f | sort | xargs sha256sum | cmp - before || failed "another run is changed"
    else [ ! -e "was-$change" ] || failed "it comes back"
    fi
done
mv is-renamed was-renamed
WEFT_PLUGIN_PATH=$PWD/plugins train was-renamed --quiet --resume train.steps=6 checkpoint.every=1 || failed "a resume after the name is back"

# ---- a plugin that changes the rounding mode or the umask in a step stops the run
cp plugins/weft-optimizer-adamw.so held.so
for change in 'fesetround(FE_UPWARD)=floating-point mode' 'umask(0)=umask'; do
    {
        printf '#include <fenv.h>\n#include <sys/stat.h>\n'
        sed "s/^    adamw_hp \*out = hp;/&\
    (void)${change%=*};/" "$WEFT_SOURCE/plugins/optimizer/adamw/adamw.c"
    } >changes.c
    build optimizer adamw "${CC:-cc}" -O2 changes.c -lm
    WEFT_PLUGIN_PATH=$PWD/plugins refused "optimizer:adamw ($PWD/plugins/weft-optimizer-adamw.so) changed the ${change#*=} while its prepare ran" \
        "$weft" train run.ini run.out=changed --overwrite
done
mv held.so plugins/weft-optimizer-adamw.so

# ---- the tokenizer is saved as the run has read it
cp -r model soon
hold soon.out model.path=soon train.steps=4
until_lines soon.out/metrics.jsonl 2
: >soon/tokenizer.json
rm soon/tokenizer_config.json
ends 0
for file in tokenizer.json tokenizer_config.json; do
    cmp model/$file soon.out/model/$file || failed "another $file is saved than was read"
done

# ---- an evaluation repeated after a kill is recorded only once; the next start updates the best checkpoint
# link
split="data.validation=4 train.steps=4 checkpoint.every=2"
WEFT_PLUGIN_PATH=$PWD/plugins train twice --quiet $split eval.every=none train.steps=2 || failed "a run"
hold twice $split eval.every=2 --resume
until_lines twice/evaluations.jsonl 1
kill -KILL $pid
ends 137
WEFT_PLUGIN_PATH=$PWD/plugins train twice --quiet $split eval.every=2 --resume || failed "a resume after a kill"
[ "$(sed 's/{"step": \([0-9]*\).*/\1/' twice/evaluations.jsonl | tr '\n' ' ')" = "2 4 " ] || failed "evaluations" twice/evaluations.jsonl
best=$(readlink twice/checkpoints/best)
rm twice/checkpoints/best && mkdir twice/checkpoints/.step-4.tmp
ln -s step-1 twice/checkpoints/best
WEFT_PLUGIN_PATH=$PWD/plugins train twice --quiet $split eval.every=2 --resume || failed "a resume of a finished run"
[ "$(readlink twice/checkpoints/best)" = "$best" ] || failed "best leads to $(readlink twice/checkpoints/best), not to $best"
[ ! -e twice/checkpoints/.step-4.tmp ] || failed "half a checkpoint stays"
rm -r plugins

# ---- a damaged record is reported; a truncated one is not
train half --quiet train.steps=3 checkpoint.every=1 || failed "a run"
sed -i '2s/loss/x"/' half/metrics.jsonl
printf '{"step": 4, "lo' >>half/metrics.jsonl
train half --quiet --resume train.steps=4 checkpoint.every=1 >log 2>&1 || failed "a resume with a damaged record" log
grep -q "^weft: warning: $PWD/half/metrics.jsonl:2 is no complete record and is left out$" log && [ "$(wc -l <log)" = 1 ] ||
    failed "a damaged record" log

# ---- a gap in the records is reported; a longer interval is not a gap
train gap --quiet train.steps=5 checkpoint.every=1 run.metrics_every=2 || failed "a run"
train gap --quiet --resume train.steps=9 checkpoint.every=1 >log 2>&1 || failed "a resume" log
[ ! -s log ] || failed "a gap where there is none" log
sed -i 6,7d gap/metrics.jsonl
train gap --quiet --resume train.steps=10 checkpoint.every=1 run.metrics_every=2 >log 2>&1 || failed "a resume with a gap" log
says log "$PWD/gap/metrics.jsonl: the records of steps 7 to 8 are missing"
rm gap/metrics.jsonl
train gap --quiet --resume train.steps=11 checkpoint.every=1 >log 2>&1 || failed "a resume without records" log
says log "$PWD/gap/metrics.jsonl: the records of steps 1 to 10 are missing"

# ---- inputs are regular files, and opening a pipe does not block
mkfifo pipe
for input in config.json tokenizer.json model.safetensors; do
    rm -rf piped.model && cp -r model piped.model && rm -f "piped.model/$input" && mkfifo "piped.model/$input"
    start=fresh && [ "$input" != model.safetensors ] || start=weights
    refused "$PWD/piped.model/$input: is not a" limit "$weft" train run.ini "run.out=of-$start" model.path=piped.model model.start=$start
done
refused 'pipe is not a regular file' limit "$weft" train run.ini run.out=none data.path=pipe
refused 'pipe: cannot be read: it is not a regular file' limit "$weft" train pipe run.out=none

# ---- input that is not text is rejected
printf '\376\377\000a\000b' >wide.txt
refused 'wide.txt is UTF-16. Allowed: UTF-8.' "$weft" train run.ini run.out=none data.path=wide.txt
head -c 40 games.txt | sed 's/./&\x00/g' >zeros.txt
refused 'zeros.txt is no text' "$weft" train run.ini run.out=none data.path=zeros.txt
gzip -c games.txt | tr '\000' '\001' >packed.txt
refused 'packed.txt is no text' "$weft" train run.ini run.out=none data.path=packed.txt
{ cat games.txt && printf 'caf\351 cr\350me \303\251t\303\251\n'; } >latin.txt # some bytes are not UTF-8
train latin --quiet data.path=latin.txt || failed "a text of another encoding"

# ---- paths in a configuration exist, and numbers are valid
for path in model.path data.path data.validation tokenizer.path; do
    refused "/nowhere): No such file or directory" "$weft" config check run.ini run.out=none "$path=./nowhere"
done
"$weft" config check run.ini run.out=none >log 2>&1 || failed "config check of what is there" log
refused 'lr = 1e308 is too large a number: give a number of at least 0 and at most' "$weft" config check run.ini run.out=none optimizer.lr=1e308
refused 'lr = 1e200 is outside' "$weft" config check run.ini run.out=none optimizer.lr=1e200
refused 'lr = fast is not a number' "$weft" config check run.ini run.out=none optimizer.lr=fast

# ---- control characters in files do not reach the terminal
cp -r model loud
sed -i 's/"silu"/"si\\u001b[31m\\u009b1m\\u0007lu"/' loud/config.json
! "$weft" train run.ini run.out=none model.path=loud >log 2>&1 || failed "an activation that is none"
grep -q 'hidden_act' log && ! LC_ALL=C grep -q "$(printf '[\033\007\233]')" log || failed "control bytes reach the terminal" log

# ---- an unreadable tokenizer is not a missing one; one that multiplies a text is stopped
cp -r model looped && rm looped/tokenizer.json && ln -s tokenizer.json looped/tokenizer.json
refused 'looped/tokenizer.json: cannot be read: Too many levels of symbolic links' "$weft" train run.ini run.out=none tokenizer.path=looped
cp -r model growing
many=$(printf 'e%.0s' $(seq 200))
step="{\"type\":\"Replace\",\"pattern\":{\"String\":\"e\"},\"content\":\"$many\"}"
sed -i "s/\"normalizer\": *null/\"normalizer\": {\"type\":\"Sequence\",\"normalizers\":[$step,$step,$step,$step]}/" growing/tokenizer.json
refused 'bytes: the replacements of tokenizer.json' "$weft" train run.ini run.out=none tokenizer.path=growing

# ---- a plugin that ends the process without an error
mkdir plugins
ends() { # ends CALL CODE: a strategy with that code in its compile is rejected because it makes that call
    sed 's/"single"/"leaver"/; s/^#include <weft\/emit.h>/&\n#include <unistd.h>/; s/weft_emit_begin(emitter);/&\n    '"$2"'/' \
        "$WEFT_SOURCE/plugins/strategy/single/single.c" >leaver.c
    build strategy leaver "${CC:-cc}" -O2 leaver.c
    WEFT_PLUGIN_PATH="$PWD/plugins" refused "calls $1, which would end the process without a message" \
        "$weft" train run.ini run.out=none strategy.plugin=leaver
}
ends _exit '_exit(0);'
ends execlp '(void)execlp("true", "true", (char *)NULL);'
ends execve 'char *words[] = {(char *)config, NULL}; (void)execve("\/bin\/true", words, words);'

# ---- a plugin call that does not return
sed 's/"adamw"/"sleeper"/; s/^    optimizer->host = host;/    (void)sleep(12);/' \
    "$WEFT_SOURCE/plugins/optimizer/adamw/adamw.c" >sleeper.c
grep -q 'sleep(12)' sleeper.c || failed "no sleeper"
sed -i 's/(void)sleep(12);/(void)sleep(12);\n    optimizer->host = host;/' sleeper.c
build optimizer sleeper "${CC:-cc}" -O2 -include unistd.h sleeper.c -lm
WEFT_PLUGIN_PATH="$PWD/plugins" "$weft" train run.ini run.out=slept optimizer.plugin=sleeper --quiet >slept.log 2>&1 &
sleeper=$!
# in a slot that planning calls, too
sed 's/"whole"/"napper"/; s/^    (void)host;/    (void)sleep(12);\n&/' "$WEFT_SOURCE/plugins/policy/whole/whole.c" >napper.c
grep -q 'sleep(12)' napper.c || failed "no napper"
build policy napper "${CC:-cc}" -O2 -include unistd.h napper.c
WEFT_PLUGIN_PATH="$PWD/plugins" "$weft" train run.ini run.out=napped policy.plugin=napper --quiet >napped.log 2>&1 &
napper=$!
if has mpich; then # also in the trial run before the ranks start
    sed 's/(void)sleep(12);/(void)(getenv("PMI_RANK") == NULL \&\& sleep(12));/' sleeper.c >dozer.c
    sed -i 's/"sleeper"/"dozer"/' dozer.c
    build optimizer dozer "${CC:-cc}" -O2 -include unistd.h -include stdlib.h dozer.c -lm
    WEFT_PLUGIN_PATH="$PWD/plugins" "$weft" train run.ini run.out=dozed optimizer.plugin=dozer strategy.plugin=ddp --ranks 2 \
        --quiet >dozed.log 2>&1 &
    dozer=$!
fi

# ---- missing weights are reported before planning, and fast for a model with very many layers
sed 's/"single"/"early"/; s/return weft_emit_end(&e, err);/return weft_error_set(err, WEFT_E_PLUGIN, "asked too early.");/' \
    "$WEFT_SOURCE/plugins/strategy/single/single.c" >early.c
build strategy early "${CC:-cc}" -O2 early.c
export WEFT_PLUGIN_PATH="$PWD/plugins"
refused 'asked too early.' "$weft" train run.ini run.out=none strategy.plugin=early
refused "$PWD/model: " "$weft" train run.ini run.out=none strategy.plugin=early model.start=weights
! grep -q 'asked too early' log || failed "the strategy is asked first" log
unset WEFT_PLUGIN_PATH
cp -r one/model tall
sed -i 's/"num_hidden_layers": *1,/"num_hidden_layers": 65535,/' tall/config.json
(
    failures=0
    [ "$WEFT_SANITIZED" = ON ] || ulimit -t 20 # CPU seconds: planning would take minutes, declaring takes two seconds
    refused "missing (model.layers.1.self_attn.q_proj.weight," "$weft" train run.ini run.out=none model.path=tall model.start=weights
    [ "$failures" = 0 ]
) || failed "65,535 layers"

# ---- invalid rank counts are rejected before a rank starts
for ranks in 3 1e3; do
    refused "weft train: strategy single runs on one rank, and this job has $(printf '%.0f' $ranks)" "$weft" train run.ini run.out=none --ranks $ranks
    ! grep -q '^\[0\]' log || failed "--ranks $ranks starts some" log
done
[ ! -e none ] || failed "what is refused leaves a directory"

wait $sleeper || failed "a create that takes long" slept.log
[ "$(cat slept.log)" = "weft: warning: optimizer:sleeper ($PWD/plugins/weft-optimizer-sleeper.so) has been in its create for 10 s and goes on" ] ||
    failed "a create that takes long is told" slept.log
wait $napper || failed "units that take long" napped.log
grep -qF "weft: warning: policy:napper ($PWD/plugins/weft-policy-napper.so) has been in its units for 10 s and goes on" napped.log ||
    failed "units that take long are told" napped.log
if has mpich; then
    wait $dozer || failed "a create that takes long under --ranks" dozed.log
    grep -q "^weft: warning: optimizer:dozer ($PWD/plugins/weft-optimizer-dozer.so) has been in its create for 10 s" dozed.log ||
        failed "it is told before the ranks are" dozed.log
fi

[ "$failures" = 0 ]
