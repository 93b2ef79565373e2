"""A rejected program is reported with the strategy's kind, id, file and mode, and can be printed with a mark at the
error. Programs of any rank and mode can be printed."""
import collections
import re

import pytest
from harness import FAILS, changed_plugin, lines, make_model, make_text, refused, says, weft, write_ini

NORM = "WEFT_INSTRUCTION_NORM"
STRATEGIES = {"unnormed": f"EMIT_TIMES(kind)=((kind)!={NORM})",
              "unstepped": "EMIT_TIMES(kind)=((kind)!=WEFT_INSTRUCTION_STEP)",
              "eager": "REPEAT_IF=job->mode==WEFT_MODE_EVALUATE", "mute": "IN_COMPILE=fail_to_generate",
              "endless": "IN_COMPILE=hang", "flood": f"EMIT_TIMES(kind)=((kind)=={NORM}?5000:1)"}


@pytest.fixture(scope="module", autouse=True)
def files(scratch, plugin_path):
    make_model("model", 16, 4, 24, 2, 512)
    make_text(40)
    write_ini("run.ini", model="plugin=llama path=model start=fresh", train="steps=2 global_batch=4 micro_batch=2",
              data="path=games.txt document=line context=32 validation=5")
    return {id: changed_plugin("strategy", "single", id, change) for id, change in STRATEGIES.items()}


@pytest.mark.parametrize("id, mode, facts, shown, marks", [
    ("unnormed", "training", ["rank 0, instruction "], "^.* STEP +<== ", 1),
    ("unstepped", "training", ["rank 0"], "^ +[0-9]+  <== ", 1),
    ("eager", "evaluation", ["rank 0, instruction 6, FORWARD embed micro-batch 0", "instruction 0"], "^ +6 .*  <== ",
     1),
    ("mute", "generation", ["compile was called"], "^program of rank 0 in generation", 0)])
def test_rejected_program(files, id, mode, facts, shown, marks):
    """It is reported, and with a flag also printed."""
    said = weft("plan run.ini --print-program", f"strategy.plugin={id}", f"--mode={mode}", status=FAILS)
    says(said.err, f"strategy:{id} ({files[id]})", f"in {mode}", *facts)
    says(said.out, re.compile(shown), count=1)
    says(said.out, "<==", count=marks)
    says(said.out, re.compile(f"^program of rank 0 in {mode}"))


def test_program_is_not_printed_without_the_flag():
    says(weft("train run.ini strategy.plugin=eager run.out=one", status=FAILS).out, "<==", count=0)


@pytest.mark.parametrize("arguments, facts", [
    ("strategy.plugin=endless plugins.compile_seconds=0.3",
     ["strategy:endless ({file})", "0.3 s", "[plugins] compile_seconds"]),
    ("strategy.plugin=flood plugins.compile_events=200", ["200 instructions", "[plugins] compile_events"]),
    ("strategy.plugin=flood", ["NORM", "instruction 31 "]),  # with enough memory for it
    ("--print-program --mode eval", ["--mode", "eval"]), ("--mode evaluation", ["--mode", "--print-program"])])
def test_error(files, arguments, facts):
    refused(f"plan run.ini {arguments}", says=[fact.format(file=files["endless"]) for fact in facts])


def test_limits_of_a_valid_program():
    weft("plan run.ini plugins.compile_seconds=60 plugins.compile_events=200")


@pytest.mark.parametrize("rank, has, lacks", [(0, "embed", "head"), (1, "head", "embed")])
def test_program_of_a_rank(rank, has, lacks):
    said = weft(f"plan run.ini strategy.plugin=mp --ranks 2 --print-program --rank {rank}").out
    says(said, f"FORWARD {has}")
    says(said, f"FORWARD {lacks}", count=0)
    if rank == 0:
        assert weft("plan run.ini strategy.plugin=mp --ranks 2 --print-program").out == said


@pytest.mark.parametrize("mode", ["evaluation", "generation"])
def test_program_of_a_mode(mode):
    said = weft(f"plan run.ini --print-program --mode {mode}").out
    program = lines(said[said.index("\nindex "):], re.compile("^ +[0-9]+ "))
    assert collections.Counter(line.split()[2] for line in program) == {"FORWARD": 6}
