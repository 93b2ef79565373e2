# Functions of shell tests, to be sourced. ctest sets WEFT_BUILD and WEFT_SOURCE. The working directory is
# temporary, and $weft is the program. Sourcing prints no output and runs no test.
weft=$WEFT_BUILD/weft
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
cd "$dir"
failures=0

is_full() { # the full suite is requested (tests/CMakeLists.txt): larger grids
    [ "${WEFT_FULL:-}" = 1 ]
}
failed() { # failed WHAT [FILE...]: prints the failure and the files, and counts it; the test continues
    failures=$((failures + 1))
    echo "FAILED: $1"
    shift
    for file in "$@"; do sed 's/^/    /' "$file"; done
}
refused() { # refused TEXT COMMAND...: the command fails with this text, in the file log
    text=$1
    shift
    if "$@" >log 2>&1 || ! grep -qF -- "$text" log; then
        failed "$*: does not say $text" log
    fi
}
says() { # says FILE TEXT: a line of the file contains the text
    grep -qF -- "$2" "$1" || failed "$1 does not say: $2" "$1"
}
prints() { # prints COMMAND...: it succeeds, with output in printed and printed.err. A pipe would lose its status
    "$@" >printed 2>printed.err || failed "$*: exit status $?" printed printed.err
}
communicator() { # communicator ID: path of its file
    echo "$WEFT_BUILD/plugins/weft-comm-mpi-$1.so"
}
tensors() { # tensors DIRECTORY: hashes of its weight files
    [ ! -d "$1" ] || (cd "$1" && find . -name '*.safetensors' | sort | xargs sha256sum)
}
same_tensors() { # same_tensors WHAT A B: both directories have the same weight files, at least one
    tensors "$2" >a.txt
    tensors "$3" >b.txt
    [ -s a.txt ] && cmp -s a.txt b.txt || { cat a.txt b.txt >log; failed "$1" log; }
}
cuda_sections() { # prints the sections of an INI file that select the CUDA emulator
    printf '[device]\nplugin = cuda\n[device.cuda]\nworkspace = 1Mi\ncache     = %s\n' "$WEFT_BUILD/tests/cuda/compiled"
}
# Timeout for a command that should end by itself: long enough for a machine at twenty times its load.
limit() { # limit COMMAND...: exits with 124 after the timeout
    timeout 1200 "$@"
}
has() { # has ID: this build includes that communicator
    if [ ! -e "$(communicator "$1")" ]; then
        echo "skipped: this build has no mpi-$1, whose packages configs/packages.sh tests installs"
        return 1
    fi
    # Open MPI allocates much through the C library; the fast unwinder does not find the callers.
    [ "$1" != openmpi ] || export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}fast_unwind_on_malloc=0"
}
launcher() { # launcher ID N: prints the command that starts N ranks, from the plugin's note; without one, a failing command
    note=$("$WEFT_BUILD/tests/ranks" launch "$(communicator "$1")") || note=false
    echo "$note" | sed "s/{ranks}/$2/"
}
build() { # build KIND ID compiler-and-argument...: builds a plugin into plugins/ of the scratch directory
    kind=$1 id=$2
    shift 2
    "$@" -std=c11 -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden -I"$WEFT_SOURCE/sdk/include" \
        -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" -o "plugins/weft-$kind-$id.so"
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
make_run() { # make_run: model, games.txt and run.ini, which ends within [train] and is continued by stdin
    # indivisible sizes: head dimension 10, a padded vocabulary
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
losses() { # losses OUT: losses of a run's steps, one a line
    grep -o '"loss": *[0-9.e+-]*' "$1/metrics.jsonl" | sed 's/.*: *//'
}
agree() { # agree WHAT TOLERANCE A B: losses of two runs of six steps agree and decrease
    losses "$3" >a.txt
    losses "$4" >b.txt
    paste a.txt b.txt | awk -v most="$2" '
        { apart = $1 > $2 ? $1 - $2 : $2 - $1; if (apart > most * $2) bad = 1; last = $1 }
        NR == 1 { first = $1 }
        END { exit bad || NR != 6 || last >= first }' || { paste a.txt b.txt >log; failed "$1" log; }
}
loss() { # loss argument...: loss of an evaluation; a failed one prints text, which equals no number
    if limit "$weft" eval "$@" --json >evaluated 2>log; then
        grep -o '"loss": *[0-9.e+-]*' evaluated | sed 's/.*: *//'
    else
        echo "no loss of eval $*: $(head -n 1 log)"
    fi
}
near() { # near WHAT MOST A B: the first number is above 0 and the other differs by less than MOST
    # awk would compare text that is not a number, too.
    case "$3$4" in '' | *[!0-9.e+-]*) failed "$1: $3 and $4"; return ;; esac
    awk -v a="$3" -v b="$4" -v most="$2" 'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && d < most) }' ||
        failed "$1: $3 and $4"
}
