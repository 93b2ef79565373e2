#!/bin/sh
# The bundle: one movable folder. Run from another directory, without this machine's library directories, it
# plans, trains and lists its plugins. It loads only the C library from outside.
set -u
. "$WEFT_SOURCE/tests/common/shell.sh"
if ! command -v objdump >/dev/null || [ "${WEFT_SANITIZED:-OFF}" = ON ]; then
    echo "skipped: a bundle is made with objdump, of a build without sanitizers"
    exit 77
fi
unset LD_LIBRARY_PATH WEFT_PLUGIN_PATH
sh "$WEFT_SOURCE/configs/bundle.sh" "$WEFT_BUILD" "$dir/made" >log 2>&1 || failed "no bundle could be made" log
mv made "$dir/moved here" || exit 1
bundled="$dir/moved here/weft"

prints "$bundled" plugins list
grep -q "^device  *cpu  *[0-9.]*  *ok  *$dir/moved here/plugins/weft-device-cpu.so$" printed ||
    failed "the bundle's own device is not listed" printed
grep " ok \| unusable \| failed " printed | grep -vF "$dir/moved here/plugins/" >elsewhere &&
    failed "plugins come from elsewhere" elsewhere
grep " failed " printed && failed "a plugin of the bundle cannot be loaded" printed

i=0
while [ $i -lt 40 ]; do echo "1. e4 e5 2. f4 exf4 3. Nf3 g5"; i=$((i + 1)); done >text.txt
cat >run.ini <<TEXT
[model]
plugin = llama
path   = $WEFT_SOURCE/configs/chess/base
[tokenizer]
plugin = bpe
[data]
plugin  = text
path    = text.txt
context = 16
[train]
steps        = 2
global_batch = 2
micro_batch  = 1
[optimizer]
plugin = adamw
[device]
plugin = cpu
[run]
out = out
TEXT
LD_DEBUG=libs LD_DEBUG_OUTPUT=$dir/loaded
export LD_DEBUG LD_DEBUG_OUTPUT
prints "$bundled" train run.ini
unset LD_DEBUG LD_DEBUG_OUTPUT
[ -e out/model/model.safetensors ] || failed "the bundle has trained no model"
sed -n 's/.*calling init: //p' loaded.* | sort -u | grep -vF "$dir/moved here/" |
    grep -Ev '/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread)\.so' >outside && failed "libraries come from elsewhere" outside
exit "$failures"
