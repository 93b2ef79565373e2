#!/bin/sh
# Plugin files that a run accepts, [plugins] pin, pin_list and trust, and warnings about accepted files. ctest
# sets WEFT_BUILD and WEFT_SOURCE.
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
[train]
steps        = 2
global_batch = 4
INI
mkdir plugins
CC=${CC:-cc}
mine() { # mine ID SOURCE FLAGS...: the policy `whole` under another id; its code writes a file when it runs
    id=$1
    shift
    sed "s/\"whole\"/\"$id\"/" "$WEFT_SOURCE/plugins/policy/whole/whole.c" >"$id.c"
    cat >>"$id.c" <<C
#include <stdio.h>
__attribute__((constructor)) static void leave(void) {
    FILE *file = fopen("$PWD/$id.ran", "w");
    if (file != NULL) (void)fclose(file);
}
C
    build policy "$id" "$CC" -O2 "$id.c" "$@"
}
mine mine
export WEFT_PLUGIN_PATH="$PWD/plugins"
plan() { # plan STATUS arguments...: output in said and err
    wanted=$1 status=0
    shift
    "$weft" plan run.ini "$@" >said 2>err || status=$?
    [ "$status" = "$wanted" ] || failed "status $status, not $wanted: weft plan $*" said err
}
says() { grep -qF -- "$1" err || failed "not said: $1" err; }
quiet() { [ ! -s err ] || failed "something is said" err; }

# Without pins all files are accepted, without warnings about valid ones.
plan 0 policy.plugin=mine
quiet
[ -e mine.ran ] || failed "the plugin leaves no trace"
rm mine.ran

# With trust = pinned even Weft's own plugins need a pin.
plan 1 plugins.trust=pinned
says "is not pinned, and [plugins] trust = pinned only allows pinned files. Its SHA-256 is "
says "append what \`sha256sum $(readlink -f "$WEFT_BUILD")/plugins/weft-"
{
    echo "# what came with Weft"
    echo
    sha256sum "$WEFT_BUILD"/plugins/*.so
} >trusted
plan 0 plugins.trust=pinned plugins.pin_list=trusted
quiet

# An external file is rejected, with instructions; its code does not run before it is pinned.
plan 1 plugins.trust=pinned plugins.pin_list=trusted policy.plugin=mine
says "$PWD/plugins/weft-policy-mine.so is not pinned"
hash=$(sha256sum plugins/weft-policy-mine.so | cut -c 1-64)
says "Its SHA-256 is $hash."
says "prints to $PWD/trusted."
[ ! -e mine.ran ] || failed "code of a file that is not trusted has run"
pin=$(sed -n 's/.*set \[plugins\] pin = \([^,]*\),.*/\1/p' err)
[ "$pin" = "policy:mine=$hash" ] || failed "the sentence says the pin $pin" err
plan 0 plugins.trust=pinned plugins.pin_list=trusted policy.plugin=mine "plugins.pin=$pin"
[ -e mine.ran ] || failed "a pinned file does not run"
cp trusted more
sha256sum plugins/weft-policy-mine.so >>more
plan 0 plugins.trust=pinned plugins.pin_list=more policy.plugin=mine
plan 0 plugins.trust=pinned plugins.pin_list=more "policy.plugin=$PWD/plugins/weft-policy-mine.so"

# Another build is another file.
mine mine -DANOTHER -g
plan 1 plugins.trust=pinned plugins.pin_list=more policy.plugin=mine
says "weft-policy-mine.so is not pinned"
plan 0 plugins.pin_list=more policy.plugin=mine # a list by itself restricts no file

# So is a library that a pinned file names by run path or full path, and a library of that library.
mkdir -p libraries/deep
left() { # left FUNCTION: a library whose code writes a file when it runs
    printf '#include <stdio.h>\nint %s(void) { return 1; }\n__attribute__((constructor)) static void leave(void) {\n' "$1"
    printf '    FILE *file = fopen("%s/%s.ran", "w");\n    if (file != NULL) (void)fclose(file);\n}\n' "$PWD" "$1"
}
left inner >inner.c
{ left outer && printf 'int inner(void);\nint outer_calls(void);\nint outer_calls(void) { return inner(); }\n'; } >outer.c
"$CC" -shared -fPIC -o libraries/deep/libinner.so inner.c
"$CC" -shared -fPIC -o libraries/libouter.so outer.c -Llibraries/deep -linner "-Wl,-rpath,\$ORIGIN/deep"
sed 's/"whole"/"linked"/' "$WEFT_SOURCE/plugins/policy/whole/whole.c" >linked.c
printf 'int outer_calls(void);\n__attribute__((used)) static int link_it(void) { return outer_calls(); }\n' >>linked.c
build policy linked "$CC" -O2 linked.c -Llibraries -louter "-Wl,-rpath,\$ORIGIN/../libraries" "-Wl,-rpath-link,libraries/deep"
linked() { # linked STATUS: a plan with it and more pins
    rm -f outer.ran inner.ran
    plan "$1" plugins.trust=pinned plugins.pin_list=pins policy.plugin=linked
    [ "$1" = 0 ] || { [ ! -e outer.ran ] && [ ! -e inner.ran ]; } || failed "code of a library that is not trusted has run"
}
cp trusted pins
sha256sum plugins/weft-policy-linked.so >>pins
linked 1
says "needs the library $PWD/libraries/libouter.so, whose SHA-256 $(sha256sum libraries/libouter.so | cut -c 1-64) is not pinned"
sha256sum libraries/libouter.so >>pins
linked 1
says "needs the library $PWD/libraries/deep/libinner.so"
sha256sum libraries/deep/libinner.so >>pins
linked 0
[ -e inner.ran ] || failed "the test's own library does not run"
mkdir -p libraries/glibc-hwcaps/x86-64-v2 # a variant that the loader prefers on some processors
"$CC" -shared -fPIC -g3 -o libraries/glibc-hwcaps/x86-64-v2/libouter.so outer.c -Llibraries/deep -linner
linked 1
says "needs the library $PWD/libraries/glibc-hwcaps/x86-64-v2/libouter.so"
rm -r libraries/glibc-hwcaps
"$CC" -shared -fPIC -g3 -o libraries/whole.so inner.c # without a soname, so that its path is used
build policy linked "$CC" -O2 -Wl,--no-as-needed linked.c "$PWD/libraries/whole.so" -Llibraries -louter "-Wl,-rpath,\$ORIGIN/../libraries"
sha256sum plugins/weft-policy-linked.so >>pins
linked 1
says "needs the library $PWD/libraries/whole.so"

# A plugin in the directory of a run or its model is loaded only if the command line names it.
"$weft" train run.ini run.out=got >said 2>err || failed "no run to look at" said err
cp plugins/weft-policy-mine.so got
cp got/config.ini resolved.ini
config() { # config LINES: of the run, with these lines instead of its own
    sed -e '/^\[policy/,/^$/d' -e '/^\[plugins\]/,/^$/d' resolved.ini >got/config.ini
    printf "\\n$1\\n" >>got/config.ini
}
brings() { # brings STATUS SENTENCE ARGUMENT...: weft plan and eval on the run, and config check on its file
    want=$1 sentence=$2
    shift 2
    for command in "plan got" "eval got" "config check got/config.ini"; do
        rm -f mine.ran
        status=0
        # shellcheck disable=SC2086 # two or three words
        "$weft" $command "$@" >said 2>err || status=$?
        [ "$status" = "$want" ] || failed "status $status, not $want: $command $*" said err
        if [ "$want" = 0 ]; then
            [ -e mine.ran ] || failed "a plugin that the user names does not run: $command $*"
        else
            [ ! -e mine.ran ] || failed "a plugin that lies in the run has run: $command $*"
            says "got/config.ini:"
            says "$sentence"
        fi
    done
}
mine=$PWD/got/weft-policy-mine.so
config "[policy]\nplugin = $mine"
brings 1 "[policy] plugin = $mine lies in $PWD/got"
brings 0 "" "policy.plugin=$mine"
config "[policy]\nplugin = ../plugins/weft-policy-mine.so"
brings 1 "is relative to $PWD/got"
config "[plugins]\npath = $PWD/got\n[policy]\nplugin = mine"
brings 1 "[plugins] path = $PWD/got lies in $PWD/got"
brings 0 "" plugins.path=got
ln -s got away
config "[policy]\nplugin = $PWD/away/weft-policy-mine.so"
brings 1 "lies in $PWD/got"
cp -r model brought
mv got/weft-policy-mine.so brought
sed -i "s|^path *= $PWD/model\$|path = $PWD/brought|" resolved.ini
config "[policy]\nplugin = $PWD/brought/weft-policy-mine.so"
brought=$(sed -n "s|^path *= \($PWD/brought\)\$|\1|p" got/config.ini)
[ -n "$brought" ] || failed "the run has no other model" got/config.ini
status=0
"$weft" config check got/config.ini >said 2>err || status=$?
[ "$status" = 1 ] || failed "a plugin of the model's directory is taken" said err
says "lies in $PWD/brought"
config "[policy]\nplugin = $PWD/plugins/weft-policy-mine.so" # elsewhere: as in the run
for command in "plan got" "eval got"; do
    # shellcheck disable=SC2086
    "$weft" $command >said 2>err || failed "a plugin elsewhere is refused: $command" said err
done

# A plugin of an unused section is loaded in a subprocess, and checked there.
rm -f mine.ran
printf '[policy.mine]\nnothing = 1\n' | cat run.ini - >idle.ini
"$weft" plan idle.ini plugins.trust=pinned plugins.pin_list=trusted >said 2>err || true
[ ! -e mine.ran ] || failed "code of an idle section's plugin has run" err

# The launcher of an untrusted communicator is not started.
sed 's/"self"/"evil"/' "$WEFT_SOURCE/plugins/comm/self/self.c" >evil.body
{
    printf '#include <weft/comm.h>\n#undef WEFT_NOTE_MORE\n'
    printf '#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH("%s/evil -n {ranks}") WEFT_NOTE_LAUNCHED("EVIL_RANK EVIL_SIZE")\n' "$PWD"
    cat evil.body
} >evil.c
build comm evil "$CC" -O2 evil.c
printf '#!/bin/sh\n: >%s/evil.ran\nexit 3\n' "$PWD" >evil
chmod +x evil
status=0
"$weft" train run.ini --ranks 2 strategy.plugin=ddp comm.plugin=evil run.out=out >said 2>err || status=$?
[ -e evil.ran ] || failed "the test's own launcher is not used at all" said err
rm evil.ran
! "$weft" train run.ini --ranks 2 strategy.plugin=ddp comm.plugin=evil run.out=out plugins.trust=pinned plugins.pin_list=trusted >said 2>err ||
    failed "an untrusted communicator trains"
[ ! -e evil.ran ] || failed "an untrusted communicator's launcher was started" err
says "is not pinned"

# Invalid lists.
echo "sha256 of mine: $hash" >bad
plan 1 plugins.trust=pinned plugins.pin_list=bad
says "line 1 of $PWD/bad is no line of sha256sum"
plan 1 plugins.trust=pinned plugins.pin_list=nowhere
says "nowhere cannot be read: No such file or directory"
plan 1 plugins.trust=some
says "trust"

# ---- trust warnings: printed by a run and by `weft plugins check`
checks() { # checks FILE [SENTENCE]: it passes with this warning, or without one; as text and as JSON
    for as in "" --json; do
        # shellcheck disable=SC2086 # a flag or none
        prints "$weft" plugins check "plugins/$1" --rule R26 $as
        if [ $# = 1 ]; then
            ! grep -Eq '^  warning|"warnings": \[$' printed || failed "check warns of $1" printed
        else
            grep -qF -- "$2" printed || failed "check $as does not say: $2" printed
            grep -Eq '^  warning  |"warnings": \[$' printed || failed "check $as says it, and not as a warning" printed
        fi
    done
}
checks weft-policy-mine.so
chmod o+w plugins/weft-policy-mine.so
plan 0 policy.plugin=mine
says "policy:mine ($PWD/plugins/weft-policy-mine.so) can be changed by every user of this machine"
checks weft-policy-mine.so "can be changed by every user of this machine, who may write to $PWD/plugins/weft-policy-mine.so: chmod o-w $PWD"
chmod o-w plugins/weft-policy-mine.so
chmod o+w plugins
plan 0 policy.plugin=mine
says "can be replaced by every user of this machine, who may write to $PWD/plugins: chmod o-w $PWD/plugins"
checks weft-policy-mine.so "can be replaced by every user of this machine, who may write to $PWD/plugins: chmod o-w $PWD/plugins"
chmod +t plugins # like /tmp: users cannot replace each other's files
plan 0 policy.plugin=mine
quiet
checks weft-policy-mine.so
chmod o-w,-t plugins

# The same for each directory up to the root and for each link, even if the target file is safe.
mkdir -p open/deep
cp plugins/weft-policy-mine.so open/deep
deep=$PWD/open/deep/weft-policy-mine.so
tells() { # tells PATH [SENTENCE]: one warning about the policy at that path; without SENTENCE no warning
    plan 0 "policy.plugin=$1"
    if [ $# = 1 ]; then
        quiet
    else
        says "policy:mine ($(readlink -f "$1")) $2"
        [ "$(grep -c "can be " err)" = 1 ] || failed "not one sentence" err
    fi
}
tells "$deep"
chmod 777 open
tells "$deep" "can be replaced by every user of this machine, who may write to $PWD/open: chmod o-w $PWD/open"
chmod 1777 open
tells "$deep"
chmod 777 open
ln -s "$PWD/plugins" open/link
tells "$PWD/open/link/weft-policy-mine.so" "can be replaced by every user of this machine, who may write to $PWD/open: "
ln -s "$deep" through.so
tells "$PWD/through.so" "can be replaced by every user of this machine, who may write to $PWD/open: "
prints "$weft" plugins check open/link/weft-policy-mine.so --rule R26
grep -qF "warning       can be replaced by every user" printed || failed "check looks at the file alone that a link leads to" printed
rm open/link
chmod 755 open
tells "$PWD/through.so"

# A list of pins that others can change is invalid; it only matters with trust = pinned.
cp more open/deep/list
sha256sum "$deep" >>open/deep/list
pinned="plugins.trust=pinned plugins.pin_list=open/deep/list"
list="$PWD/open/deep/list"
guards() { # guards SENTENCE: such a list is rejected with this text
    # shellcheck disable=SC2086 # two arguments
    plan 1 $pinned policy.plugin=mine
    says "[plugins] pin_list: $list $1"
    says "Under [plugins] trust = pinned a list that others can change is not allowed."
    plan 0 plugins.pin_list="$list" policy.plugin=mine
}
# shellcheck disable=SC2086
plan 0 $pinned policy.plugin=mine
chmod o+w "$list"
guards "can be changed by every user of this machine, who may write to $list: chmod o-w $list"
chmod o-w "$list"
chmod 777 open
guards "can be replaced by every user of this machine, who may write to $PWD/open: chmod o-w $PWD/open"
chmod 755 open

# Files of another user or group; only root can change owners.
if [ "$(id -u)" = 0 ] && chown 65534:65534 "$deep" 2>err; then
    tells "$deep" "can be changed by user 65534, who owns $deep: use a copy in a directory of your own, or chown $deep"
    chown 0:65534 "$deep"
    tells "$deep"
    chmod g+w "$deep"
    tells "$deep" "can be changed by all of group 65534, who may write to $deep: chmod g-w $deep"
    chown 0:0 "$deep"
    tells "$deep"
    chown 65534 open
    chmod 1755 open # the sticky bit restricts others, but not the owner
    tells "$deep" "can be replaced by user 65534, who owns $PWD/open: "
    guards "can be replaced by user 65534, who owns $PWD/open: "
    chown 0:65534 open
    chmod 775 open
    tells "$deep" "can be replaced by all of group 65534, who may write to $PWD/open: chmod g-w $PWD/open"
    chmod 1775 open
    tells "$deep"
    chown -h 65534 through.so
    tells "$PWD/through.so" "can be replaced by user 65534, who owns $PWD/through.so: "
else
    echo "skipped: this user cannot give files to another one"
fi
rm -r open through.so

mine block
plan 0
says "policy:block ($PWD/plugins/weft-policy-block.so) takes the id of one that is installed, "
[ "$(grep -c 'takes the id' err)" = 1 ] || failed "it is told more than once" err
checks weft-policy-block.so "takes the id of one that is installed, "
rm plugins/weft-policy-block.so
plan 0
quiet
# A copy of an installed file counts as the same file.
cp "$WEFT_BUILD/plugins/weft-policy-block.so" plugins
plan 0
quiet
checks weft-policy-block.so
rm plugins/weft-policy-block.so

# Compiled with fast math, whose linking would be rejected. Detected through the note, or, if only another
# source was compiled that way, through debug information.
object() { # object ID FLAGS...: the policy under that id, compiled with the flags and linked without them
    id=$1
    shift
    sed "s/\"whole\"/\"$id\"/" "$WEFT_SOURCE/plugins/policy/whole/whole.c" >"$id.c"
    "$CC" -std=c11 -D_GNU_SOURCE -O2 -fPIC -fvisibility=hidden -I"$WEFT_SOURCE/sdk/include" "$@" -c "$id.c" -o "$id.o"
}
object fast -ffast-math
build policy fast "$CC" fast.o
plan 0 policy.plugin=fast
says "policy:fast ($PWD/plugins/weft-policy-fast.so) was compiled with -ffast-math or a part of it"
checks weft-policy-fast.so "was compiled with -ffast-math or a part of it: the order of its sums may differ"
object finite -ffinite-math-only
build policy finite "$CC" finite.o
plan 0 policy.plugin=finite
says "was compiled with -ffast-math or a part of it"
if "$CC" --version | grep -q 'Free Software Foundation'; then
    object mixed
    echo 'float mixed_sum(const float *x);
float mixed_sum(const float *x) { return x[0] + x[1] + x[2]; }' >sum.c
    "$CC" -std=c11 -O2 -fPIC -fvisibility=hidden -g -ffast-math -c sum.c -o sum.o
    build policy mixed "$CC" mixed.o sum.o
    plan 0 policy.plugin=mixed
    says "was compiled with -ffast-math or a part of it"
    checks weft-policy-mixed.so "was compiled with -ffast-math or a part of it"
    "$CC" -std=c11 -O2 -fPIC -fvisibility=hidden -g -c sum.c -o sum.o
    build policy plain "$CC" mixed.o sum.o
    mv plugins/weft-policy-plain.so plugins/weft-policy-mixed.so
    plan 0 policy.plugin=mixed
    quiet
fi
exit $((failures > 0))
