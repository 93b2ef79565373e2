#!/usr/bin/env python3
"""Measures how long a run takes until the weights of a checkpoint of 1 GB are in place, beside reading the file.

    tests/bench/start.py [--types fp32,bf16,fp16] [--precisions fp32,bf16] [--rounds 5] [--optimizer adamw]
                         [--dir DIR] [--json FILE]

For each type of file it makes a LLaMA whose weights take 1 GB, and for each precision of the run it measures in each
round `cat file` and `weft profile`, each first cold (the file is dropped from the kernel's cache, which is checked) and
then warm. Weft's time runs until every weight is in memory, converted to fp32, and the copy for bf16 made where the run
computes in it: it is what passes before the first FORWARD. The optimizer's state is zero by then and takes its pages at
the first UPDATE: the seconds of that one step's UPDATE are printed beside, and held to no bar. The program
counts it from its first line on; the time of a whole `weft --version` is added for what comes before: the process, and
the linking of its libraries. Of the weights' pages those are counted that are still absent then, each a page fault for
the first step. What is printed are medians over the rounds, and the verdict on two bars: cold, 1.5 times `cat`, by the
medians and by the median of the rounds' own ratios; warm, 2 seconds. It ends with status 1 where one is missed. One run
before the rounds does not count: a virtual machine may get memory from its host only when it is touched for the first
time, which takes seconds.

The files lie in DIR, which must be on a disk; by default where temporary files lie. The program is
$WEFT_BUILD_DIR/weft, or build/weft."""

import argparse
import array
import ctypes
import json
import mmap
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 32000
COLD_BAR, WARM_BAR = 1.5, 2.0  # times `cat`; seconds
# hidden, MLP, layers, heads: 255 M and 518 M parameters
SHAPES = {"fp32": (1024, 2752, 15, 16), "bf16": (1280, 3456, 22, 20), "fp16": (1280, 3456, 22, 20)}
TYPES = {"fp32": ("F32", "float32", 4), "bf16": ("BF16", "bfloat16", 2), "fp16": ("F16", "float16", 2)}
PRECISIONS = ("fp32", "bf16")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="fp32,bf16", help="of the files: some of fp32, bf16, fp16")
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw", help="adamw has two states")
    parser.add_argument("--precisions", default="fp32,bf16", help="of the runs: fp32, bf16 or both")
    parser.add_argument("--dir", help="where the files are made, and removed again")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured to FILE")
    options = parser.parse_args()
    if any(name not in TYPES for name in options.types.split(",")):
        parser.error("--types are some of " + ", ".join(TYPES) + ", with commas")
    if any(name not in PRECISIONS for name in options.precisions.split(",")) or options.rounds < 1:
        parser.error("--precisions are fp32, bf16 or both with a comma; --rounds at least 1")
    return options


# ---- the checkpoint ----


def tensors(shape):
    """Names and dimensions, in the order in which transformers writes them."""
    hidden, mlp, layers, _ = shape
    rows = {"lm_head.weight": (VOCABULARY, hidden), "model.embed_tokens.weight": (VOCABULARY, hidden),
            "model.norm.weight": (hidden,)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name in ("q", "k", "v", "o"):
            rows[f"{at}self_attn.{name}_proj.weight"] = (hidden, hidden)
        rows[f"{at}mlp.gate_proj.weight"] = rows[f"{at}mlp.up_proj.weight"] = (mlp, hidden)
        rows[f"{at}mlp.down_proj.weight"] = (hidden, mlp)
        rows[f"{at}input_layernorm.weight"] = rows[f"{at}post_attention_layernorm.weight"] = (hidden,)
    return dict(sorted(rows.items()))


def noise(kind):
    """A few megabytes of small normal numbers; bf16 is the upper half of fp32."""
    source = random.Random(1)
    numbers = array.array("f", (source.gauss(0.0, 0.02) for _ in range(1 << 20)))
    if kind == "fp16":
        return struct.pack(f"<{len(numbers)}e", *numbers)
    return numbers.tobytes() if kind == "fp32" else array.array("H", numbers.tobytes())[1::2].tobytes()


def write_weights(path, kind):
    name, _, width = TYPES[kind]
    header, at = {}, 0
    for tensor, dims in tensors(SHAPES[kind]).items():
        count = width
        for dim in dims:
            count *= dim
        header[tensor] = {"dtype": name, "shape": list(dims), "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = noise(kind)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for begin in range(0, at, len(block)):
            file.write(block[:at - begin])
        file.flush()
        os.fsync(file.fileno())


def prepare(directory, kind, options):
    hidden, mlp, layers, heads = SHAPES[kind]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": mlp,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "vocab_size": VOCABULARY, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": TYPES[kind][1],
    }
    model = directory / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "configs/chess/base" / name, model)
    write_weights(model / "model.safetensors", kind)
    (directory / "text.txt").write_text("1. e4 e5 2. Nf3 Nc6 3. Bb5 a6\n" * 40)
    (directory / "run.ini").write_text(f"""[model]
plugin = llama
path   = model
[data]
path    = text.txt
context = 16
[train]
steps        = 10
global_batch = 1
micro_batch  = 1
[optimizer]
plugin = {options.optimizer}
lr     = 1e-6
""")
    return model / "model.safetensors"


# ---- measurement ----


def cached_share(path):
    """How much of a file lies in the kernel's cache. Reading would put it there, so the pages are asked for."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        first = ctypes.c_char.from_buffer(view)
        pages = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        status = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(len(view)), pages)
        del first
    if status != 0:
        sys.exit(f"start.py: mincore failed: {os.strerror(ctypes.get_errno())}")
    return sum(page & 1 for page in pages) / len(pages)


def drop(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    share = cached_share(path)
    if share > 0.01:
        sys.exit(f"start.py: {100 * share:.0f} % of {path} stay in the kernel's cache, so nothing cold can be "
                 "measured: --dir names a folder on a disk")


def warm(path):
    """Reads the file until all of it is in the cache; a kernel that reclaims memory may need more than one time."""
    for _ in range(5):
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        share = cached_share(path)
        if share > 0.999:
            return
    sys.exit(f"start.py: {100 * share:.0f} % of {path} are in the kernel's cache after it was read, so nothing warm "
             "can be measured: free some memory")


def run_cat(path):
    begin = time.monotonic()
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


def run_version(weft):
    begin = time.monotonic()
    subprocess.run([weft, "--version"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


def run_weft(weft, directory, precision):
    before = run_version(weft)
    command = [weft, "profile", directory / "run.ini", f"train.precision={precision}", "--json", "--steps", "1",
               "--warmup", "0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit("start.py: weft profile failed, see above")
    profile = json.loads(done.stdout)
    start = profile["start"]
    update = sum(row["seconds"] for row in profile["operators"] if row["operation"] == "optimizer")
    return dict(start, seconds=before + start["seconds"], launch_seconds=before, update_seconds=update,
                device=profile["device"])


def measure(directory, path, weft, precision, options):
    """Lists of a value per round."""
    sides = {"cat": lambda: {"seconds": run_cat(path)}, "weft": lambda: run_weft(weft, directory, precision)}
    runs = {f"{name} {state}": [] for state in ("cold", "warm") for name in sides}
    run_weft(weft, directory, precision)
    for turn in range(options.rounds):
        for name in sorted(sides, reverse=turn % 2 == 1):
            drop(path)
            runs[f"{name} cold"].append(sides[name]())
            warm(path)
            runs[f"{name} warm"].append(sides[name]())
    return runs


# ---- evaluation ----


def median(runs, key="seconds"):
    return statistics.median(run[key] for run in runs)


def summarize(kind, precision, path, runs):
    weft = runs["weft cold"] + runs["weft warm"]
    ratios = [w["seconds"] / c["seconds"] for w, c in zip(runs["weft cold"], runs["cat cold"])]
    summary = {"type": kind, "precision": precision, "bytes": os.path.getsize(path), "runs": runs,
               "medians": {name: median(same) for name, same in runs.items()},
               "load_medians": {name: median(same, "load_seconds") for name, same in runs.items()
                                   if name.startswith("weft")},
               "update_seconds": median(weft, "update_seconds"), "pages": weft[0]["weight_pages"],
               "pages_absent": max(run["weight_pages_absent"] for run in weft),
               "cold_ratio": median(runs["weft cold"]) / median(runs["cat cold"]),
               "pair_ratio": statistics.median(ratios)}
    summary["passes"] = bool(max(summary["cold_ratio"], summary["pair_ratio"]) <= COLD_BAR
                             and summary["medians"]["weft warm"] <= WARM_BAR
                             and summary["pages"] > 0 and summary["pages_absent"] == 0)
    return summary


def print_summary(summary, rounds):
    print(f"a file of {summary['type']}, {summary['bytes'] / 1e6:.0f} MB, a run in {summary['precision']}, "
          f"{rounds} rounds")
    for name, same in summary["runs"].items():
        weights = summary["load_medians"].get(name)
        print(f"  {name:10}{summary['medians'][name]:8.3f} s  ({min(r['seconds'] for r in same):.3f} to "
              f"{max(r['seconds'] for r in same):.3f})" + (f", of them loading {weights:.3f}" if weights else ""))
    print(f"  cold: {summary['cold_ratio']:.2f} times cat (bar {COLD_BAR}; median of the rounds' own ratios "
          f"{summary['pair_ratio']:.2f})")
    print(f"  warm: {summary['medians']['weft warm']:.3f} s (bar {WARM_BAR})")
    print(f"  pages of the weights that were absent before the first step: {summary['pages_absent']} of "
          f"{summary['pages']}")
    print("  the first UPDATE, which touches the optimizer's state for the first time: "
          f"{summary['update_seconds']:.3f} s")
    print(f"  {'holds' if summary['passes'] else 'MISSED'}\n", flush=True)


def main():
    options = parse_arguments()
    weft = pathlib.Path(os.environ.get("WEFT_BUILD_DIR", ROOT / "build")) / "weft"
    if not weft.exists():
        sys.exit(f"start.py: {weft} is not there: build it with configs/build.sh, or set WEFT_BUILD_DIR")
    report = {"rounds": options.rounds, "optimizer": options.optimizer, "load_before": os.getloadavg(), "runs": []}
    for kind in options.types.split(","):
        with tempfile.TemporaryDirectory(dir=options.dir) as name:
            directory = pathlib.Path(name)
            path = prepare(directory, kind, options)
            for precision in options.precisions.split(","):
                runs = measure(directory, path, weft, precision, options)
                if "device" not in report:
                    report["device"] = device = runs["weft cold"][0]["device"]
                    print(f"{device['name']}, {device['isa']}, {device['backend']}, {device['threads']} threads\n")
                report["runs"].append(summarize(kind, precision, path, runs))
                print_summary(report["runs"][-1], options.rounds)
    report["load_after"] = os.getloadavg()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(0 if all(summary["passes"] for summary in report["runs"]) else 1)


if __name__ == "__main__":
    main()
