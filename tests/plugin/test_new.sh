#!/bin/sh
# weft plugins new: the project is installed and moved, and a plugin of every kind that has a template is written, builds with
# make and with CMake, without a warning as C11 by two compilers and as C++17, and trains; with the full suite each one's own
# check runs. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
cmake --install "$WEFT_BUILD" --prefix "$dir/installed" >log 2>&1 || failed "the installation" log
mkdir moved
mv installed moved/local
weft=$dir/moved/local/bin/weft
unset WEFT_PLUGIN_PATH
export XDG_DATA_HOME="$dir/share"
[ -f moved/local/share/doc/weft/plugin-authors.md ] || failed "the installation has no docs"
[ -f moved/local/share/weft/configs/chess/base/model.safetensors ] || failed "the installation has no example to train"
WEFT_INSTALLED="$dir/moved/local" python3 -m pytest -q "$WEFT_SOURCE/tests/docs/test_links.py" >log 2>&1 || failed "the installed docs" log

kinds=$(ls "$WEFT_SOURCE/sdk/template/new" | grep -vx common)
[ "$(echo "$kinds" | wc -l)" -ge 9 ] || failed "templates are missing: $kinds"
warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
for kind in $kinds; do
    id=my-$kind
    prints "$weft" plugins new "$kind" "$id"
    ! grep -rli weftnew "$id" >log || failed "$id has names of the template left" log
    prints make -C "$id" WEFT="$weft" CFLAGS="-std=c11 -Wall -Wextra -Wpedantic -Werror"
    if is_full; then
        prints make -C "$id" WEFT="$weft" check
    else
        prints "$weft" train "$id/try/run.ini" "$kind.plugin=$id/weft-$kind-$id.so" run.out="$dir/out-$kind" train.steps=2
    fi
done

# With CMake, as C11 and as C++17: all of them below one project, for its configuration is what takes long.
sources() { # sources DIRECTORY LANGUAGE: the projects as they were written; of CXX with the names of that language
    mkdir "$1"
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(every LANGUAGES %s)\n' "$2" >"$1/CMakeLists.txt"
    for kind in $kinds; do
        mkdir "$1/my-$kind"
        cp -r "my-$kind"/CMakeLists.txt "my-$kind"/my_*.c "my-$kind"/check.sh "my-$kind"/try "$1/my-$kind"
        echo "add_subdirectory(my-$kind)" >>"$1/CMakeLists.txt"
        [ "$2" = CXX ] || continue
        mv "$1/my-$kind/my_$kind.c" "$1/my-$kind/my_$kind.cpp"
        sed -i "s/LANGUAGES C)/LANGUAGES CXX)/; s/CMAKE_C_/CMAKE_CXX_/; s/CXX_STANDARD 11/CXX_STANDARD 17/; s/my_$kind[.]c)/my_$kind.cpp)/" \
            "$1/my-$kind/CMakeLists.txt"
        grep -q "my_$kind[.]cpp)" "$1/my-$kind/CMakeLists.txt" || failed "no source to rename in my-$kind/CMakeLists.txt"
    done
}
builds() { # builds SOURCES LANGUAGE COMPILER: without a warning, to plugins that the host loads
    if ! command -v "$3" >/dev/null; then
        echo "skipped: no $3 here"
        return
    fi
    prints cmake -S "$1" -B "by-$3" "-DCMAKE_$2_COMPILER=$3" "-DCMAKE_$2_FLAGS=$warn" \
        -DCMAKE_PREFIX_PATH="$dir/moved/local"
    prints cmake --build "by-$3"
    for kind in $kinds; do prints "$weft" plugins describe "$kind:by-$3/my-$kind/weft-$kind-my-$kind.so"; done
}
sources every-c C
sources every-cxx CXX
builds every-c C gcc
builds every-c C clang
builds every-cxx CXX g++

# The device that docs/guide/your-own-device.md explains.
prints cmake -S moved/local/share/weft/template/device-plain -B plain "-DCMAKE_C_FLAGS=$warn" -DCMAKE_PREFIX_PATH="$dir/moved/local"
prints cmake --build plain
prints "$weft" plugins describe device:plain/weft-device-plain.so

# With CMake: installs to the search path of the program of the same prefix, and runs the test.
prints cmake -S my-policy -B cmake-build -DCMAKE_PREFIX_PATH="$dir/moved/local" \
    -DCMAKE_INSTALL_PREFIX="$dir/moved/local"
prints cmake --build cmake-build
prints ctest --test-dir cmake-build --output-on-failure
prints cmake --install cmake-build
prints "$weft" plugins describe policy:my-policy
grep -qF "$dir/moved/local" printed || failed "the installed policy is not found in the prefix" printed
if is_full; then
    for kind in $kinds; do
        prints cmake -S "my-$kind" -B "cmake-$kind" -DCMAKE_PREFIX_PATH="$dir/moved/local"
        prints cmake --build "cmake-$kind"
    done
fi
# With make, in the user's own directory.
prints make -C my-optimizer WEFT="$weft" install
prints "$weft" plugins describe optimizer:my-optimizer
grep -qF "$dir/share/weft/plugins" printed || failed "the installed optimizer is not found" printed

# With the program of a build tree, too.
prints "$WEFT_BUILD/weft" plugins new optimizer of-the-tree
prints make -C of-the-tree WEFT="$WEFT_BUILD/weft"
[ -e of-the-tree/weft-optimizer-of-the-tree.so ] || failed "a build tree's program builds no plugin" printed

refused "no template exists for the kind 'optimiser'; did you mean optimizer?" "$weft" plugins new optimiser x
refused "'My' cannot be a plugin's id" "$weft" plugins new policy My
refused "'weft-x' cannot be a plugin's id" "$weft" plugins new policy weft-x
refused "optimizer:adamw exists already, as " "$weft" plugins new optimizer adamw
refused "my-data exists already" "$weft" plugins new data another --into my-data
mkdir locked
[ "$(id -u)" = 0 ] || { chmod 555 locked && refused "locked" "$weft" plugins new data another --into locked/another; }
[ -z "$(find . -maxdepth 2 -name '*.tmp')" ] || failed "something half made is left"
cp moved/local/bin/weft alone
cp -r moved/local/libexec .
refused "the templates are missing: " ./alone plugins new data another
rm -r libexec

# What make cannot find is said with what to do, before anything is built.
tools=$dir/tools # what make itself needs, and nothing else
mkdir "$tools"
for tool in sh cc find tr pkg-config; do ln -s "$(command -v $tool)" "$tools/$tool"; done
make=$(command -v make)
make -C my-policy clean >log
refused "weft-policy-my-policy: there is no program weft: put the directory of weft into PATH" \
    env PATH="$tools" PKG_CONFIG_PATH= "$make" -C my-policy
refused "there is no program nowhere/weft: put" "$make" -C my-policy WEFT=nowhere/weft PKG_CONFIG_PATH=
refused "no weft.pc lies below $dir/, where $dir/alone is: install Weft whole" \
    "$make" -C my-policy WEFT="$dir/alone" PKG_CONFIG_PATH=
mkdir "a home"
sed "s|^includedir=.*|includedir=$dir/a home|" "$WEFT_BUILD/sdk/weft.pc" >"a home/weft.pc"
refused "Weft lies below a directory with a blank in its name, which make cannot hand on: build with CMake" \
    "$make" -C my-policy WEFT="$weft" PKG_CONFIG_PATH="$dir/a home" PC_DIRS=
cp "$weft" "a home/weft"
refused "Weft lies below a directory with a blank" env PATH="$dir/a home:$PATH" "$make" -C my-policy
refused "there is no C compiler no-such-cc: install one" "$make" -C my-policy WEFT="$weft" CC=no-such-cc
rm "$tools/pkg-config"
refused "there is no pkg-config, which says where Weft's headers lie: install it (on Debian: apt install pkg-config), or build with CMake" \
    env PATH="$tools" "$make" -C my-policy WEFT="$weft"
! grep -q 'my_policy[.]c' log || failed "make compiles although something is missing" log
prints "$make" -C my-policy WEFT="$weft"
refused "check.sh: there is no program nowhere/weft: put" env WEFT=nowhere/weft sh my-policy/check.sh
[ "$failures" = 0 ]
