#!/bin/sh
# Ranks that would train differently do not start: different files, data, plugins and programs.
set -eu
# shellcheck source=tests/ranks/rig.sh
. "$WEFT_SOURCE/tests/ranks/rig.sh"
trap 'rm -rf "$dir"' EXIT INT TERM
has mpich || exit 77

# Rank 2 runs the command in "other", the others the one in "usual".
cat >wrapper <<'SH'
#!/bin/sh
if [ "$PMI_RANK" = 2 ]; then exec sh ./other; else exec sh ./usual; fi
SH
begin() { # begin WHAT USUAL OTHER: 3 ranks, which fail without training
    echo "exec $2" >usual
    echo "exec $3" >other
    status=0
    # shellcheck disable=SC2046  # words on purpose
    limit $(launcher mpich 3) sh ./wrapper >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] || fail "$1: exit status $status"
    [ ! -e one/model ] || fail "$1: something was trained"
}
differ() { # differ WHAT USUAL OTHER: begin, and rank 0 reports the difference to rank 2
    begin "$@"
    [ "$status" = 1 ] || fail "$1: exit status $status"
    [ "$(grep -c "as shown above; nothing was trained" err.txt)" = 1 ] || fail "$1: it is not said once"
    grep -qx '\[0\] weft [a-z]*: rank 2 and rank 0 differ in .*' err.txt || fail "$1: rank 2 is not named"
}
row() { # row NAME FIRST OTHER: the table contains it
    grep -qE "^\[0\] $1 +$2 +$3\$" err.txt || fail "there is no row \"$1 $2 $3\""
}

sed -i "s/^global_batch = 4/global_batch = 6/" run.ini
run="$weft train $dir/run.ini --overwrite"
sed 's/^global_batch = 6/global_batch = 3/; s/^plugin = ddp/plugin = ddp\nreduce_at = last/; s/^threads = 1/threads = 2/' \
    run.ini >other.ini
differ "another file" "$run" "$weft train $dir/other.ini --overwrite"
row '' 'rank 0' 'rank 2'
row '\[train\] global_batch' 6 3
row '\[strategy\] reduce_at' each last
! grep -q threads err.txt || fail "a key that may differ is compared"

# A difference after 6,000 equal characters.
long=$(printf 'a_key_of_some_sort,%.0s' $(seq 320))
differ "a long value" "$run model.ignore=${long}this_one,an_end" "$run model.ignore=${long}that"
row '\[model\] ignore' '\.\.\.some_sort,this_one,an_end' '\.\.\.some_sort,that'

mkdir elsewhere elsewhere/plugins
cp games.txt elsewhere/
cp "$WEFT_BUILD/plugins/weft-policy-block.so" elsewhere/plugins/
printf 'x' >>elsewhere/plugins/weft-policy-block.so
differ "another plugin file" "$run" "env WEFT_PLUGIN_PATH=$dir/elsewhere/plugins:$WEFT_BUILD/plugins $run"
row 'plugin policy' 'block [0-9.]+, sha256 [0-9a-f]+\.\.\.' 'block [0-9.]+, sha256 [0-9a-f]+\.\.\.'

# The same path with another text, as on two hosts.
sed 's#^path       = games.txt#path = /proc/self/cwd/games.txt#' run.ini >here.ini
tail -n 20 games.txt >elsewhere/games.txt
if unshare --uts hostname other 2>err.txt; then
    differ "other data" "$weft train $dir/here.ini --overwrite" \
        "unshare --uts sh -c 'hostname other; cd elsewhere; exec $weft train $dir/here.ini --overwrite'"
    row 'the rows of the data' '[0-9a-f]{16}' '[0-9a-f]{16}'
else
    echo "skipped: other data on a host of another name needs unshare --uts, which root has"
fi

# The same path with another weight file: a copy, and one with a single different byte.
make_model wide 64 16 112 2 512
$weft train run.ini run.out=made model.path=wide >out.txt 2>err.txt || fail "no weights are made"
cp made/model/model.safetensors wide/
sed 's#^path *= model$#path = /proc/self/cwd/wide#; s/^start *= fresh$/start = weights/' run.ini >here.ini
cp -r wide games.txt elsewhere/
# shellcheck disable=SC2046  # words on purpose
limit $(launcher mpich 3) sh -c "if [ \$PMI_RANK = 2 ]; then cd elsewhere; fi; exec $weft train $dir/here.ini --overwrite" \
    >out.txt 2>err.txt </dev/null || fail "ranks with equal copies of the weights do not train"
[ -e one/model/model.safetensors ] || fail "nothing was trained from copies"
rm -r one
flip() { # flip FILE PLACE: changes one byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059  # the format is the byte
    printf "\\$(printf %03o $((255 - byte)))" | dd of="$1" bs=1 conv=notrunc seek="$2" 2>dd.txt
}
# Between 64 blocks of 4 KiB spread evenly over the file, so that sampled hashes would miss it.
bytes=$(wc -c <elsewhere/wide/model.safetensors)
gap=$(((bytes - 4096) / 63 - 4096))
[ "$gap" -gt 8 ] || fail "the weights are too few for a gap"
flip elsewhere/wide/model.safetensors $(((bytes - 4096) * 31 / 63 + 4096 + gap / 2))
differ "other weights" "$weft train $dir/here.ini --overwrite" "env -C elsewhere $weft train $dir/here.ini --overwrite"
row 'model.safetensors' '[0-9]+ bytes, sha256 [0-9a-f]+\.\.\.' '[0-9]+ bytes, sha256 [0-9a-f]+\.\.\.'
# A constant of the model that changes no program.
sed -i 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.25/' elsewhere/wide/config.json
grep -q '"rms_norm_eps": 0.25' elsewhere/wide/config.json || fail "config.json has no rms_norm_eps"
differ "another config.json" "$weft train $dir/here.ini --overwrite" "env -C elsewhere $weft train $dir/here.ini --overwrite"
row "the model's config.json" 'sha256 [0-9a-f]+(\.\.\.)?' 'sha256 [0-9a-f]+(\.\.\.)?'

# A strategy that emits another program on rank 2, from the same file.
sed 's/^#define QUEUE 1$/#define QUEUE (atoi(getenv("PMI_RANK")) == 2 ? 2 : 1)/; 1i #include <stdlib.h>' \
    "$WEFT_SOURCE"/plugins/strategy/ddp/ddp.c >moody.c
sed -i 's/WEFT_PLUGIN(strategy, 1, "ddp"/WEFT_PLUGIN(strategy, 1, "moody"/' moody.c
build strategy moody "${CC:-cc}" moody.c
apart() { # apart WHAT TITLE DOES COMMAND: rank 0 names the plugin and the difference, and no training starts
    begin "$1" "$4" "$4"
    grep -qE "^\[0\] weft [a-z]+: $2 \(/.*\.so\) $3its file, its keys and its inputs are the same there, .*; nothing was trained\$" err.txt ||
        fail "$1: it is not said who answers otherwise"
    ! grep -q "another file" err.txt || fail "$1: a file is blamed"
}
apart "another program" strategy:moody "compiles other programs on rank 2 than on rank 0: " "$run strategy.plugin=moody"
begin "another program in a proof" "$weft prove $dir/run.ini --steps 1 strategy.plugin=moody" \
    "$weft prove $dir/run.ini --steps 1 strategy.plugin=moody"
says '^\[[0-2]\] weft prove: moody.*: strategy:moody \(/.*\.so\) compiles other programs on this rank than on rank [0-2], which compiled the cell for all: its file, '
! grep -q "another file" err.txt || fail "a file is blamed in a proof"

# Units and tensors that depend on the rank.
sed 's/if (module->is_block)/if (module->is_block \&\& atoi(getenv("PMI_RANK")) == 0)/; s/"block", "0/"loner", "0/; 1i #include <stdlib.h>' \
    "$WEFT_SOURCE"/plugins/policy/block/block.c >loner.c
build policy loner "${CC:-cc}" loner.c
units='makes other units on rank 1 and 1 more than on rank 0: 1 \(root\) on rank 1 and 1 more and 3 \(root, model.layers.0, model.layers.1\) on rank 0; '
apart "other units" policy:loner "$units" "$run policy.plugin=loner"
apart "other units of arms" policy:loner "$units" "$weft ab $dir/run.ini --rounds 1 policy.plugin=loner strategy.plugin=ddp,fsdp"
apart "other units of a proof" policy:loner "$units" "$weft prove $dir/run.ini --steps 1 policy.plugin=loner"
"$weft" plugins new model wider >out.txt 2>err.txt || fail "no model is made"
sed 's/"intermediate_size", 1 << 22, err);/&\n    if (atoi(getenv("PMI_RANK")) == 2) self->inner += 8;/; 1i #include <stdlib.h>' wider/wider.c >wider.c
build model wider "${CC:-cc}" wider.c
apart "other tensors" model:wider "declares other parameters on rank 2 than on rank 0: [0-9]+, of [0-9]+ elements on rank 2 and .*; " \
    "$run model.plugin=wider model.path=$dir/wider/try data.context=16 tokenizer.path=$dir/model"

# The same for a proof: the configuration, the plugins of the cells, and their programs.
proof="$weft prove $dir/run.ini --steps 1 strategy.plugin=single"
differ "another rate in a proof" "$proof" "$proof optimizer.lr=0.5"
row '\[optimizer\] lr' 0.001 0.5
mkdir few few/plugins # the program searches plugins next to itself
cp -r "$weft" "$WEFT_BUILD/libexec" few/
for plugin in "$WEFT_BUILD"/plugins/*.so; do ln -s "$plugin" few/plugins/; done
rm few/plugins/weft-strategy-fsdp.so
differ "no fsdp for a proof" "$proof" "env WEFT_PLUGIN_PATH= few/$(basename "$weft") ${proof#"$weft "}"
row 'cells of fsdp' '[0-9]+' -
sed 's/^#define QUEUE 1$/#define QUEUE 2/' "$WEFT_SOURCE"/plugins/strategy/ddp/ddp.c >queue.c
build strategy ddp "${CC:-cc}" queue.c
mkdir queue
mv plugins/weft-strategy-ddp.so queue/
begin "another ddp in a proof" "$proof" "env WEFT_PLUGIN_PATH=$dir/queue:$WEFT_BUILD/plugins $proof"
says '^\[[0-2]\] weft prove: ddp.*: strategy:ddp \(/.*\.so\) is another file on this rank \(sha256 [0-9a-f]+\.\.\.\) than on rank [0-2], which compiled the cell for all \(sha256 '

# Equal ranks: keys that may differ do differ.
limit $(launcher mpich 3) sh -c "exec $run device.threads=\$((PMI_RANK + 1))" \
    >out.txt 2>err.txt </dev/null || fail "ranks that are alike do not train"
[ -e one/model/model.safetensors ] || fail "nothing was trained"
echo "ranks that differ do not begin"
