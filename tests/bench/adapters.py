#!/usr/bin/env python3
"""Measures steps that train LoRA, on a base in fp32 and on one in nf4, beside PyTorch with PEFT in the same run.

    tests/bench/adapters.py [--size 134] [--pairs 3] [--rank 8] [--threads 2] [--json FILE]
    tests/bench/adapters.py --quick

It makes a LLaMA with fresh weights and a text of random words, and runs groups of three: LoRA on all linears of the
layers in Weft, the same on packed linears (QLoRA), and the same in PyTorch with PEFT, each in a process of its own that
starts from the same weights; who goes first turns from group to group. Start and warm-up do not count. Times are medians
over the steps of all groups; ratios are the medians of the groups' ratios, so that a loud moment counts for all. Memory is
the largest peak of resident memory (VmHWM) of a process. The loss is that of the last step; A is drawn by each side
itself, so they come near to each other and not to the same.

The bars: in fp32 at least 1.3 times the tokens a second of PyTorch with PEFT, in at most 0.5 of its memory; QLoRA in at
most 1.6 times the time of LoRA on fp32. It ends with status 1 where one is missed, and with 3 where none is but some are
not judged: with fewer than three groups those of speed, and those that need PEFT where WEFT_PYTHON (or this
interpreter) has none."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import common

FASTER, MEMORY, SLOWER = 1.3, 0.5, 1.6  # the limits
JUDGED_FROM = 3


def run_weft(weft, directory, size, options, base):
    command = [weft, "profile", directory / "run.ini", f"device.threads={options.threads}", "model.start=weights",
               "adapter.plugin=lora", f"adapter.r={options.rank}", f"adapter.alpha={options.rank}",
               f"model.base={base}", "--json", "--steps", str(options.steps or size.steps), "--warmup",
               str(options.warmup)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        common.fail("weft profile failed, see above")
    measured = json.loads(done.stdout)
    measured["resident_peak"] = measured["memory"]["resident_peak"]
    return measured


def run_torch(python, directory, size, options, **more):
    job = dict(common.torch_job(directory, size, size.rows, options.threads, options.steps or size.steps,
                                options.warmup), precision="fp32", compile=False, **more)
    done = subprocess.run([python, common.ROOT / "tests/bench/torch_step.py", json.dumps(job)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=common.torch_environment(options.threads), check=False)
    if done.returncode != 0:
        common.fail("the PyTorch side failed:\n" + done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def find_peft():
    python, versions = common.find_torch(True)
    if python is None:
        common.fail("it takes PyTorch to make the weights: set WEFT_PYTHON")
    asked = subprocess.run([python, "-c", "import peft; print('peft', peft.__version__)"], capture_output=True,
                           text=True, check=False)
    if asked.returncode != 0:
        print(f"{python} has no peft: it is left out")
    return python, versions, asked.stdout.strip()


def judge(runs, groups):
    """The bars, each with its value; None: not judged."""
    peak = {name: max(one["resident_peak"] for one in results) for name, results in runs.items()}
    enough = groups >= JUDGED_FROM
    slower = common.pair_ratio(runs["qlora"], runs["lora"])
    bars = [common.bar(f"QLoRA takes at most {SLOWER} times LoRA's time", f"{slower:.2f}",
                       slower <= SLOWER if enough else None)]
    if "peft" in runs:
        faster, memory = common.pair_ratio(runs["peft"], runs["lora"]), peak["lora"] / peak["peft"]
        bars += [common.bar(f"LoRA is at least {FASTER} times as fast as PEFT", f"{faster:.2f}",
                            faster >= FASTER if enough else None),
                 common.bar(f"LoRA takes at most {MEMORY} of PEFT's memory", f"{memory:.2f}", memory <= MEMORY)]
    for one in bars:
        one["why"] = f"fewer than {JUDGED_FROM} groups"
    return bars


def print_table(runs, size):
    print(f"  {'':10}{'ms a step':>12}{'tokens/s':>12}{'peak MB':>12}{'loss':>10}{'stolen':>9}")
    for name, results in runs.items():
        seconds = common.median_seconds(results)
        stolen = statistics.mean(one["stolen"] for one in results)
        print(f"  {name:10}{1e3 * seconds:12.1f}{size.rows * size.context / seconds:12.1f}"
              f"{max(one['resident_peak'] for one in results) / 1e6:12.1f}{results[-1]['loss']:10.4f}{stolen:9.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(common.SIZES), default="134")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, help="of one side of a group; by default what suits the size")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a small model and one group: that it works")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    size = common.QUICK if options.quick else common.SIZES[options.size]
    groups = 1 if options.quick else options.pairs
    weft, (python, versions, peft) = common.find_weft(), find_peft()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        common.prepare(directory, weft, size, size.rows, one_batch=True)
        run_torch(python, directory, size, options, write=True)
        sides = {"lora": lambda: run_weft(weft, directory, size, options, "auto"),
                 "qlora": lambda: run_weft(weft, directory, size, options, "nf4")}
        if peft:
            sides["peft"] = lambda: run_torch(python, directory, size, options, lora=options.rank)
        runs = common.run_pairs(sides, groups, lambda pair, side, result: print(
            f"  group {pair + 1} {side}: {1e3 * statistics.median(result['step_seconds']):.1f} ms", file=sys.stderr))
    print(f"{size.name}, LoRA of rank {options.rank} on all linears, fp32, {options.threads} threads; {versions} {peft}")
    print_table(runs, size)
    bars = judge(runs, groups)
    common.print_bars({"bars": bars}, groups)
    if options.json:
        options.json.write_text(json.dumps({"size": size.name, "runs": runs, "bars": bars}, indent=1) + "\n")
    missed = any(one["holds"] is False for one in bars)
    sys.exit(1 if missed else 3 if any(one["holds"] is None for one in bars) or not peft else 0)


if __name__ == "__main__":
    main()
