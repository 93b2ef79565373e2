# What the tests of this directory share; to be sourced. ctest sets WEFT_BUILD and WEFT_SOURCE. A scratch directory with a
# model of two layers, a text and run.ini is the working directory; weft is the program.
weft=$WEFT_BUILD/weft
dir=$(mktemp -d)
cd "$dir"
export WEFT_PLUGIN_PATH="$dir/plugins:$WEFT_BUILD/plugins"
# The libraries of MPI keep some memory to the end, and say so under a sanitizer.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

fail() {
    echo "FAILED: $1" >&2
    tail -c 3000 out.txt err.txt >&2
    exit 1
}
has() { # has ID: this build has the communicator mpi-ID
    [ -e "$WEFT_BUILD/plugins/weft-comm-mpi-$1.so" ] && return 0
    echo "skipped: this build has no communicator mpi-$1"
    return 1
}
launcher() { # launcher ID N: the command that starts N ranks, of the plugin's note
    strings -n 8 "$WEFT_BUILD/plugins/weft-comm-mpi-$1.so" | sed -n "s/^launch=\(.*\){ranks}/\1$2/p" | head -n 1
}
says() { # says PATTERN: within 5 seconds a line of stderr matches; what watches may outlive the launcher a little
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        grep -qE -- "$1" err.txt && return 0
        sleep 0.5
    done
    fail "nobody says \"$1\""
}
build() { # build KIND ID compiler-and-argument...: a plugin of the scratch directory
    kind=$1 id=$2
    shift 2
    "$@" -std=c11 -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden -I"$WEFT_SOURCE/sdk/include" \
        -Wl,--version-script="$WEFT_SOURCE/sdk/cmake/weft-plugin.map" -o "plugins/weft-$kind-$id.so"
}
processes() { # processes NAME: the /proc/N of this test's processes of that name
    for process in $(grep -lzxF -- "TEST_DIRECTORY=$dir" /proc/[0-9]*/environ 2>/dev/null); do
        process=${process%/environ}
        [ "$(cat "$process/comm" 2>/dev/null)" != "$1" ] || echo "$process"
    done
}
rank_of() { # rank_of R: the process of rank R, once it has begun
    for _ in $(seq 100); do
        for process in $(processes weft); do
            grep -qzxE -- "(PMI_RANK|OMPI_COMM_WORLD_RANK)=$1" "$process/environ" 2>/dev/null || continue
            echo "${process#/proc/}"
            return 0
        done
        sleep 0.1
    done
    return 1
}
watched() { # until the watcher of ranks under a launcher watches: before, it has no descriptor 3
    for _ in $(seq 100); do
        for process in $(processes weft-watch); do [ ! -e "$process/fd/3" ] || return 0; done
        sleep 0.1
    done
    fail "nobody watches"
}
steps() { # steps N: until N steps are done
    for _ in $(seq 600); do
        [ -e one/metrics.jsonl ] && [ "$(wc -l <one/metrics.jsonl)" -ge "$1" ] && return 0
        sleep 0.1
    done
    fail "$1 steps are not done"
}
export TEST_DIRECTORY="$dir"

mkdir plugins model
cp "$WEFT_SOURCE"/configs/chess/base/tokenizer*.json model/
cat >model/config.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 56,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true,
 "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
JSON
head -n 40 "$WEFT_SOURCE/configs/chess/train.txt" >games.txt
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
