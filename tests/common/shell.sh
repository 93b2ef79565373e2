# What tests in shell share; to be sourced. ctest sets WEFT_BUILD and WEFT_SOURCE. A scratch directory is the working
# directory, weft is the program. Nothing is printed and nothing is tested here.
weft=$WEFT_BUILD/weft
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
cd "$dir"
failures=0

is_full() { # the full suite is asked for (tests/CMakeLists.txt): larger grids
    [ "${WEFT_FULL:-}" = 1 ]
}
failed() { # failed WHAT [FILE...]: told, with what is in the files, and counted; the test goes on
    failures=$((failures + 1))
    echo "FAILED: $1"
    shift
    for file in "$@"; do sed 's/^/    /' "$file"; done
}
refused() { # refused TEXT COMMAND...: it fails and says so, in the file log
    text=$1
    shift
    if "$@" >log 2>&1 || ! grep -qF -- "$text" log; then
        failed "$*: does not say $text" log
    fi
}
says() { # says FILE TEXT: the file has the text in a line
    grep -qF -- "$2" "$1" || failed "$1 does not say: $2" "$1"
}
prints() { # prints COMMAND...: it succeeds; what it prints is in printed and printed.err. A pipe would lose its status
    "$@" >printed 2>printed.err || failed "$*: exit status $?" printed printed.err
}
communicator() { # communicator ID: its file
    echo "$WEFT_BUILD/plugins/weft-comm-mpi-$1.so"
}
tensors() { # tensors DIRECTORY: hashes of the files of numbers in it
    [ ! -d "$1" ] || (cd "$1" && find . -name '*.safetensors' | sort | xargs sha256sum)
}
same_tensors() { # same_tensors WHAT A B: two directories have the same files of numbers, and some
    tensors "$2" >a.txt
    tensors "$3" >b.txt
    [ -s a.txt ] && cmp -s a.txt b.txt || { cat a.txt b.txt >log; failed "$1" log; }
}
# What a command may take that should end by itself: there for what never does, and as long as a machine at twenty times
# its load needs.
limit() { # limit COMMAND...: ends with 124 where it does not
    timeout 1200 "$@"
}
has() { # has ID: this build has that communicator
    if [ ! -e "$(communicator "$1")" ]; then
        echo "skipped: this build has no mpi-$1, whose packages configs/packages.sh tests installs"
        return 1
    fi
    # Open MPI allocates much through the C library, behind which a quick look at the stack does not see who called.
    [ "$1" != openmpi ] || export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}fast_unwind_on_malloc=0"
}
launcher() { # launcher ID N: the command that starts N ranks, of the plugin's note; without one, a command that fails
    note=$("$WEFT_BUILD/tests/ranks" launch "$(communicator "$1")") || note=false
    echo "$note" | sed "s/{ranks}/$2/"
}
build() { # build KIND ID compiler-and-argument...: a plugin of the scratch directory, in plugins
    kind=$1 id=$2
    shift 2
    "$@" -std=c11 -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden -I"$WEFT_SOURCE/sdk/include" \
        -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" -o "plugins/weft-$kind-$id.so"
}
# An adamw that makes a run wait for a test: where HOLD_AT=N is set no rank makes update N before the file HOLD_UNTIL is
# there. For WEFT_PLUGIN_PATH, before the build's own.
build_held_adamw() {
    mkdir -p plugins
    {
        cat <<'C'
#include <stdlib.h>
#include <unistd.h>
static void hold(unsigned long long update) {
    const char *at = getenv("HOLD_AT"), *until = getenv("HOLD_UNTIL");
    if (at == NULL || until == NULL || update != strtoull(at, NULL, 10)) return;
    while (access(until, F_OK) != 0) usleep(10000);
}
C
        sed 's/^    adamw_hp \*out = hp;/&\
    hold(step->update);/' "$WEFT_SOURCE/plugins/optimizer/adamw/adamw.c"
    } >held.c
    [ "$(grep -c '^    hold(' held.c)" = 1 ] || failed "adamw.c has no place to hold it at"
    build optimizer adamw "${CC:-cc}" -O2 held.c -lm
}
make_model() { # make_model DIRECTORY HIDDEN HEAD INTERMEDIATE LAYERS VOCABULARY: a configuration and a tokenizer of 512
    mkdir "$1"
    cp "$WEFT_SOURCE"/configs/chess/base/tokenizer*.json "$1"
    cat >"$1/config.json" <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": $2, "head_dim": $3,
 "intermediate_size": $4, "num_hidden_layers": $5, "vocab_size": $6, "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu",
 "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
JSON
}
make_text() { # make_text N: N games of chess, one a line, in games.txt
    head -n "$1" "$WEFT_SOURCE/configs/chess/train.txt" >games.txt
}
make_run() { # make_run: model, games.txt and run.ini, which ends within [train] and goes on with what stdin has
    # sizes that nothing divides: rows of 10, a vocabulary that is padded
    make_model model 40 10 88 3 521
    make_text 60
    cat - >rest.ini
    cat - rest.ini >run.ini <<'INI'
[run]
out = out
[model]
plugin = llama
path   = model
start  = fresh
[data]
path       = games.txt
document   = line
context    = 32
validation = 5
[train]
global_batch = 12
micro_batch  = 1
INI
}
losses() { # losses OUT: of the steps of a run, one a line
    grep -o '"loss": *[0-9.e+-]*' "$1/metrics.jsonl" | sed 's/.*: *//'
}
agree() { # agree WHAT TOLERANCE A B: losses of two runs, of six steps, that learn
    losses "$3" >a.txt
    losses "$4" >b.txt
    paste a.txt b.txt | awk -v most="$2" '
        { apart = $1 > $2 ? $1 - $2 : $2 - $1; if (apart > most * $2) bad = 1; last = $1 }
        NR == 1 { first = $1 }
        END { exit bad || NR != 6 || last >= first }' || { paste a.txt b.txt >log; failed "$1" log; }
}
loss() { # loss argument...: of an evaluation; one that fails has words in place of a number, which equal no other's
    if limit "$weft" eval "$@" --json >evaluated 2>log; then
        grep -o '"loss": *[0-9.e+-]*' evaluated | sed 's/.*: *//'
    else
        echo "no loss of eval $*: $(head -n 1 log)"
    fi
}
near() { # near WHAT MOST A B: two numbers, of which the first is above 0 and the other less than MOST away
    # What is no number is no text that awk would compare either.
    case "$3$4" in '' | *[!0-9.e+-]*) failed "$1: $3 and $4"; return ;; esac
    awk -v a="$3" -v b="$4" -v most="$2" 'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && d < most) }' ||
        failed "$1: $3 and $4"
}
