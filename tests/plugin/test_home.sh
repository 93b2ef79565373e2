#!/bin/sh
# ~/.local as a prefix: Weft is installed there and found only through PATH. A plugin is built against it with
# CMake and pkg-config without further settings; plugins installed there are found by programs of any other
# prefix, too. One version number identifies Weft and its SDK. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
unset WEFT_PLUGIN_PATH XDG_DATA_HOME PKG_CONFIG_PATH CMAKE_PREFIX_PATH || :
export HOME="$dir/home"
mkdir home
cmake --install "$WEFT_BUILD" --prefix "$HOME/.local" >log 2>&1 || failed "the installation" log
export PATH="$HOME/.local/bin:$PATH"
[ "$(command -v weft)" = "$HOME/.local/bin/weft" ] || failed "weft is not that of ~/.local"
prints weft plugins describe policy:block
grep -qF "$HOME/.local/" printed || failed "its plugins are not those beside it" printed

# ---- one version
version=$(weft --version | sed 's/^weft \([0-9.]*\) (SDK \([0-9.]*\))$/\1/')
sdk=$(weft --version | sed 's/.*(SDK \([0-9.]*\))$/\1/')
case $version in
    "$sdk".*) ;;
    *) failed "the program is $version and its SDK $sdk" ;;
esac
pc=$(find "$HOME/.local" -name weft.pc)
[ "$(PKG_CONFIG_PATH=${pc%/*} pkg-config --modversion weft)" = "$version" ] || failed "weft.pc is of another version" "$pc"
prints weft plugins new policy mine
sed -i "s/find_package(Weft 1.0 QUIET)/find_package(Weft $sdk QUIET)\nmessage(STATUS \"Weft is \${Weft_VERSION}\")/" mine/CMakeLists.txt

# ---- with CMake, without settings
prints cmake -S mine -B made
grep -qF "Weft is $version" printed || failed "the CMake package is of another version than $version" printed
refused "-DCMAKE_PREFIX_PATH=/path/to/prefix" sh -c "sed 's/Weft $sdk QUIET/Weft 99.0 QUIET/' mine/CMakeLists.txt >mine/Next.txt &&
    mkdir -p next && cp mine/Next.txt next/CMakeLists.txt && cmake -S next -B next/made"
prints cmake --build made
prints cmake --install made
prints weft plugins describe policy:mine
grep -qF "$HOME/.local/" printed || failed "what is installed into ~/.local is not found" printed

# ---- also for a program of another prefix, with its priority: after the user's directory, before the
# installation
cmake --install "$WEFT_BUILD" --prefix "$dir/elsewhere" >log 2>&1 || failed "another installation" log
prints "$dir/elsewhere/bin/weft" plugins describe policy:mine
grep -qF "$HOME/.local/" printed || failed "another prefix's program does not look into ~/.local" printed
refused "$HOME/.local/share/weft/plugins/weft-policy-nowhere.so" "$dir/elsewhere/bin/weft" plugins describe policy:nowhere
awk -v home="$HOME/.local" -v own="$dir/elsewhere" '
    { text = text " " $0 }
    END {
        first = index(text, home "/share/weft/plugins/weft-policy-nowhere.so")
        second = index(text, home "/lib")
        third = index(text, own)
        exit !(first > 0 && first < second && second < third)
    }' log || failed "the order of the search" log

# ---- with make, which queries the program on PATH for its location
prints weft plugins new optimizer made-by-make
prints make -C made-by-make install
prints weft plugins describe optimizer:made-by-make
grep -qF "$HOME/.local/share/weft/plugins" printed || failed "make install" printed
# and manually, as in the guide
sed 's/"mine"/"byhand"/' mine/mine.c >byhand.c
# shellcheck disable=SC2046  # words of options
PKG_CONFIG_PATH="${pc%/*}" sh -c '${CC:-cc} $(pkg-config --cflags weft) byhand.c -o weft-policy-byhand.so $(pkg-config --libs weft)' \
    >log 2>&1 || failed "by hand with pkg-config" log
prints weft plugins describe policy:./weft-policy-byhand.so

# ---- example scripts of an installation run in any directory
mkdir work
(cd work && sh "$dir/elsewhere/share/weft/configs/teach.sh") >log 2>&1 || failed "the installed teach.sh" log
[ -e work/runs/teach.log ] || failed "teach.sh has left nothing in the working directory" log
for script in "$dir"/elsewhere/share/weft/configs/*.sh; do
    case ${script##*/} in manual.sh | packages.sh | slurm.sh | teach.sh | two-hosts.sh) ;; *) failed "$script needs a source tree" ;; esac
done

# ---- the installed tools compare two sets of headers, at any location
for prefix in "$HOME/.local" "$dir/elsewhere"; do
    abi=$prefix/share/weft/abi
    prints sh "$abi/compare.sh" "$abi/sdk-1.0.txt" "$prefix/include"
    ! grep -v '^adds ' printed || failed "SDK 1.0 breaks by the installed headers" printed
    prints sh "$abi/measure.sh" "$prefix/include"
    mv printed measured
    rm -rf later
    cp -r "$prefix/include" later
    sed -i '/int32_t is_block;/d' later/weft/policy.h
    status=0
    sh "$abi/compare.sh" measured later >log 2>&1 || status=$?
    { [ $status = 1 ] && grep -q '^breaks   weft_module_view.is_block is gone' log; } ||
        failed "the installed compare.sh does not tell a field that is gone: status $status" log
done
[ "$failures" = 0 ]
