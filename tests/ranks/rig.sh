# Shared by tests that kill ranks or make them differ, in addition to tests/common/shell.sh; to be sourced.
# The scratch directory contains a model of two layers, a text and run.ini.
. "$WEFT_SOURCE/tests/common/shell.sh"
export WEFT_PLUGIN_PATH="$dir/plugins:$WEFT_BUILD/plugins"

fail() {
    echo "FAILED: $1" >&2
    tail -c 3000 out.txt err.txt >&2
    exit 1
}
# Timeouts suffice for a machine at 20 times its load; the watchdog's output shows whether something was fast.
says() { # says PATTERN: a line of stderr matches soon; the watchdog may exit slightly after the launcher
    for _ in $(seq 200); do
        grep -qE -- "$1" err.txt && return 0
        sleep 0.5
    done
    fail "nobody says \"$1\""
}
of_weft='weft(-ab|-check|-profile|-prove)?' # names of rank processes: of the program or of a tool
processes() { # processes PATTERN: the /proc/N of this test's processes with a matching name
    for process in $(grep -lzxF -- "TEST_DIRECTORY=$dir" /proc/[0-9]*/environ 2>/dev/null); do
        process=${process%/environ}
        if grep -qxE -- "$1" "$process/comm" 2>/dev/null; then echo "$process"; fi
    done
}
end_ranks() { # kills ranks of a failed case, which would train for long
    for process in $(processes "$of_weft"); do kill -KILL "${process#/proc/}" || true; done
}
rank_of() { # rank_of R: the process of rank R, once it has started
    for _ in $(seq 1000); do
        for process in $(processes "$of_weft"); do
            grep -qzxE -- "(PMI_RANK|OMPI_COMM_WORLD_RANK)=$1" "$process/environ" 2>/dev/null || continue
            echo "${process#/proc/}"
            return 0
        done
        sleep 0.1
    done
    return 1
}
watched() { # waits until the watchdog of ranks under a launcher is active: before, it has no descriptor 3
    for _ in $(seq 1000); do
        for process in $(processes weft-watch); do [ ! -e "$process/fd/3" ] || return 0; done
        sleep 0.1
    done
    fail "nobody watches"
}
steps() { # steps N: waits until N steps are done
    for _ in $(seq 3000); do
        [ -e one/metrics.jsonl ] && [ "$(wc -l <one/metrics.jsonl)" -ge "$1" ] && return 0
        sleep 0.1
    done
    fail "$1 steps are not done"
}
export TEST_DIRECTORY="$dir"

mkdir plugins
make_model model 32 8 56 2 512
make_text 40
cat >run.ini <<'INI'
[run]
out = one
[model]
plugin = llama
path   = model
start  = fresh
[data]
plugin     = text
path       = games.txt
document   = line
context    = 64
[train]
steps        = 3
global_batch = 4
micro_batch  = 1
[strategy]
plugin = ddp
[device]
threads = 1
INI
: >out.txt
: >err.txt
