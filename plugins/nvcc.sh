#!/bin/sh
# Runs a command that compiles device code and keeps what it says in a file; it is shown where the command fails.
#   plugins/nvcc.sh <file> <command> [argument...]
set -u
log=$1
shift
"$@" >"$log" 2>&1 && exit 0
status=$?
cat "$log" >&2
rm -f "$log"
exit $status
