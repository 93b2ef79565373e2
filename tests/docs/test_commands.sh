# Runs every command of README.md and of the pages in docs/guide in order, each page in its own directory with
# a copy of configs/. Files shown on a page are written first. Pages need no markup: "$ COMMAND" is run, and
# the text below must be the program's output (has_shown.awk).
#   A shown error "weft COMMAND: ..." means that the command fails; otherwise it must succeed.
#   A shown "^C" is sent after the first training step.
. "$WEFT_SOURCE/tests/common/shell.sh"
here=$WEFT_SOURCE/tests/docs
PATH=$WEFT_BUILD:$PATH
export PATH WEFT_BUILD_DIR="$WEFT_BUILD" LC_ALL=C.UTF-8 OMP_WAIT_POLICY=passive
# Installations of a page stay in this directory, which also has the installed examples.
export HOME="$dir/home"
unset XDG_DATA_HOME || :
mkdir -p "$HOME/.local/share/weft"
cp -r "$WEFT_SOURCE/configs" "$WEFT_SOURCE/sdk/template" "$HOME/.local/share/weft"

interrupted() { # interrupted COMMAND: sends a signal after the first completed step
    sh -c "exec $1" >real 2>&1 </dev/null &
    while ! grep -q '^step' real && kill -0 $! 2>/dev/null; do sleep 0.02; done
    kill -TERM $!
    wait $! || return 1
}

run_step() { # run_step STEP PAGE: runs a command and compares the shown output
    command=$(cat "$1.cmd")
    shown=$1.shown
    [ -e "$shown" ] || : >"$shown"
    status=0
    if grep -qxF '^C' "$shown"; then interrupted "$command" || status=$?
    else limit sh -c "$command" >real 2>&1 </dev/null || status=$?
    fi
    fails=0
    grep -Eq '^weft [a-z][a-z ]*: ' "$shown" && fails=1
    [ "$fails" = "$((status != 0))" ] || failed "$2: $command: exit status $status" real
    grep -vxF -e '^C' -e '...' "$shown" >wanted || :
    sed -i "s|$PWD|/home/you/weft|g" real
    awk -v real=real -f "$here/has_shown.awk" real wanted >log || failed "$2: $command" log real
}

run_page() { # run_page FILE
    mkdir page steps
    awk -v into="$dir/steps" -f "$here/take_steps.awk" "$1"
    cp -r "$WEFT_SOURCE/configs" page
    ln -s "$WEFT_SOURCE/sdk" page/sdk
    cd page
    ls ../steps | sed 's/\..*//' | sort -u >../order
    while read -r step <&3; do
        step=../steps/$step
        if [ -e "$step.file" ]; then
            mkdir -p "$(dirname "$(cat "$step.name")")"
            cp "$step.file" "$(cat "$step.name")"
        elif [ -e "$step.cmd" ]; then
            run_step "$step" "$1"
            n_commands=$((n_commands + 1))
        fi
    done 3<../order
    cd ..
    rm -rf page steps
}

n_commands=0
has mpich && ranks=yes || ranks=no
# The quick suite runs the guides that take seconds, and one for authors of plugins.
guides=
for name in by-hand coming-from troubleshooting your-data your-own-policy; do guides="$guides $WEFT_SOURCE/docs/guide/$name.md"; done
! is_full || guides="$WEFT_SOURCE/README.md $(echo "$WEFT_SOURCE"/docs/guide/*.md)"
for page in ${*:-$guides}; do
    name=${page##*/}
    [ $ranks = yes ] || ! grep -q '^    \$ weft train.*--ranks' "$page" || continue
    before=$n_commands
    start=$(date +%s)
    run_page "$page"
    echo "$name: $((n_commands - before)) commands, $(($(date +%s) - start)) s"
done
[ "$n_commands" -gt 0 ] || failed "no command was found"
[ "$failures" = 0 ]
