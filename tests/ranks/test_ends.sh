#!/bin/sh
# A plugin that ends its process with _exit and status 0: the watchdog detects the lost rank, and names the
# plugin and its slot. With --ranks and under a launcher.
set -eu
# shellcheck source=tests/ranks/rig.sh
. "$WEFT_SOURCE/tests/ranks/rig.sh"
trap 'end_ranks; rm -rf "$dir"' EXIT INT TERM
sed 's/^    sgd_hp \*out = hp;/&\
    if (step->update == 2) syscall(SYS_exit_group, 0);/; s/"sgd"/"leaver"/; 1i #include <sys/syscall.h>\
#include <unistd.h>' "$WEFT_SOURCE"/plugins/optimizer/sgd/sgd.c >leaver.c
build optimizer leaver "${CC:-cc}" -std=gnu11 leaver.c

ended='rank [01] was ended by optimizer:leaver in its prepare, with status 0, in step 2, at instruction [0-9]+, STEP'
unseen='rank [01] died without a report, .* while optimizer:leaver was in its prepare, in step 2, at instruction [0-9]+, STEP'
tried=
for id in mpich openmpi; do
    has "$id" || continue
    tried=yes
    for how in ranks bare; do
        set -- "$weft" train run.ini "comm.plugin=mpi-$id" optimizer.plugin=leaver train.global_batch=2
        if [ "$how" = ranks ]; then
            set -- "$@" --ranks 2
        else
            # shellcheck disable=SC2046  # words on purpose
            set -- $(launcher "$id" 2) "$@"
        fi
        rm -rf one
        status=0
        "$@" >out.txt 2>err.txt </dev/null || status=$?
        # A foreign launcher returns the status chosen by the plugin.
        [ "$how" = bare ] || [ "$status" = 1 ] || fail "a run that a plugin has ended has status $status ($id)"
        says "^weft[a-z ]*: ($ended|$unseen): the other ranks were stopped"
        [ ! -e one/model ] || fail "the run had come to its end ($how, $id)"
        echo "a plugin that ends a rank is named ($how, mpi-$id)"
    done
done
[ -n "$tried" ] || { echo "skipped: no MPI was built"; exit 77; }
