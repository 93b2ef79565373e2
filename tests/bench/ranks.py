#!/usr/bin/env python3
"""Measures training on two ranks of one thread beside one rank of two threads, and beside PyTorch in the same run.

    tests/bench/ranks.py [--sizes 24,134,518] [--pairs 3] [--sides ddp,fsdp] [--memory] [--json FILE]
    tests/bench/ranks.py --sizes 24 --micro-batches 8 --no-torch
    tests/bench/ranks.py --quick

The models, with fresh weights, and the size of the batch are those of roof.py. A micro-batch is half of the batch, so
that one rank has two micro-batches and two ranks have one each: the same sum, and the same bits. In each pair every side runs
once, in processes of its own; who goes first turns from pair to pair. Start and warm-up do not count. Times are medians
over the steps of all pairs; a ratio is the median of the pairs' ratios.

    1x2                      Weft, strategy single, one rank of two threads
    ddp, fsdp                Weft, two ranks of one thread, reduce = ordered; fsdp is shard = full
    ddp fast ... fsdp tree   the same with reduce = fast and tree
    ddp tree last ...        with more micro-batches than ranks: those with reduce_at = last, too
    torch ddp, torch fsdp2   PyTorch's over gloo, eager, fused AdamW, clipping; fully_shard around layers and the whole

A step of Weft is the time from the line that tells the step before to the line that tells this one. Memory is the
largest peak of resident memory (VmHWM) of a rank. Bytes sent are what the ranks count themselves, the most of one rank
in a step, and so is the hidden part of the time that sums take to travel. The model that a run leaves is hashed; 1x2,
ddp and fsdp have to agree. Right after its steps `weft plan --time` predicts the step of each of these three, from
rates that it measures then.

After each size come its bars: ordered at most 1.1 times fast; predicted over measured between 0.8 and 1.2. At 134 M
and 518 M, too: ddp at least 0.9 times as fast as 1x2; a step of fsdp at most 1.1 times one of ddp; ddp 1.3 times as
fast as PyTorch's, fsdp 1.6 times as fast as FSDP2 with at most 0.7 (134 M) and 0.8 (518 M) of its memory.

--micro-batches N cuts a step into N micro-batches instead of two, so that a rank adds up several micro-batches and the ways of adding
differ in what they send: that is their price. Of its bars only that of bits is set.

--memory runs fsdp on 1, 2 and 4 ranks of one thread, with four micro-batches, too: what is held has to fall as 1/N.

The program is $WEFT_BUILD_DIR/weft, or build/weft. PyTorch is that of $WEFT_PYTHON, or of the Python that runs this.
--quick takes a small batch and one pair, and under two minutes; of its bars only those of bits and memory are set."""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import common
from common import SIZES, bar, median_seconds, pair_ratio

REDUCES = ("ordered", "fast", "tree")
STRATEGIES = {"ddp": ["strategy.plugin=ddp"], "fsdp": ["strategy.plugin=fsdp", "strategy.shard=full"]}
STEP_LINE = re.compile(r"\bstep +([\d,]+)/[\d,]+ +loss +(\S+)")
PATIENCE = 1800  # seconds per run


@dataclasses.dataclass(frozen=True)
class Side:
    """How Weft is started."""

    ranks: int
    threads: int
    keys: tuple


def label(strategy, reduce):
    return strategy if reduce == "ordered" else f"{strategy} {reduce}"


def weft_sides():
    sides = {"1x2": Side(1, 2, ("strategy.plugin=single",))}
    for reduce in REDUCES:
        for name, keys in STRATEGIES.items():
            sides[label(name, reduce)] = Side(2, 1, (*keys, f"strategy.reduce={reduce}"))
    return sides


def last_sides():
    """A rank adds up its micro-batches by itself and sends the sum, which is not the sum that ordered promises."""
    return {f"{name} {reduce} last": Side(2, 1, (*keys, f"strategy.reduce={reduce}", "strategy.reduce_at=last"))
            for reduce in ("fast", "tree") for name, keys in STRATEGIES.items()}


WEFT_SIDES = weft_sides()
LAST_SIDES = last_sides()
PREDICTED = ("1x2", "ddp", "fsdp")
TORCH_SIDES = {"torch ddp": "ddp", "torch fsdp2": "fsdp2"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*WEFT_SIDES, *LAST_SIDES, *TORCH_SIDES]
    parser.add_argument("--sizes", default="24,134,518", help="of %s, separated by commas" % ", ".join(SIZES))
    parser.add_argument("--pairs", type=int, default=3, help="how often each side runs, 3 by default")
    parser.add_argument("--steps", type=int, help="measured steps of one run, instead of the size's own")
    parser.add_argument("--warmup", type=int, default=1, help="steps before them, 1 by default and at least")
    parser.add_argument("--sides", help="only these beside 1x2: " + ", ".join(every[1:]))
    parser.add_argument("--micro-batches", type=int, default=2, help="micro-batches of a step, 2 by default")
    parser.add_argument("--memory", action="store_true", help="fsdp on 1, 2 and 4 ranks, too")
    parser.add_argument("--no-plan", action="store_true", help="leave the predictions out")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--quick", action="store_true", help="one small batch and one pair, to see that all works")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured to FILE")
    options = parser.parse_args()
    common.check_sizes(parser, options.sizes, SIZES)
    options.sides = ["1x2", *options.sides.split(",")] if options.sides else every
    unknown = [name for name in options.sides if name not in every]
    if unknown:
        parser.error("--sides %s: there are %s" % (unknown[0], ", ".join(every[1:])))
    if options.pairs < 1 or options.warmup < 1 or (options.steps is not None and options.steps < 1):
        parser.error("--pairs, --steps and --warmup are at least 1")
    if options.micro_batches != 2 and (options.quick or options.memory):
        parser.error("--quick and --memory have micro-batches of their own: leave --micro-batches out")
    if options.micro_batches == 2 and any(name in LAST_SIDES for name in options.sides[1:]) and options.sides != every:
        parser.error("with two micro-batches a rank has one, and reduce_at = last is each: say --micro-batches")
    if options.micro_batches < 2 or any(SIZES[name].rows % options.micro_batches for name in options.sizes.split(",")):
        parser.error("--micro-batches is at least 2 and divides the rows of each size")
    if options.quick:
        options.pairs, options.steps, options.warmup, options.memory = 1, 3, 1, True
    return options


# ---- Weft ----


def model_hash(directory):
    """Of the weights that a run has left."""
    whole = hashlib.sha256()
    for path in sorted(directory.glob("*.safetensors")):
        with open(path, "rb") as file:
            while block := file.read(1 << 24):
                whole.update(block)
    return whole.hexdigest()


def rank_records(path):
    """What ranks.json says of the ranks, the most of one: memory, bytes in a step, seconds of sums on their way."""
    ranks = json.loads(path.read_text())["ranks"]
    reduce = [rank["seconds"]["reduce"] for rank in ranks]
    under_way = sum(one["under_way"] for one in reduce)
    return {"resident_peak": max(rank["resident_peak"] for rank in ranks),
            "sent_per_step": max(rank["sent"]["total"] // rank["steps"] for rank in ranks),
            "reduce_hidden": 1.0 - sum(one["busy"] for one in reduce) / under_way if under_way > 0 else None,
            "ranks": ranks}


def follow(process):
    """Reads what a run says as it comes: when each step was told, by its number, and the last loss."""
    told, loss = {}, float("nan")
    for line in process.stdout:
        found = STEP_LINE.search(line)
        if found:
            told[int(found[1].replace(",", ""))] = time.perf_counter()
            loss = float(found[2])
    return told, loss


def weft_command(weft, directory, side, steps, more):
    """more: keys beside the side's own."""
    command = [weft, "train", directory / "run.ini", "--overwrite", f"run.out={directory / 'out'}",
               f"train.steps={steps}", "checkpoint.dtype=fp32", f"device.threads={side.threads}", *side.keys, *more]
    return command + (["--ranks", str(side.ranks)] if side.ranks > 1 else [])


def run_weft(weft, directory, side, steps, warmup, more=()):
    out = directory / "out"
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(weft_command(weft, directory, side, warmup + steps, more), stdout=subprocess.PIPE,
                                   stderr=errors, text=True)
        told, loss = follow(process)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 or len(told) != warmup + steps:
            errors.seek(0)
            common.fail(f"weft train {' '.join(side.keys)} failed:\n" + errors.read()[-2000:])
    result = {"step_seconds": [told[i + 1] - told[i] for i in range(warmup, warmup + steps)], "loss": loss,
              "resident_peak": usage.ru_maxrss * 1024, "hash": model_hash(out / "model")}
    if side.ranks > 1:
        result.update(rank_records(out / "ranks.json"))
    shutil.rmtree(out)
    return result


def plan(weft, directory, side, *more):
    command = [weft, "plan", directory / "run.ini", "--json", "--ranks", str(side.ranks),
               f"device.threads={side.threads}", *side.keys, *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
                          check=False)
    if done.returncode != 0:
        common.fail(f"weft plan {' '.join((*side.keys, *more))} failed:\n" + done.stderr[-2000:])
    return json.loads(done.stdout)


def run_and_predict(weft, directory, side, steps, warmup):
    result = run_weft(weft, directory, side, steps, warmup)
    result["predicted_seconds"] = plan(weft, directory, side, "--time")["time"]["step_seconds"]
    return result


# ---- PyTorch ----


def run_torch(python, directory, size, wrap, steps, warmup):
    """Two ranks; the steps of the first and the most memory of both. None: it does not run here."""
    ranks, world = [], 2
    with tempfile.TemporaryDirectory() as temporary:
        for rank in range(world):
            job = dict(common.torch_job(directory, size, size.rows, 1, steps, warmup), precision="fp32", wrap=wrap,
                       rank=rank, world=world, store=str(pathlib.Path(temporary) / "store"))
            ranks.append(subprocess.Popen(
                [python, common.ROOT / "tests/bench/torch_ranks.py", json.dumps(job)], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=dict(common.torch_environment(1), GLOO_SOCKET_IFNAME="lo")))
        said = []
        try:
            said = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        except subprocess.TimeoutExpired:
            print(f"PyTorch {wrap} took more than {PATIENCE} seconds", file=sys.stderr)
        for rank in ranks:
            rank.kill()
            rank.wait()
    if len(said) != world or any(rank.returncode != 0 for rank in ranks):
        print(f"PyTorch {wrap} failed and is left out:\n" + "\n".join(errors[-1500:] for _, errors in said))
        return None
    results = [json.loads(out.splitlines()[-1]) for out, _ in said]
    return dict(results[0], resident_peak=max(result["resident_peak"] for result in results))


# ---- a size ----


def sides_of(directory, weft, python, size, options):
    """What a pair runs, in order: name -> function."""
    steps = options.steps or size.steps
    sides = {}
    for name, side in {**WEFT_SIDES, **(LAST_SIDES if options.micro_batches > 2 else {})}.items():
        if name in options.sides:
            run = run_and_predict if name in PREDICTED and not options.no_plan else run_weft
            sides[name] = lambda side=side, run=run: run(weft, directory, side, steps, options.warmup)
    for name, wrap in TORCH_SIDES.items():
        if python and name in options.sides:
            sides[name] = lambda wrap=wrap: run_torch(python, directory, size, wrap, steps, options.warmup)
    return sides


def measure(directory, weft, python, size, options):
    """All runs of a size that came to an end in every pair: side -> list of results."""
    begin = [time.perf_counter()]

    def say(pair, name, result):
        now = time.perf_counter()
        told = "failed" if result is None else (f"{1e3 * statistics.median(result['step_seconds']):.0f} ms a step, "
                                                f"{result['resident_peak'] / 1e6:.0f} MB a rank")
        print(f"{size.name}: pair {pair + 1} of {options.pairs}, {name}: {told}; took {now - begin[0]:.0f} s",
              file=sys.stderr, flush=True)
        begin[0] = now

    runs = common.run_pairs(sides_of(directory, weft, python, size, options), options.pairs, say)
    return {name: results for name, results in runs.items() if None not in results}


def summarize_side(size, runs, name):
    results = runs[name]
    seconds = median_seconds(results)
    side = {"step_seconds": seconds, "tokens_per_second": size.rows * size.context / seconds,
            "times_1x2": pair_ratio(runs["1x2"], results),
            "resident_peak": max(result["resident_peak"] for result in results), "loss": results[-1]["loss"]}
    for key in ("sent_per_step", "hash"):
        values = {result[key] for result in results if key in result}
        if len(values) > 1:
            print(f"{size.name}: {name} has several values of {key} in its runs: {sorted(values)}")
        side[key] = max(values, default=None)
    hidden = [result["reduce_hidden"] for result in results if result.get("reduce_hidden") is not None]
    side["reduce_hidden"] = statistics.median(hidden) if hidden else None
    predicted = [result["predicted_seconds"] / statistics.median(result["step_seconds"]) for result in results
                 if "predicted_seconds" in result]
    side["predicted_over_measured"] = statistics.median(predicted) if predicted else None
    return side


def price(runs, sides, strategy, reduce):
    """What a reproducible sum costs over fast: times, bytes and memory as ratios. None: not measured."""
    name, fast = label(strategy, reduce), label(strategy, "fast")
    if name not in runs or fast not in runs:
        return None
    return {"strategy": strategy, "reduce": reduce, "time": pair_ratio(runs[name], runs[fast]),
            "bytes": sides[name]["sent_per_step"] / sides[fast]["sent_per_step"],
            "memory": sides[name]["resident_peak"] / sides[fast]["resident_peak"]}


def summarize(size, runs):
    """Everything that is printed of a size."""
    sides = {name: summarize_side(size, runs, name) for name in runs}
    prices = [price(runs, sides, strategy, reduce) for strategy in STRATEGIES
              for reduce in ("ordered", "tree", "tree last", "fast last")]
    return {"size": size.name, "rows": size.rows, "context": size.context, "parameters": size.parameters(),
            "sides": sides, "prices": [one for one in prices if one]}


# ---- memory on 1, 2 and 4 ranks ----


def held(lines):
    return sum(lines[name] for name in ("parameters", "gradients", "optimizer"))


def measure_memory(directory, weft, size):
    """fsdp with four micro-batches on N ranks: what is held, the arena of slots, all that was taken, and the resident peak."""
    more = (f"train.global_batch={2 * size.rows}",)
    rows = []
    for n in (1, 2, 4):
        side = Side(n, 1, tuple(STRATEGIES["fsdp"]))
        print(f"{size.name}: memory of fsdp on {n} rank{'s' if n > 1 else ''}", file=sys.stderr, flush=True)
        result = run_weft(weft, directory, side, 1, 1, more)
        every = result["ranks"] if n > 1 else plan(weft, directory, side, *more)["ranks"]
        lines = max((rank["lines"] for rank in every), key=held)
        rows.append({"ranks": n, "held": held(lines), "slots": lines["arena"], "fixed": lines["fixed"],
                     "taken": sum(lines.values()), "resident_peak": result["resident_peak"], "hash": result["hash"]})
    return rows


# ---- the limits ----


def shown(value, form, factor=1.0):
    return "-" if value is None else format(factor * value, form)


def at_least(text, ratio, least):
    return bar(text, shown(ratio, ".3f"), None if ratio is None else ratio >= least)


def at_most(text, ratio, most):
    return bar(text, shown(ratio, ".3f"), None if ratio is None else ratio <= most)


def faster(runs, fast, slow):
    """How many times as fast; None where one was not measured."""
    return pair_ratio(runs[slow], runs[fast]) if fast in runs and slow in runs else None


def hash_bar(sides):
    names = [name for name in ("1x2", "ddp", "fsdp") if name in sides]
    hashes = {sides[name]["hash"] for name in names}
    if len(names) < 2:
        return bar("the same model from 1x2, ddp and fsdp", "-", None)
    return bar(f"the same model from {', '.join(names)}", "equal" if len(hashes) == 1 else "different",
               len(hashes) == 1)


def every_size_bars(sides, runs):
    bars = [at_most(f"{strategy}: a step with ordered at most 1.1 times one with fast",
                    faster(runs, label(strategy, "fast"), strategy), 1.1) for strategy in STRATEGIES]
    for name in PREDICTED:
        ratio = sides.get(name, {}).get("predicted_over_measured")
        bars.append(bar(f"{name}: predicted over measured between 0.8 and 1.2", shown(ratio, ".3f"),
                        None if ratio is None else 0.8 <= ratio <= 1.2))
    return bars


def speed_bars(name, summary, runs):
    sides = summary["sides"]
    share = None
    if "fsdp" in sides and "torch fsdp2" in sides:
        share = sides["fsdp"]["resident_peak"] / sides["torch fsdp2"]["resident_peak"]
    most = 0.7 if name == "134" else 0.8
    bars = [at_least("ddp at least 0.9 times as fast as 1x2", faster(runs, "ddp", "1x2"), 0.9),
            at_most("a step of fsdp at most 1.1 times one of ddp", faster(runs, "ddp", "fsdp"), 1.1)]
    bars += [at_least("ddp 1.3 times as fast as PyTorch's DDP", faster(runs, "ddp", "torch ddp"), 1.3),
             at_least("fsdp 1.6 times as fast as FSDP2", faster(runs, "fsdp", "torch fsdp2"), 1.6),
             at_most(f"memory of a rank of fsdp at most {most} of FSDP2's", share, most)]
    return bars


def memory_bars(rows):
    """Padding to the shard grid is what 1/N may miss."""
    whole = rows[0]["held"]
    bars = []
    for row in rows[1:]:
        ratio = row["held"] * row["ranks"] / whole
        bars.append(at_most(f"what {row['ranks']} ranks of fsdp hold together at most 1.02 times what one does", ratio,
                            1.02))
    bars.append(bar("the same model from fsdp on 1, 2 and 4 ranks",
                    "equal" if len({row["hash"] for row in rows}) == 1 else "different",
                    len({row["hash"] for row in rows}) == 1))
    return bars


def judge(name, summary, runs, micro_batches):
    """name: of SIZES, or another, for which no bar of speed is set."""
    bars = [hash_bar(summary["sides"])]
    if name in SIZES and micro_batches == 2:
        bars += every_size_bars(summary["sides"], runs)
    if name in ("134", "518") and micro_batches == 2:
        bars += speed_bars(name, summary, runs)
    return bars + (memory_bars(summary["memory"]) if "memory" in summary else [])


# ---- tables ----


def print_sides(summary):
    print(f"{summary['size']}, {summary['rows']} x {summary['context']}: {summary['parameters']:,} parameters")
    print(f"  {'':14}{'ms a step':>12}{'tokens/s':>12}{'x 1x2':>9}{'MB a rank':>11}{'MB sent':>10}"
          f"{'sums hidden':>13}{'predicted':>11}{'loss':>9}  model")
    for name, side in summary["sides"].items():
        print(f"  {name:14}{1e3 * side['step_seconds']:12.1f}{side['tokens_per_second']:12.1f}"
              f"{side['times_1x2']:9.3f}{side['resident_peak'] / 1e6:11.0f}"
              f"{shown(side['sent_per_step'], '.1f', 1e-6):>10}"
              f"{shown(side['reduce_hidden'], '.1f', 100.0):>11} %{shown(side['predicted_over_measured'], '.2f'):>11}"
              f"{side['loss']:9.4f}  {(side['hash'] or '-')[:12]}")
    print()


def print_prices(summary):
    if not summary["prices"]:
        return
    print(f"  {'over fast':16}{'time':>9}{'bytes':>9}{'memory':>9}")
    for one in summary["prices"]:
        print(f"  {one['strategy'] + ' ' + one['reduce']:16}{one['time']:9.3f}{one['bytes']:9.3f}{one['memory']:9.3f}")
    print()


def print_memory(summary):
    if "memory" not in summary:
        return
    whole = summary["memory"][0]["held"]
    print(f"  {'fsdp, MB':12}{'held':>10}{'x N':>8}{'slots':>10}{'fixed':>9}{'taken':>10}{'resident':>10}{'beside':>9}")
    for row in summary["memory"]:
        print(f"  {str(row['ranks']) + (' ranks' if row['ranks'] > 1 else ' rank'):12}{row['held'] / 1e6:10.1f}"
              f"{row['held'] * row['ranks'] / whole:8.3f}{row['slots'] / 1e6:10.1f}{row['fixed'] / 1e6:9.1f}"
              f"{row['taken'] / 1e6:10.1f}{row['resident_peak'] / 1e6:10.1f}"
              f"{(row['resident_peak'] - row['taken']) / 1e6:9.1f}")
    print()


def measure_size(directory, weft, python, name, size, options):
    common.prepare(directory, weft, size, size.rows // options.micro_batches)
    runs = measure(directory, weft, python, size, options)
    summary = summarize(size, runs)
    if options.memory:
        summary["memory"] = measure_memory(directory, weft, size)
    summary["bars"] = judge(name, summary, runs, options.micro_batches)
    print_sides(summary)
    print_prices(summary)
    print_memory(summary)
    common.print_bars(summary, options.pairs)
    return summary, runs


def main():
    options = parse_arguments()
    weft = common.find_weft()
    python, versions = common.find_torch(not options.no_torch and any(name in TORCH_SIDES for name in options.sides))
    sizes = {name: SIZES[name] for name in options.sizes.split(",")}
    if options.quick:
        sizes = {"quick": common.QUICK}
    report = {"pairs": options.pairs, "torch": versions, "load_before": os.getloadavg(), "sizes": [], "runs": {}}
    print(f"2 ranks x 1 thread beside 1 rank x 2 threads, fp32; {versions or 'no PyTorch'}; "
          f"load {os.getloadavg()[0]:.2f}\n", flush=True)
    for name, size in sizes.items():
        if not common.enough_memory(size, copies=2):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            summary, runs = measure_size(pathlib.Path(temporary), weft, python, name, size, options)
        report["sizes"].append(summary)
        report["runs"][size.name] = runs
        report["load_after"] = os.getloadavg()
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
