"""Complete runs with attention = cudnn, on the emulator. Losses match own kernels within bf16's rounding, and bits are
equal on any number of ranks and after a resume. Also: evaluation and generation, unsupported cases, missing libraries,
and failing cuDNN calls with their messages. test_cudnn.c fails each call separately."""
import concurrent.futures
import os
import pathlib
import re
import shutil

import pytest
from harness import (CUDA, EMULATOR, FULL, WEFT, losses, make_model, make_text, read, refused, same_tensors,
                     says, start, weft, write, write_ini)

RANKS = "comm.plugin=nccl strategy.plugin=fsdp --ranks"


@pytest.fixture(scope="module", autouse=True)
def inputs(emulator):
    """Runs of LLaMA and of Mistral with a window, by own kernels and by cuDNN."""
    make_model("llama", 32, 8, 56, 2, 512)
    make_model("mistral", 32, 8, 56, 2, 512, sliding_window=6, architectures=["MistralForCausalLM"],
               model_type="mistral")
    make_text(40)
    write_ini("run.ini", run="out=out", model=f"plugin=llama path={os.path.abspath('llama')} start=fresh",
              tokenizer="plugin=bpe",
              data=f"plugin=text path={os.path.abspath('games.txt')} document=line context=32 lengths=16",
              train="steps=3 global_batch=8 micro_batch=2 precision=bf16 schedule=constant", checkpoint="every=1",
              optimizer="plugin=adamw")
    write("run.ini", read("run.ini") + CUDA + "attention = cudnn\n")
    for model in "llama", "mistral":
        words = f"model.plugin={model} model.path={os.path.abspath(model)}"
        train(f"own.{model}", f"device.attention=split {words}")
        train(f"cudnn.{model}", words, env={"WEFT_EMULATOR_COUNTS": os.path.abspath("counts")})


def train(out, words="", **options):
    return weft(f"train run.ini run.out={out} {words}", **options)


@pytest.mark.parametrize("model", ["llama", "mistral"])
def test_losses(model):
    own, by_cudnn = losses(f"own.{model}"), losses(f"cudnn.{model}")
    assert len(own) == len(by_cudnn) == 3
    assert 0 < max(abs(b / a - 1) for a, b in zip(own, by_cudnn)) <= 2e-3
    assert "kernel cudnnBackendExecute" in read("counts")


def test_resume():
    """A different library is a different device for a resume, and so is a missing one."""
    train("again")
    same_tensors("cudnn.llama/model", "again/model")
    refused("train run.ini run.out=again train.steps=4 --resume device.attention=split", says="cuDNN 9.19.0")


def test_ranks():
    train("ranks", f"train.steps=1 {RANKS} 4")
    train("ranks", "train.steps=2 --ranks 2 comm.plugin=nccl strategy.plugin=mp strategy.schedule=1f1b --resume")
    train("ranks", "--resume")
    same_tensors("cudnn.llama/model", "ranks/model")
    said = weft("prove run.ini --ranks 4 --steps 1 comm.plugin=nccl train.global_batch=4 train.micro_batch=1").out
    says(said, re.compile(r": \d+ equal, 0 not covered, 0 different"))


def test_eval_and_generate():
    """Evaluation uses no log-sum-exp; the cache is for own kernels."""
    weft("eval cudnn.llama")
    words = "generate cudnn.llama --prompt '1 2 3' --tokens 8 --temperature 0"
    assert weft(words).out == weft(words, "--no-cache").out


def test_unsupported():
    refused("train run.ini run.out=wide train.precision=fp32", says=["attention = cudnn", "bf16"])
    make_model("odd", 32, 12, 56, 2, 512)
    refused(f"train run.ini run.out=odd.run model.path={os.path.abspath('odd')} data.lengths=",
            says=["cuDNN 9.19.0", "2 sequences of 32 positions, 4 heads, 2 of keys, of 12", "attention = auto"])


@pytest.mark.parametrize("was, becomes, facts", [  # names of equal length
    (b"libcudnn.so.9", b"libcudnn.so.0", ["libcudnn.so.0", "attention = cudnn", "nvidia-cudnn"]),
    (b"cudnnGetLastErrorString", b"cudnnGetLastErrorStrinX", ["libcudnn.so.9", "cudnnGetLastErrorStrinX"])])
def test_missing(was, becomes, facts):
    """A missing library or function is an error, but not for own kernels."""
    pathlib.Path("broken").mkdir(exist_ok=True)
    pathlib.Path("broken/weft-device-cuda.so").write_bytes(
        (EMULATOR / "weft-device-cuda.so").read_bytes().replace(was, becomes))
    shutil.rmtree("none", ignore_errors=True)
    env = {"WEFT_PLUGIN_PATH": f"{os.path.abspath('broken')}:{os.environ['WEFT_PLUGIN_PATH']}"}
    refused("train run.ini run.out=none", says=facts, env=env)
    assert not pathlib.Path("none/model").exists()
    train("none", "train.steps=1 device.attention=split", env=env)


SHORT = "train.steps=1 train.global_batch=4 data.lengths="  # makes no plan without use


def wrong_end(ranks, call, which):
    """Fails a call of cuDNN in a run. Returns what is wrong with its end, or None."""
    out = f"run.{ranks}.{call}.{which}"
    last = ranks - 1
    process = start(WEFT, *f"train run.ini run.out={out} {SHORT}".split(),
                    *(f"{RANKS} {ranks}".split() if ranks > 1 else []),
                    env={"WEFT_EMULATOR_FAIL": f"{call}:{which}=5000",
                         "WEFT_EMULATOR_FAIL_RANK": last if ranks > 1 else None})
    result = process.wait(status=[0, 1])
    said = str(result)
    releases = "Destroy" in call
    expected = [f"{call}.*CUDNN_STATUS_EXECUTION_FAILED"] if result.status == 1 else []
    if result.status == 0:  # nothing needs what a release frees
        expected = [f"weft: error: .*{call} on device cuda answered 5000"] if releases else ["an exit status of 1"]
    if not releases and call != "cudnnCreate":
        expected.append(r"FORWARD layers.[01].attn micro-batch")
    if ranks > 1 and not releases:
        expected.append(rf"^\[{last}\] weft.*{call}|rank {last}: .*{call}")
    missing = [pattern for pattern in expected if not re.search(pattern, said, re.M)]
    leaves = re.search(r"not released|cuda emulator:|signal \d", said)
    shutil.rmtree(out, ignore_errors=True)
    return f"{call} {which} of {ranks} ranks: without {missing}, {leaves}:\n{said}" if missing or leaves else None


@pytest.mark.parametrize("ranks", [1, 2])
def test_failing_calls(ranks):
    pathlib.Path("calls").unlink(missing_ok=True)
    train(f"whole.{ranks}", f"{SHORT} {f'{RANKS} {ranks}' if ranks > 1 else ''}", env={
        "WEFT_EMULATOR_COUNTS": os.path.abspath("calls"), "WEFT_EMULATOR_FAIL_RANK": 1 if ranks > 1 else None})
    most = {}
    for name, n in re.findall(r"^call (cudnn\w+) (\d+)$", read("calls"), re.M):
        most[name] = max(most.get(name, 0), int(n))
    step = ranks * 10 if FULL else 1000000
    calls = [(ranks, name, i) for name, n in most.items()
             for i in sorted({*range(1, n + 1, step), *([n] if ranks == 1 else [])})]
    assert len(calls) >= 8
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [wrong for wrong in pool.map(lambda call: wrong_end(*call), calls) if wrong]
    assert not found, "\n".join(found)
