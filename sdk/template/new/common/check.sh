#!/bin/sh
# check.sh FILE: runs the conformance tests of the plugin's kind. The last tests train a small model with it, stop and resume, and
# compare the bits of all strategies. Set WEFT=<program> if weft is not in PATH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
weft=${WEFT:-weft}
command -v "$weft" >/dev/null || {
    echo "check.sh: there is no program $weft: put the directory of weft into PATH, or say which one it is: WEFT=/path/to/bin/weft" >&2
    exit 1
}
exec "$weft" plugins check "${1:-./weft-weftnew-kind-weftnew-id.so}" --directory "$here/try"
