#!/bin/sh
# check.sh FILE: the plugin is tried by the rules of its kind, the last of which train a small model with it, stop and resume, and
# prove that every strategy gives the same bits. WEFT=<program> where weft is not in PATH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
weft=${WEFT:-weft}
command -v "$weft" >/dev/null || {
    echo "check.sh: there is no program $weft: put the directory of weft into PATH, or say which one it is: WEFT=/path/to/bin/weft" >&2
    exit 1
}
exec "$weft" plugins check "${1:-./weft-weftnew-kind-weftnew-id.so}" --directory "$here/try"
