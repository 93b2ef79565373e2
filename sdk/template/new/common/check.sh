#!/bin/sh
# check.sh FILE: the plugin is tried by the rules of its kind, the last of which train a small model with it, stop and resume, and
# prove that every strategy gives the same bits. WEFT=<program> where weft is not in PATH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "${WEFT:-weft}" plugins check "${1:-./weft-weftnew-kind-weftnew-id.so}" --directory "$here/try"
