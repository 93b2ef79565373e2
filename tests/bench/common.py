"""What the benches of training steps share: models of three sizes, what both sides read, processes, medians, bars."""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 32000
STOLEN = 0.02  # of the processors' time; a larger share makes a run unusable


@dataclasses.dataclass(frozen=True)
class Size:
    """A model and its batch."""

    name: str
    hidden: int
    mlp: int
    layers: int
    heads: int
    rows: int
    context: int
    steps: int  # per side of a pair

    def parameters(self):
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.mlp + 2 * self.hidden
        return 2 * VOCABULARY * self.hidden + self.layers * layer + self.hidden


SIZES = {
    "24": Size("24 M", 288, 768, 6, 6, 8, 256, 8),
    "134": Size("134 M", 768, 2048, 12, 12, 2, 512, 4),
    "518": Size("518 M", 1280, 3456, 22, 20, 2, 256, 3),
}
QUICK = dataclasses.replace(SIZES["24"], rows=2, context=128)


def fail(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def check_sizes(parser, names, sizes):
    unknown = [name for name in names.split(",") if name not in sizes]
    if unknown:
        parser.error("--sizes %s: there are %s" % (unknown[0], ", ".join(sizes)))


# ---- shared inputs ----


def write_model(directory, size):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": size.hidden,
        "intermediate_size": size.mlp, "num_hidden_layers": size.layers, "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads, "vocab_size": VOCABULARY, "max_position_embeddings": max(2048, size.context),
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
    }
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "configs/chess/base" / name, directory)


def write_text(path, letters):
    """Random words in one document, so that every row is one piece of it and attention sees all of a row."""
    source = random.Random(1)
    with open(path, "w", encoding="ascii") as file:
        while letters > 0:
            word = "".join(source.choices("abcdefgh12345678NBRQKx+=O-.", k=source.randint(2, 7)))
            file.write(word + " ")
            letters -= len(word) + 1


def write_run(path, size, rows_at_once):
    path.write_text(f"""[model]
plugin = llama
path   = model
start  = fresh
[tokenizer]
bos    = no
eos    = no
[data]
path    = text.txt
context = {size.context}
[train]
steps        = 1000
global_batch = {size.rows}
micro_batch  = {rows_at_once}
clip         = 1.0
[optimizer]
plugin = adamw
lr     = 1e-4
""")


def tokenize(weft, directory, data, *more):
    command = [weft, "tokenize", directory / "model", *more]
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def keep_one_batch(directory, weft, size):
    """Cuts the text to what fills the rows of one batch, but for a few places: a word that is cut in two may come to
    more ids than it had before."""
    places = size.rows * size.context
    ids = tokenize(weft, directory, (directory / "text.txt").read_bytes()).split()[: places - 7]
    text = tokenize(weft, directory, b" ".join(ids), "--decode")
    if not places - size.context < len(tokenize(weft, directory, text).split()) - 1 <= places:
        fail(f"the text that was cut to {places} places does not fill one batch")
    (directory / "text.txt").write_bytes(text)


def prepare(directory, weft, size, rows_at_once, one_batch=False):
    """Model, text, its ids for PyTorch, and run.ini. one_batch: each step takes the same rows, in whatever order."""
    write_model(directory / "model", size)
    write_text(directory / "text.txt", 400_000)
    if one_batch:
        keep_one_batch(directory, weft, size)
    write_run(directory / "run.ini", size, rows_at_once)
    (directory / "ids.txt").write_bytes(tokenize(weft, directory, (directory / "text.txt").read_bytes()))


# ---- execution ----


def find_weft():
    weft = pathlib.Path(os.environ.get("WEFT_BUILD_DIR", ROOT / "build")).resolve() / "weft"
    if not weft.exists():
        fail(f"{weft} is not there: build it with configs/build.sh, or set WEFT_BUILD_DIR")
    return weft


def find_torch(wanted):
    """The interpreter that has torch and transformers, and their versions; None without."""
    python = os.environ.get("WEFT_PYTHON", sys.executable)
    if not wanted:
        return None, None
    asked = subprocess.run([python, "-c", "import torch, transformers; print('PyTorch', torch.__version__ + ',', "
                            "'transformers', transformers.__version__)"], capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        return python, asked.stdout.strip()
    print(f"{python} has no torch and transformers: PyTorch is left out. WEFT_PYTHON names another interpreter.")
    return None, None


def torch_job(directory, size, rows, threads, steps, warmup):
    """What a PyTorch side is told; rows: of the process."""
    return {"model": str(directory / "model"), "ids": str(directory / "ids.txt"), "rows": rows,
            "context": size.context, "threads": threads, "steps": steps, "warmup": warmup}


def torch_environment(threads):
    return dict(os.environ, OMP_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="false")


def enough_memory(size, copies=1):
    """PyTorch holds weights, gradients and two states, and activations beside them; copies: of all that. The weights
    may lie in a temporary directory that is memory, too."""
    need = copies * (20 * size.parameters() + 1_500_000_000) + 4 * size.parameters()
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    if free < need:
        print(f"{size.name}: left out, it wants about {need / 1e9:.0f} GB and {free / 1e9:.0f} are free")
    return free >= need


class Quiet:
    """Waits for moments in which nobody else takes from these processors: a loop in as many processes as there are
    threads goes round as often as it did at its third best, give or take a twentieth, five times in a row. So it knows
    a machine that is evenly loud from its first moment on only once it has seen a better one, and it does not see who
    takes from the memory alone. Where no such moment comes within `patience` seconds of one wait, it says so and the
    run begins all the same."""

    LOOP = ("import time\nend, turns = time.perf_counter() + 0.4, 0\n"
            "while time.perf_counter() < end: turns += 1\nprint(turns)")
    NEAR, IN_A_ROW = 0.95, 5

    def __init__(self, threads, patience):
        self.threads, self.patience = threads, patience
        self.seen, self.waited, self.given_up = [], 0.0, 0

    def turns(self):
        """Of the process that the machine held up most."""
        loops = [subprocess.Popen([sys.executable, "-c", self.LOOP], stdout=subprocess.PIPE)
                 for _ in range(self.threads)]
        return min(int(loop.communicate()[0]) for loop in loops)

    def is_good(self):
        turns = self.turns()
        self.seen = sorted(self.seen + [turns])[-3:]
        return turns >= self.NEAR * self.seen[0]

    def wait(self):
        begin, good = time.monotonic(), 0
        while good < self.IN_A_ROW and time.monotonic() - begin < self.patience:
            good = good + 1 if self.is_good() else 0
        self.waited += time.monotonic() - begin
        if self.patience > 0 and good < self.IN_A_ROW:
            print(f"no quiet moment in {self.patience} s: the run begins in a loud one", file=sys.stderr, flush=True)
            self.given_up += 1


def processor_time():
    """Of all processors since the machine's start: what was stolen, which is what its host gave to others while they
    had work, and that with what they were given (man 5 proc, /proc/stat)."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = (int(word) for word in file.readline().split()[1:9])
    return steal, user + nice + system + irq + softirq + steal


def watched(run):
    """A run's result, and in it the share of the processors' time that was stolen meanwhile; None: it failed."""
    before = processor_time()
    result = run()
    stolen, wanted = (now - then for now, then in zip(processor_time(), before))
    return None if result is None else dict(result, stolen=stolen / max(1, wanted))


def run_pairs(sides, pairs, say, before=lambda: None, again=0):
    """name -> function that runs a side; who goes first turns from pair to pair; returns name -> a result per pair.
    before: called ahead of each run. again: how many runs at most, of all, are made again because more than STOLEN was
    stolen from them; what they took stands in the result as "thrown_away"."""
    runs = {name: [] for name in sides}
    for pair in range(pairs):
        for name in reversed(sides) if pair % 2 == 1 else sides:
            before()
            result, thrown_away = watched(sides[name]), []
            say(pair, name, result)
            while result is not None and result["stolen"] > STOLEN and again > 0:
                again -= 1
                thrown_away.append({key: result[key] for key in ("stolen", "step_seconds")})
                before()
                result = watched(sides[name])
                say(pair, f"{name} again", result)
            runs[name].append(None if result is None else dict(result, thrown_away=thrown_away))
    return runs


# ---- evaluation ----


def median_seconds(results):
    return statistics.median(second for result in results for second in result["step_seconds"])


def pair_ratio(slow, fast):
    """How many times as fast: the median of what each pair says."""
    return statistics.median(statistics.median(s["step_seconds"]) / statistics.median(f["step_seconds"])
                             for s, f in zip(slow, fast))


def bar(text, value, holds):
    """holds: None where it is not judged, for the reason "why", or because what it needs was not measured."""
    return {"bar": text, "value": value, "holds": holds}


def print_bars(summary, pairs):
    said = {True: "holds", False: "MISSED"}
    print(f"  bars, from {pairs} pairs:" if summary["bars"] else "  no bar is set for this run")
    for one in summary["bars"]:
        why = one.get("why", "what it needs was not measured")
        print(f"    {one['bar']:68}{one['value']:>20}  {said.get(one['holds'], 'not judged: ' + why)}")
    print(flush=True)
