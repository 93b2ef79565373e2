# Every command of README.md and of the pages in docs/guide is run, in the order of the page, in a directory of the page's
# own that begins with a copy of configs/; a file that a page shows is written first. Nothing on a page marks this for its
# reader: "$ COMMAND" is run, and what stands below it has to be what the program says (has_shown.awk).
#   A shown sentence "weft COMMAND: ..." says that it fails; without one it has to end well.
#   A shown "^C" is typed once the command has trained a step.
. "$WEFT_SOURCE/tests/common/shell.sh"
here=$WEFT_SOURCE/tests/docs
PATH=$WEFT_BUILD:$PATH
export PATH WEFT_BUILD_DIR="$WEFT_BUILD" LC_ALL=C.UTF-8 OMP_WAIT_POLICY=passive
# What a page installs stays here, and what an installation has of examples is there.
export HOME="$dir/home"
unset XDG_DATA_HOME || :
mkdir -p "$HOME/.local/share/weft"
cp -r "$WEFT_SOURCE/configs" "$HOME/.local/share/weft"

interrupted() { # interrupted COMMAND: stopped by a signal once it has said that a step is done
    sh -c "exec $1" >real 2>&1 </dev/null &
    while ! grep -q '^step' real && kill -0 $! 2>/dev/null; do sleep 0.02; done
    kill -TERM $!
    wait $! || return 1
}

run_step() { # run_step STEP PAGE: a command with what is shown of it
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
for page in ${*:-"$WEFT_SOURCE"/README.md "$WEFT_SOURCE"/docs/guide/*.md}; do
    name=${page##*/}
    [ $ranks = yes ] || ! grep -q '^    \$ weft train.*--ranks' "$page" || continue
    before=$n_commands
    start=$(date +%s)
    run_page "$page"
    echo "$name: $((n_commands - before)) commands, $(($(date +%s) - start)) s"
done
[ "$n_commands" -gt 0 ] || failed "no command was found"
[ "$failures" = 0 ]
