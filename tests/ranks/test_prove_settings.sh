#!/bin/sh
# `weft prove` on configs/prove.ini with various settings: rounded communication, parameters that stay
# gathered, each MPI, bf16, a replicated root, unavailable ranks, user-defined maps and pins. ctest sets
# WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/ranks/prove_rig.sh
. "$WEFT_SOURCE/tests/ranks/prove_rig.sh"

# Gradients rounded for communication are also rounded if one rank sums them; and parameters may stay
# gathered.
few=$(is_full && echo 4 || echo 2)
prove 0 --ranks $few --steps 2 strategy.reduce_dtype=bf16
says out "38 cells of 2 steps with reduce = ordered: 38 equal, 0 not covered, 0 different"
if is_full; then
    prove 0 --ranks 4 --steps 2 strategy.plugin=fsdp strategy.reshard_after_forward=no
    says out "38 cells of 2 steps with reduce = ordered: 38 equal, 0 not covered, 0 different"
fi

# With each MPI.
if is_full && has openmpi; then
    prove 0 --ranks 4 --steps 2 comm.plugin=mpi-openmpi
    says out "38 cells of 2 steps with reduce = ordered: 38 equal, 0 not covered, 0 different"
fi

# In bf16, gathered parameters are sent rounded, and complete ones are copied; a table used only for lookups
# is rounded when it is read.
prove 0 --ranks $few --steps 2 train.precision=bf16
says out "38 cells of 2 steps with reduce = ordered: 38 equal, 0 not covered, 0 different"

if is_full; then
    # Frozen parameters of a bf16 base are stored and sent in bf16.
    "$weft" train "$WEFT_SOURCE/configs/prove.ini" run.out="$PWD/narrow" checkpoint.dtype=bf16 train.steps=1 >out 2>err ||
        fail "a base in bf16 is made"
    prove 0 --ranks 3 --steps 2 train.precision=bf16 model.path="$PWD/narrow/model" model.start=weights train.trainable=last:1
    says out "37 cells of 2 steps with reduce = ordered: 37 equal, 0 not covered, 0 different"
    cp -r "$WEFT_SOURCE/configs" configs
    sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$WEFT_SOURCE/configs/prove/config.json" \
        >configs/prove/config.json
    "$weft" prove configs/prove.ini --ranks 4 --steps 2 train.precision=bf16 >out 2>err || fail "an untied table in bf16"
    says out "38 cells of 2 steps with reduce = ordered: 38 equal, 0 not covered, 0 different"
fi

# A replicated root: passed on to the fsdp cells, whose programs then differ. The quick suite has it in ranks.plan.
if is_full; then
    prove 0 --ranks 4 --steps 2 strategy.plugin=fsdp strategy.root=replicated --json
    says out '"equal": 38'
    says out '"different": 0'
    programs_of_full() {
        tr -d '\n ' <out | grep -o '"strategy":"fsdp","settings":"full","policy":"block"[^}]*"program":"[0-9a-f]*"' | grep -o '[0-9a-f]*"$' | sort -u
    }
    programs_of_full >replicated
    prove 0 --ranks 4 --steps 2 strategy.plugin=fsdp --json
    programs_of_full >sharded
    [ -s sharded ] && [ -s replicated ] || fail "the small grid holds no fsdp full of policy block"
    [ -z "$(comm -12 sharded replicated)" ] || fail "root = replicated runs the programs of root = sharded"
fi

# The default is 4 ranks. Omitted cells are reported, with a hint.
prove 0 --steps 1
says out "38 cells of 1 step with reduce = ordered: 38 equal"
prove 0 --ranks 1 --steps 1
says out "left out: mp, ddp, fsdp: they need several ranks, and the run has one; set --ranks 4"
prove 0 --steps 1 comm.plugin=self
says out "left out: mp, ddp, fsdp: [comm] plugin = self is a world of one rank; take it out, or set it to mpi"
prove 0 --ranks 4 --steps 1 train.global_batch=4
says out "left out: ddp, fsdp on 3, 4 ranks: 2 micro-batches a step cannot be shared evenly by so many; for N ranks set"
if is_full; then
    prove 0 --ranks 4 --steps 1 train.global_batch=4 --json
    says out '"ddp, fsdp on 3, 4 ranks: 2 micro-batches a step'
fi
mkdir -p lone/plugins # a build without MPI
cp "$weft" lone/weft
cp -r "$WEFT_BUILD/libexec" lone/ # a link would resolve to the build's own plugins
for file in "$WEFT_BUILD"/plugins/*.so; do
    case $file in *-comm-mpi*) ;; *) ln -s "$file" lone/plugins/ ;; esac
done
with=$weft
weft=lone/weft
prove 0 --steps 1
says out "left out: mp, ddp, fsdp: there is no communicator mpi-* that could start ranks: install an MPI"
weft=$with
if [ -e "$(communicator mpich)" ]; then
    # shellcheck disable=SC2046  # words on purpose
    $(launcher mpich 1) "$weft" prove "$WEFT_SOURCE/configs/prove.ini" --steps 1 >out 2>err || fail "a launcher's one rank"
    says out "left out: mp, ddp, fsdp: a launcher has started only one rank (PMI_SIZE = 1)"
fi

# The user's map is tested with a matching number of ranks.
prove 0 --ranks 3 --steps 1 strategy.plugin=mp strategy.device_map="embed,layers.0 = 0; layers.1-2,head = 1"
says out "mp naive, own map"
says out "38 cells of 1 step with reduce = ordered: 38 equal, 0 not covered, 0 different"
says out "left out: the configuration's device_map on 3 ranks: it is for 2; mp runs with auto there"
says out "left out: the configuration's device_map under 1f1b"
grep -q "^ *3  mp .*own map" out && fail "a map for 2 ranks on 3"

# Not more steps than the run has.
prove 0 --ranks 1 --steps 9 train.steps=6
says out "8 cells of 6 steps"
says out "left out: steps 7 to 9: the run has 6 of them"
prove 0 --ranks 1 --steps 6 train.steps=6
grep -q "left out: steps" out && fail "all steps are run"

# A pin applies to the configuration's own plugin, although cells replace it, and not to the replacements.
pin() { # pin KIND ID
    echo "$1:$2=$(sha256sum "$WEFT_BUILD/plugins/weft-$1-$2.so" | cut -c1-64)"
}
prove 0 --ranks 1 --steps 2 plugins.pin="$(pin strategy single),$(pin policy block),$(pin optimizer adamw)"
says out "8 cells of 2 steps with reduce = ordered: 8 equal"
prove 0 --ranks 2 --steps 1 strategy.plugin=fsdp plugins.pin="$(pin strategy fsdp)"
says out "38 cells of 1 step with reduce = ordered: 38 equal, 0 not covered, 0 different"
prove 1 --ranks 1 --steps 2 plugins.pin="policy:block=$(sha256sum "$WEFT_BUILD/plugins/weft-policy-size.so" | cut -c1-64)"
says err "It is another build"
prove 1 --ranks 1 --steps 2 plugins.pin="$(pin policy size)"
says err "pins policy:size, which this run does not use"
exit $((failures > 0))
