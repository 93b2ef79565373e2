#!/usr/bin/env python3
"""Measures training steps beside what the machine could give, and beside PyTorch in the same run.

    tests/bench/roof.py [--sizes 24,134,518] [--pairs 5] [--compile] [--scaling] [--json FILE]
    tests/bench/roof.py --quick

For each size it makes a LLaMA with fresh weights and a text of random words that is one batch, and runs pairs: some
steps of Weft and some of PyTorch from the same weights, each in a process of its own, so that both meet the machine in
the same state; who goes first turns from pair to pair. Start and warm-up do not count. Times are medians over the steps
of all pairs; a ratio to PyTorch is the median of the pairs' ratios. Memory is the largest peak of resident memory
(VmHWM) of a process. The loss is that of the last step; in fp32 both sides have to come to the same one.

The roofline is the matrix library's own speed at the products of the step; the registers' and the memory's are measured
beside it. All three are measured in each pair, right after the steps of Weft. "of roofline" is the median over the pairs of
the speed of a pair's median step over the roofline of that same pair, so that a moment in which the machine is slow counts
for both; "of best" is the median step of all pairs over the best roofline that any pair saw (each product's least time),
which mixes quiet moments with loud ones. A bar holds where both reach it, is missed where "of roofline" does not, and is
not judged where "of best" alone falls short. Below the table stands what compares quiet moments, and decides nothing:
the fastest of all steps over that best roofline, and over eager's fastest. The roofline that is printed is the best; against
the registers' speed both it and each pair's own, by their median, have to reach the bar. One thread is held against the
roofline of one thread. On a machine that others share, --patience waits before each run of either side until a short loop
in as many processes as there are threads goes round as fast as it did at best; and --again makes a run of either side
once more in which more than 2 % of the processors' time was stolen: given to others by the host, as the kernel counts
it. That is decided before anyone looks at what the run took. What was thrown away stands in the JSON. "stolen" is the
mean over the runs that count. An operator is held against the best of the library at its own products, attention, which
is none of them, at all of the step's, and one without products against the memory.

Matrix operations are those of products and attention, causal attention counted by half, for both sides alike. With
--precision bf16 each pair holds a run of Weft in fp32 too, which is held against the roofline of fp32; the others against
that of bf16 where the processor has instructions for it (AVX512-BF16, AMX: the library's bf16 products, and what the
registers or the tiles give), and against fp32's where it has none.

After each size come the bars that were set for it, and which of them hold; the last line counts them. It ends with
status 1 where one is missed, or a size was left out because the machine has no memory for it, and with 3 where none is
missed but some are not judged. One that needs a side which was not measured is not judged, and with fewer than five
pairs none of speed is. In fp32: at 134 M and 518 M 80 % of the roofline, and 1.25 times PyTorch eager or 87 % of the roofline;
at 24 M 1.5 times eager or 75 % of the roofline; at most 0.8 of eager's memory, under 0.95 of it at 518 M; a roofline of 0.75 of
the registers' speed; at 134 M two threads 1.9 times as fast as one; eager's loss to a thousandth. In bf16, at 134 M and
518 M: 1.5 times as fast as fp32 where the processor has instructions for bf16, 0.9 times where it has none, on AMX 3 times
and 2.5 times as fast as autocast; and no more than 100 MB of the peak of memory that were not planned, because fp32 copies of what is planned in bf16 would be more.

A fourth size, 24-8192, is the model of 24 M at one row of 8,192 places, Weft alone. Its bars are a peak of memory under
3 GB, and that no more than 100 MB of it was not planned: a matrix of 8,192 by 8,192 in fp32 takes 268 MB.

The program is $WEFT_BUILD_DIR/weft, or build/weft. PyTorch is that of $WEFT_PYTHON, or of the Python that runs this;
without torch and transformers the rest is measured. --quick takes a small batch, two pairs and under two minutes; no
bar is set for it."""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import common
from common import bar, median_seconds, pair_ratio

LONG = "24-8192"
SIZES = dict(common.SIZES)
ENOUGH_PAIRS = 5  # for speed limits
LOSS_OFF = 1e-3  # maximum difference from eager's
SIZES[LONG] = dataclasses.replace(SIZES["24"], name="24 M", rows=1, context=8192, steps=2)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="24,134,518", help="of %s, separated by commas" % ", ".join(SIZES))
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs, 5 by default")
    parser.add_argument("--steps", type=int, help="measured steps of one side of a pair, instead of the size's own")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them, 2 by default")
    parser.add_argument("--threads", type=int, default=2, help="of both sides, 2 by default")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="PyTorch's bf16 is autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument("--scaling", action="store_true", help="Weft with one thread and its roofline, too")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--quick", action="store_true", help="one small batch and two pairs, to see that all works")
    parser.add_argument("--patience", type=int, default=0, metavar="SECONDS",
                        help="wait so long at most for a quiet moment before each run of a side, 0 by default")
    parser.add_argument("--again", type=int, default=0, metavar="RUNS",
                        help="make so many runs of a size again at most, from which time was stolen, 0 by default")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured to FILE")
    options = parser.parse_args()
    common.check_sizes(parser, options.sizes, SIZES)
    if options.pairs < 1 or options.threads < 1 or min(options.warmup, options.patience, options.again) < 0:
        parser.error("--pairs and --threads are at least 1, --warmup, --patience and --again at least 0")
    if options.quick:
        options.pairs, options.steps, options.warmup = 2, 2, 1
    return options


# ---- the sides ----


def run_weft(weft, directory, size, options, threads, precision, roofline):
    start = "weights" if (directory / "model/model.safetensors").exists() else "fresh"
    command = [weft, "profile", directory / "run.ini", f"device.threads={threads}", f"train.precision={precision}",
               f"model.start={start}", "--json", "--steps", str(options.steps or size.steps), "--warmup",
               str(options.warmup)]
    done = subprocess.run(command + (["--roofline"] if roofline else []), stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        common.fail("weft profile failed, see above")
    measured = json.loads(done.stdout)
    measured["resident_peak"] = measured["memory"]["resident_peak"]
    return measured


def run_torch(python, directory, size, options, **more):
    job = dict(common.torch_job(directory, size, size.rows, options.threads, options.steps or size.steps,
                                options.warmup), precision=options.precision, **more)
    done = subprocess.run([python, common.ROOT / "tests/bench/torch_step.py", json.dumps(job)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=common.torch_environment(options.threads), check=False)
    if done.returncode != 0:
        common.fail("the PyTorch side failed:\n" + done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def find_isa(weft, options):
    """The device's instruction set, from one step of a small model."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        common.prepare(directory, weft, common.QUICK, common.QUICK.rows, one_batch=True)
        few = argparse.Namespace(**dict(vars(options), steps=1, warmup=0))
        return run_weft(weft, directory, common.QUICK, few, options.threads, "fp32", False)["device"]["isa"]


def sides_of(directory, weft, python, size, options):
    """What a pair runs, in order: name -> function."""
    fp32 = options.precision == "fp32"
    own = fp32 or options.isa.endswith("bf16")
    sides = {"weft": lambda: run_weft(weft, directory, size, options, options.threads, options.precision, own)}
    if not fp32:
        sides["fp32"] = lambda: run_weft(weft, directory, size, options, options.threads, "fp32", True)
    if python:
        sides["eager"] = lambda: run_torch(python, directory, size, options, compile=False)
    if python and options.compile:
        sides["compiled"] = lambda: run_torch(python, directory, size, options, compile=True)
    if options.scaling and options.threads > 1:
        sides["one thread"] = lambda: run_weft(weft, directory, size, options, 1, options.precision, own)
    return sides


def measure(directory, weft, python, size, options, quiet):
    """All runs of a size: side -> list of results, one per pair. quiet: whom to wait for before each."""
    def say(pair, name, result):
        print(f"{size.name}: pair {pair + 1} of {options.pairs}, {name}: "
              f"{1e3 * statistics.median(result['step_seconds']):.1f} ms a step, "
              f"{100 * result['stolen']:.1f} % stolen", file=sys.stderr, flush=True)

    if python:
        run_torch(python, directory, size, options, write=True)
    return common.run_pairs(sides_of(directory, weft, python, size, options), options.pairs, say, quiet.wait,
                            options.again)


# ---- evaluation ----


def best_roofline(results):
    """The best of all pairs: each product's least time, the registers' and the memory's most."""
    rooflines = [result["roofline"] for result in results]
    whole, parts = [0.0, 0.0], {}  # operations and seconds, of the step and of each kind of work
    for same in zip(*(roofline["products"] for roofline in rooflines)):
        calls, least = same[0]["calls_per_step"], min(product["seconds"] for product in same)
        part = parts.setdefault(same[0]["operation"] + " " + same[0]["part"], [0.0, 0.0])
        for sums in (whole, part):
            sums[0] += calls * same[0]["flops"]
            sums[1] += calls * least
    return {"flops_per_second": whole[0] / whole[1],
            "parts": {key: flops / seconds for key, (flops, seconds) in parts.items()},
            "peak_flops_per_second": max(roofline["peak_flops_per_second"] for roofline in rooflines),
            "bytes_per_second": max(roofline["bytes_per_second"] for roofline in rooflines)}


def of_registers(roofline):
    return roofline["flops_per_second"] / roofline["peak_flops_per_second"]


def roofline_scaling(one, all_threads):
    """How many times as fast the registers and the library are: the medians of what each pair says."""
    rooflines = [(best_roofline([a]), best_roofline([b])) for a, b in zip(one, all_threads)]
    return {key: statistics.median(b[key] / a[key] for a, b in rooflines)
            for key in ("peak_flops_per_second", "flops_per_second")}


def least_seconds(results):
    return min(min(result["step_seconds"]) for result in results)


def of_pair_rooflines(flops, results, rooflines):
    """The median over the pairs of a pair's speed over that pair's own roofline."""
    return statistics.median(flops / statistics.median(result["step_seconds"]) / roofline["flops_per_second"]
                             for result, roofline in zip(results, rooflines))


def operators(results, roofline):
    """A row per kind of work: the median over the pairs of its time in the pair's median step."""
    rows = []
    for first in results[0]["operators"]:
        same = [row for result in results for row in result["operators"]
                if (row["operation"], row["part"]) == (first["operation"], first["part"])]
        seconds = statistics.median(row["seconds"] for row in same)
        work, top = first["bytes"], roofline["bytes_per_second"]
        if first["flops"]:
            work = first["flops"]
            top = roofline["parts"].get(first["operation"] + " " + first["part"], roofline["flops_per_second"])
        rows.append({"operation": first["operation"], "part": first["part"], "calls": first["calls"],
                     "seconds": seconds, "flops": first["flops"], "bytes": first["bytes"],
                     "of_roofline": work / seconds / top if work and seconds > 0 else None})
    return rows


def summarize(size, runs):
    """Everything that is printed of a size."""
    weft = runs["weft"]
    base = weft if "roofline" in weft[0] else runs["fp32"]
    roofline, pair_rooflines = best_roofline(base), [best_roofline([result]) for result in base]
    flops, places = weft[0]["flops"], weft[0]["positions"]
    sides = {}
    for name, results in runs.items():
        seconds = median_seconds(results)
        own = "roofline" in results[0]  # with its own number of threads
        rooflines = [best_roofline([result]) for result in results] if own else pair_rooflines
        best = best_roofline(results) if own else roofline
        sides[name] = {"step_seconds": seconds, "places_per_second": places / seconds,
                       "flops_per_second": flops / seconds, "of_roofline": of_pair_rooflines(flops, results, rooflines),
                       "of_best_roofline": flops / seconds / best["flops_per_second"],
                       "resident_peak": max(result["resident_peak"] for result in results),
                       "stolen": statistics.mean(result["stolen"] for result in results),
                       "thrown_away": sum(len(result["thrown_away"]) for result in results),
                       "loss": results[-1]["loss"]}
        if "eager" in runs:
            sides[name]["times_eager"] = pair_ratio(runs["eager"], results)
            sides[name]["memory_of_eager"] = sides[name]["resident_peak"] / max(
                result["resident_peak"] for result in runs["eager"])
    summary = {"size": size.name, "rows": size.rows, "context": size.context, "parameters": size.parameters(),
               "flops": flops, "roofline": roofline, "sides": sides, "operators": operators(weft, roofline),
               "of_registers": of_registers(roofline),
               "of_pair_registers": statistics.median(of_registers(pair) for pair in pair_rooflines),
               "least_seconds": least_seconds(weft),
               "least_of_best_roofline": flops / least_seconds(weft) / roofline["flops_per_second"],
               "planned": weft[0]["memory"]["planned"]}
    if "eager" in runs:
        summary["least_times_eager"] = least_seconds(runs["eager"]) / least_seconds(weft)
    if "fp32" in runs:
        summary["times_fp32"] = pair_ratio(runs["fp32"], weft)
        summary["fp32_roofline"] = best_roofline(runs["fp32"])
    if "one thread" in runs:
        summary["scaling"] = pair_ratio(runs["one thread"], weft)
        summary["scaling_of_least"] = least_seconds(runs["one thread"]) / least_seconds(weft)
    if "one thread" in runs and "fp32" not in runs:
        summary["roofline_scaling"] = roofline_scaling(runs["one thread"], weft)
    return summary


# ---- the limits ----


def of_roofline_bar(text, side, want, value=""):
    """Missed where the roofline of the same pair says so; where the best roofline of all alone does, not judged."""
    of_roofline, of_best = side["of_roofline"], side["of_best_roofline"]
    one = bar(text, f"{value}{100 * of_roofline:.1f} / {100 * of_best:.1f} %", of_roofline >= want)
    if one["holds"] and of_best < want:
        one.update(holds=None, why="of best falls short, the machine was not steady")
    return one


def registers_bar(summary):
    """Missed where either of the two falls short."""
    of_pair, of_best = summary["of_pair_registers"], summary["of_registers"]
    return bar("the roofline 0.75 of the registers'", f"{of_pair:.2f} / {of_best:.2f}", min(of_pair, of_best) >= 0.75)


def speed_bars(name, side):
    """Times eager, or a fraction of the roofline: one of the two is enough."""
    times = side.get("times_eager")
    want_times, want_of_roofline = (1.5, 0.75) if name == "24" else (1.25, 0.87)
    either = of_roofline_bar(f"{want_times} times eager, or {100 * want_of_roofline:.0f} % of the roofline", side, want_of_roofline,
                         f"{'-' if times is None else format(times, '.2f')}, ")
    if times is None:
        either["holds"] = either["holds"] or None
    elif times >= want_times:
        either["holds"] = True
    return [either] if name == "24" else [of_roofline_bar("80 % of the roofline", side, 0.8), either]


def memory_bar(name, side):
    share = side.get("memory_of_eager")
    text = "memory under 0.95 of eager's" if name == "518" else "memory at most 0.8 of eager's"
    if share is None:
        return bar(text, "-", None)
    return bar(text, f"{share:.2f}", share < 0.95 if name == "518" else share <= 0.8)


def loss_off(sides, name):
    """How far the loss of a side is from eager's, as a part of that; not a number where one of them is none."""
    return sides[name]["loss"] / sides["eager"]["loss"] - 1.0


def loss_bar(sides):
    text = "the loss of eager, to a thousandth of it"
    if "eager" not in sides:
        return bar(text, "-", None)
    off = loss_off(sides, "weft")
    return bar(text, f"{off:+.1e}", abs(off) <= LOSS_OFF)


def bf16_bars(summary, isa):
    tiles, times = isa.startswith("amx"), summary["sides"]["weft"].get("times_eager")
    want, why = (3.0, "has tiles") if tiles else (1.5, "has instructions") if isa.endswith("bf16") else \
                (0.9, "lacks instructions")
    bars = [bar(f"bf16 {want} times as fast as fp32, as the processor {why} for it",
                f"{summary['times_fp32']:.2f}", summary["times_fp32"] >= want)]
    if tiles:
        bars.append(bar("2.5 times eager's autocast", "-" if times is None else f"{times:.2f}",
                        None if times is None else times >= 2.5))
    return bars


def scaling_bar(summary, threads):
    scaling = summary.get("scaling") if threads == 2 else None
    if scaling is None:
        return bar("two threads 1.9 times one", "-", None)
    return bar("two threads 1.9 times one", f"{scaling:.2f}", scaling >= 1.9)


def plan_bar(peak, planned):
    unplanned = peak - planned
    return bar("at most 100 MB of the peak were not planned", f"{unplanned / 1e6:.0f} MB", unplanned <= 100e6)


def long_bars(peak, planned):
    return [bar("a peak of memory under 3 GB", f"{peak / 1e9:.2f} GB", peak < 3e9), plan_bar(peak, planned)]


def judge(name, summary, options, isa):
    """The bars of a size and what came of them; name: of SIZES, or another, for which there are none."""
    side = summary["sides"]["weft"]
    if name == LONG:
        return long_bars(side["resident_peak"], summary["planned"])
    if name not in SIZES or (options.precision == "bf16" and name == "24"):
        return []
    speed = bf16_bars(summary, isa) if options.precision == "bf16" else speed_bars(name, side)
    if options.precision == "fp32" and name == "134":
        speed.append(scaling_bar(summary, options.threads))
    if options.pairs < ENOUGH_PAIRS:
        speed = [dict(one, holds=None, why=f"fewer than {ENOUGH_PAIRS} pairs") for one in speed]
    if options.precision == "bf16":
        return speed + [plan_bar(side["resident_peak"], summary["planned"])]
    return speed + [memory_bar(name, side), loss_bar(summary["sides"]), registers_bar(summary)]


# ---- tables ----


def print_sides(summary):
    roofline = summary["roofline"]
    print(f"{summary['size']}, {summary['rows']} x {summary['context']}: {summary['flops'] / 1e9:.1f} GFLOP a step; "
          f"roofline {roofline['flops_per_second'] / 1e9:.1f} GFLOP/s, "
          f"{summary['of_registers']:.2f} of the registers' "
          f"{roofline['peak_flops_per_second'] / 1e9:.1f}; memory {roofline['bytes_per_second'] / 1e9:.1f} GB/s; "
          f"{summary['planned'] / 1e6:.0f} MB planned")
    print(f"  {'':12}{'ms a step':>12}{'tokens/s':>12}{'GFLOP/s':>10}{'of roofline':>9}{'of best':>9}{'x eager':>9}"
          f"{'MB peak':>10}{'of eager':>10}{'loss':>8}{'stolen':>9}")
    for name, side in summary["sides"].items():
        eager = [f"{side[key]:.2f}" if key in side else "-" for key in ("times_eager", "memory_of_eager")]
        print(f"  {name:12}{1e3 * side['step_seconds']:12.1f}{side['places_per_second']:12.1f}"
              f"{side['flops_per_second'] / 1e9:10.1f}{100 * side['of_roofline']:8.1f}%"
              f"{100 * side['of_best_roofline']:8.1f}%{eager[0]:>9}"
              f"{side['resident_peak'] / 1e6:10.0f}{eager[1]:>10}{side['loss']:8.3f}{100 * side['stolen']:8.1f}%")
    if "compiled" in summary["sides"] and not abs(loss_off(summary["sides"], "compiled")) <= LOSS_OFF:
        print("  compiled did not come to eager's loss, so its time is not that of the same step")
    thrown_away = sum(side["thrown_away"] for side in summary["sides"].values())
    if thrown_away > 0:
        print(f"  runs thrown away, because more than {100 * common.STOLEN:.0f} % was stolen from them: {thrown_away}")
    eager = f", {summary['least_times_eager']:.2f} times eager's fastest" if "least_times_eager" in summary else ""
    print(f"  the fastest step of weft: {1e3 * summary['least_seconds']:.1f} ms, "
          f"{100 * summary['least_of_best_roofline']:.1f} % of the best roofline{eager}")
    if "times_fp32" in summary:
        roofline = summary["fp32_roofline"]
        print(f"  bf16 is {summary['times_fp32']:.2f} times as fast as fp32, whose roofline is "
              f"{roofline['flops_per_second'] / 1e9:.1f} GFLOP/s, "
              f"the registers' {roofline['peak_flops_per_second'] / 1e9:.1f}")
    if "scaling" in summary:
        print(f"  all threads are {summary['scaling']:.2f} times one, "
              f"the least of all steps {summary['scaling_of_least']:.2f} times")
    if "roofline_scaling" in summary:
        rooflines = summary["roofline_scaling"]
        print(f"  beside it: the registers {rooflines['peak_flops_per_second']:.2f} times, "
              f"the library alone at the step's products {rooflines['flops_per_second']:.2f} times")


def print_operators(summary):
    whole = sum(row["seconds"] for row in summary["operators"])
    print(f"\n  {'':26}{'calls':>7}{'ms':>10}{'share':>9}{'work':>18}{'of its roofline':>13}")
    for row in summary["operators"]:
        work = f"{row['flops'] / 1e9:.2f} GFLOP" if row["flops"] else f"{row['bytes'] / 1e9:.3f} GB   "
        of_roofline = f"{100 * row['of_roofline']:.1f}%" if row["of_roofline"] else ""
        print(f"  {row['operation'] + ' ' + row['part']:26}{row['calls']:7}{1e3 * row['seconds']:10.2f}"
              f"{100 * row['seconds'] / whole:8.1f}%{work if row['flops'] or row['bytes'] else '':>18}{of_roofline:>13}")
    print()


def write_report(path, report):
    if path:
        pathlib.Path(path).write_text(json.dumps(report, indent=1) + "\n")


def main():
    options = parse_arguments()
    weft = common.find_weft()
    options.isa = find_isa(weft, options) if options.precision == "bf16" else ""
    python, versions = common.find_torch(not options.no_torch)
    sizes = {name: SIZES[name] for name in options.sizes.split(",")}
    if options.quick:
        sizes = {"quick": common.QUICK}
    quiet = common.Quiet(options.threads, options.patience)
    report = {"threads": options.threads, "precision": options.precision, "pairs": options.pairs, "torch": versions,
              "load_before": os.getloadavg(), "sizes": [], "left_out": [], "runs": {}}
    for name, size in sizes.items():
        if not common.enough_memory(size):
            report["left_out"].append(name)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            directory = pathlib.Path(temporary)
            common.prepare(directory, weft, size, size.rows, one_batch=True)
            runs = measure(directory, weft, None if name == LONG else python, size, options, quiet)
        if "device" not in report:
            report["device"] = runs["weft"][0]["device"]
            device = report["device"]
            print(f"{device['name']}, {device['isa']}, {device['backend']}, {options.threads} threads, "
                  f"{options.precision}; {versions or 'no PyTorch'}; load {os.getloadavg()[0]:.2f}\n")
        summary = summarize(size, runs)
        summary["bars"] = judge(name, summary, options, report["device"]["isa"])
        report["sizes"].append(summary)
        report["runs"][name] = runs
        print_sides(summary)
        print_operators(summary)
        common.print_bars(summary, options.pairs)
        report["load_after"] = os.getloadavg()
        report["waited_seconds"], report["begun_loud"] = quiet.waited, quiet.given_up
        write_report(options.json, report)
    write_report(options.json, report)
    if options.patience > 0:
        print(f"waited {quiet.waited:.0f} s for quiet moments; {quiet.given_up} runs began in a loud one")
    bars = [one["holds"] for summary in report["sizes"] for one in summary["bars"]]
    print(f"bars: {bars.count(True)} hold, {bars.count(False)} missed, {bars.count(None)} not judged; "
          f"sizes left out: {', '.join(report['left_out']) or 'none'}")
    sys.exit(1 if False in bars or report["left_out"] else 3 if None in bars else 0)


if __name__ == "__main__":
    main()
