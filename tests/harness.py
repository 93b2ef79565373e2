"""Runs the program `weft` for tests, builds plugins, and reads the files of a run.

ctest sets WEFT_BUILD and WEFT_SOURCE; without them the tree of this file and its build/ are used. The working directory
of a test is temporary (conftest.py)."""
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading
import time

import pytest

SOURCE = pathlib.Path(os.environ.get("WEFT_SOURCE") or pathlib.Path(__file__).resolve().parents[1])
BUILD = pathlib.Path(os.environ.get("WEFT_BUILD") or SOURCE / "build")
ASSETS = pathlib.Path(os.environ.get("WEFT_ASSETS") or SOURCE.parent / "shared/assets")
WEFT = BUILD / "weft"
FAULTS = BUILD / "tests/faults"  # plugins with planted errors (tests/CMakeLists.txt)
FULL = os.environ.get("WEFT_FULL") == "1"  # the full suite: larger grids
SANITIZED = os.environ.get("WEFT_SANITIZED") == "ON"
CC = shlex.split(os.environ.get("CC") or "cc")
TIMEOUT = 1200  # seconds for a command that should end by itself, on a machine at twenty times its load

full_only = pytest.mark.skipif(not FULL, reason="full suite")  # marks a test of the full suite; not reported as skipped

FAILS = "an exit status from 1 to 123"
ANY = "any exit status"

started = []  # all processes, of which conftest.py kills those that are left
skipped = []  # reasons of skipped checks


# ---- text ----


def lines(text, *parts):
    """Returns the lines of the text that contain every part. A part is a string or a compiled regular expression."""
    return [line for line in str(text).splitlines()
            if all(part.search(line) if isinstance(part, re.Pattern) else part in line for part in parts)]


def says(text, *parts, count=None):
    """Returns the first line with every part. Fails without one, or unless `count` lines have them (count=0: none)."""
    __tracebackhide__ = True
    found = lines(text, *parts)
    if (not found and count is None) or (count is not None and len(found) != count):
        wanted = "a line" if count is None else f"{count} lines"
        pytest.fail(f"{len(found)} lines, not {wanted}, with {parts} in:\n{text}", pytrace=True)
    return found[0] if found else None


def near(a, b, most):
    """Fails unless both numbers are positive and differ by less than `most`."""
    __tracebackhide__ = True
    assert a > 0 and abs(a - b) < most


# ---- processes ----


class Result:
    """The end of a command: `status`, `out` (standard output) and `err`."""

    def __init__(self, command, status, out, err):
        self.command, self.status, self.out, self.err = command, status, out, err

    @property
    def json(self):
        """Standard output as JSON."""
        return json.loads(self.out)

    def __str__(self):
        return self.out + self.err


class Process:
    """A command in the background, in a session of its own. A variable of its environment marks all its processes."""

    def __init__(self, command, env=None, cwd=None, stdin=None, stdout=None):
        self.command = [str(word) for word in command]
        self.mark = f"WEFT_TEST_PROCESS={os.getpid()}.{len(started)}"
        environment = {**os.environ, **{name: str(value) for name, value in (env or {}).items() if value is not None}}
        for name in [name for name, value in (env or {}).items() if value is None]:
            environment.pop(name, None)
        environment.update([self.mark.split("=")])
        self.files = [_anonymous_file(), _anonymous_file()]
        given = subprocess.DEVNULL if stdin is None or isinstance(stdin, (str, bytes)) else stdin
        if isinstance(stdin, (str, bytes)):
            given = _anonymous_file(stdin if isinstance(stdin, bytes) else stdin.encode())
        self.process = subprocess.Popen(self.command, stdin=given, stdout=stdout or self.files[0], stderr=self.files[1],
                                        cwd=cwd, env=environment, start_new_session=True)
        self.pid = self.process.pid
        started.append(self)

    def _read(self, file):
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="surrogateescape")

    @property
    def out(self):
        """Standard output so far."""
        return self._read(self.files[0])

    @property
    def err(self):
        """Standard error so far."""
        return self._read(self.files[1])

    def alive(self):
        """True until the command ends."""
        return self.process.poll() is None

    def signal(self, number):
        """Sends a signal to the command itself."""
        self.process.send_signal(number)

    def wait(self, status=0, timeout=TIMEOUT):
        """Waits for the end and returns the Result. Fails with another status, or after the timeout. A status is a
        number, a list of numbers, FAILS or ANY; death by signal N counts as 128 + N."""
        __tracebackhide__ = True
        late = threading.Event()
        timer = threading.Timer(timeout, lambda: (late.set(), self.kill()))
        timer.start()
        try:
            code = self.process.wait()
        finally:  # also after a signal: the timer is a thread, which the interpreter would wait for
            timer.cancel()
        code = 128 - code if code < 0 else code
        result = Result(self.command, code, self.out, self.err)
        allowed = status == ANY or (0 < code < 124 if status == FAILS else code in (
            status if isinstance(status, (list, tuple, range)) else [status]))
        if late.is_set() or not allowed:
            end = f"no end after {timeout} s" if late.is_set() else f"exit status {code}, not {status}"
            pytest.fail(f"{end}: {shlex.join(self.command)}\n{printable(result)}", pytrace=True)
        return result

    def wait_for(self, condition, what="the condition", seconds=600):
        """Waits until condition() is true and returns its value. Fails if the command ends first, or takes too long."""
        __tracebackhide__ = True

        def met_or_ended():
            left = None if self.alive() else self
            return condition() or left

        value = wait_until(met_or_ended, what, seconds, self)
        if value is self:
            pytest.fail(f"the command ended before {what}: {self}", pytrace=True)
        return value

    def __str__(self):
        return f"{shlex.join(self.command)}\n{printable(self.out + self.err)}"

    def wait_gone(self):
        """Waits until none of the command's processes named weft is left: those of ranks may end after a launcher."""
        __tracebackhide__ = True
        wait_until(lambda: not self.processes(), "end of all processes", 60, self)

    def processes(self, name=r"weft(-ab|-check|-profile|-prove)?"):
        """Returns the ids of the command's processes, ranks included, whose name matches."""
        return [pid for pid, comm, environment in _all_processes()
                if self.mark in environment and re.fullmatch(name, comm)]

    def rank(self, number):
        """Returns the process id of a rank, once it has started."""
        names = {f"PMI_RANK={number}", f"OMPI_COMM_WORLD_RANK={number}"}
        return self.wait_for(lambda: next((pid for pid, comm,
                                           environment in _all_processes() if self.mark in environment
                                           and comm.startswith("weft") and comm != "weft-watch"
                                           and names & environment),
                                          None), f"rank {number}")

    def kill(self):
        """Kills the command and all processes that it started."""
        _kill({*self.processes(".*"), *([self.pid] if self.alive() else [])})


def wait_until(condition, what="the condition", seconds=600, process=""):
    """Waits until condition() is true and returns its value. Fails after that time, and shows the process."""
    __tracebackhide__ = True
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"no {what} after {seconds} s: {process}", pytrace=True)
        time.sleep(0.03)


def _all_processes():
    """Yields id, name and environment of each process of this user."""
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = set((directory / "environ").read_bytes().decode(errors="replace").split("\0"))
            yield int(directory.name), (directory / "comm").read_text().strip(), environment
        except OSError:
            continue


def _kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _anonymous_file(content=b""):
    file = os.fdopen(os.memfd_create("weft-test"), "w+b")
    file.write(content)
    file.flush()
    file.seek(0)
    return file


def printable(text):
    """Returns the text without bytes that a terminal would interpret."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def kill_started(first=0):
    """Kills what is left of the processes started from that number on."""
    if first == len(started):
        return
    marks = {process.mark for process in started[first:]}
    _kill(pid for pid, _, environment in _all_processes() if marks & environment)
    for process in started[first:]:
        process.process.wait()


def start(*command, **options):
    """Starts a command in the background and returns its Process. Options: `env` adds variables, or removes those with
    None; `cwd`; `stdin` is text, bytes or a file, otherwise standard input is empty; `stdout` is a file, which is not
    read here."""
    return Process(command, **options)


def run(*command, status=0, timeout=TIMEOUT, **options):
    """Runs a command and returns its Result. Fails unless it exits with that status (Process.wait). The options are
    those of start()."""
    __tracebackhide__ = True
    return start(*command, **options).wait(status, timeout)


def weft(command, *arguments, **options):
    """Runs `weft COMMAND ARGUMENT...`. The command may be several words: weft("train run.ini --quiet", "run.out=a b").
    The options are those of run()."""
    __tracebackhide__ = True
    return run(WEFT, *shlex.split(str(command)), *arguments, **options)


def start_weft(command, *arguments, **options):
    """Starts `weft COMMAND ARGUMENT...` in the background, as weft() does. The options are those of start()."""
    return start(WEFT, *shlex.split(str(command)), *arguments, **options)


def refused(command, *arguments, says=(), status=FAILS, **options):
    """Runs `weft COMMAND ARGUMENT...`, as weft() does, which must fail. One line of the output contains every part of
    `says`: the facts of the error, such as file, line, key and value, not its wording. Returns the Result."""
    __tracebackhide__ = True
    result = weft(command, *arguments, status=status, **options)
    parts = [says] if isinstance(says, (str, re.Pattern)) else says
    if not lines(result, *parts):
        pytest.fail(f"no line with {parts}: {shlex.join(result.command)}\n{printable(result)}", pytrace=True)
    return result


# ---- runs and plans of run.ini ----


def _ranks(ranks):
    return [] if ranks == 1 else ["--ranks", ranks, "comm.plugin=mpi-mpich"]


def train(out, words="", ranks=1, **options):
    """Runs `weft train run.ini` into a new directory OUT, with more words, on that many ranks. Returns its Result."""
    __tracebackhide__ = True
    return weft("train run.ini --overwrite", f"run.out={out}", *_ranks(ranks), *words.split(), **options)


def resume(out, words="", ranks=1, **options):
    """Resumes the run in OUT, as train() does."""
    __tracebackhide__ = True
    return weft("train run.ini --resume", f"run.out={out}", *_ranks(ranks), *words.split(), **options)


def plan(words="", ranks=1, **options):
    """Returns the object of `weft plan run.ini --json`, with every link between ranks."""
    __tracebackhide__ = True
    return weft("plan run.ini --json --print-links", *_ranks(ranks), *words.split(), **options).json


def all_equal(words, ranks, steps, cells=None):
    """Runs `weft prove run.ini`, whose cells, of that number if given, are all equal. Returns the Result."""
    __tracebackhide__ = True
    result = weft(f"prove run.ini --steps {steps} --ranks {ranks} comm.plugin=mpi-mpich", *words.split())
    says(result.out, f"{'' if cells is None else cells} equal, 0 not covered, 0 different")
    return result


def differences(planned, out):
    """Returns the numbers in which a plan differs from the run in OUT: allocated bytes of each rank by line, and bytes
    sent by kind and by link. The peak of live memory is at most as planned, and not much less: the padding of a sharded
    unit is touched late."""
    found = []
    ran = read_json(pathlib.Path(out) / "ranks.json")["ranks"]
    assert len(ran) == planned["world"]
    for rank in ran:
        number, steps = rank["rank"], rank["steps"]
        row = next(row for row in planned["ranks"] if number in row["ranks"])
        pairs = {"taken": (row["memory"]["total"], rank["taken"]), "planned": (row["memory"]["total"], rank["planned"])}
        pairs.update((line, (row["lines"].get(line), value)) for line, value in rank["lines"].items())
        pairs.update((kind, (steps * row["sent"][kind], value)) for kind, value in rank["sent"].items())
        for to, sent in enumerate(rank["sent_to"]):
            link = [link["bytes"] for link in planned["links"]
                    if link["from"] == number and link["to"][0] <= to <= link["to"][1]]
            pairs[f"to {to}"] = (steps * sum(link), sent)
        highest = row["lines"]["arena"] - row["memory"]["gaps"]
        if not 0.99 * highest <= rank["live"] <= highest:
            pairs["live"] = (highest, rank["live"])
        found += [(number, name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    return found


def runs_as_planned(out, words="", ranks=1):
    """Trains into OUT; the run's memory and traffic are those of its plan, to the byte."""
    __tracebackhide__ = True
    planned = plan(words, ranks)
    train(out, words, ranks)
    assert not differences(planned, out)


# ---- skipped checks ----


def skip_check(reason):
    """Reports a skipped check; the test goes on. pytest.skip(reason) skips the rest of a test."""
    skipped.append(reason)


def communicator(id):
    """Returns the file of the communicator mpi-ID."""
    return BUILD / f"plugins/weft-comm-mpi-{id}.so"


def has(id):
    """True if this build has the communicator mpi-ID (mpich, openmpi); otherwise reports a skipped check."""
    if not communicator(id).exists():
        skip_check(f"this build has no mpi-{id}, whose packages configs/packages.sh tests installs")
        return False
    if id == "openmpi":  # it allocates through the C library, where the fast unwinder does not find the callers
        options = os.environ.get("ASAN_OPTIONS", "")
        os.environ["ASAN_OPTIONS"] = (options + ":" if options else "") + "fast_unwind_on_malloc=0"
    return True


def needs(id):
    """Skips the rest of the test unless this build has the communicator mpi-ID."""
    if not has(id):
        pytest.skip(skipped.pop())


def launcher(id, ranks):
    """Returns the words of the command that starts that many ranks, from the plugin's note."""
    note = run(BUILD / "tests/ranks", "launch", communicator(id)).out.strip()
    return shlex.split(note.replace("{ranks}", str(ranks)))


# ---- plugins ----


def build_plugin(kind, id, *sources, flags=(), compiler=CC, to="plugins"):
    """Compiles sources to TO/weft-KIND-ID.so and returns its path. `flags` are further arguments."""
    file = pathlib.Path(to).resolve() / f"weft-{kind}-{id}.so"
    file.parent.mkdir(parents=True, exist_ok=True)
    run(*compiler, "-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{SOURCE}/sdk/include",
        f"-Wl,--version-script={SOURCE}/sdk/cmake/weft-plugin.map", *sources, *flags, "-o", file)
    return file


def changed_plugin(kind, of, id, *macros, by=None, sources=(), flags=(), **options):
    """Builds the plugin OF of this tree (sgd, mpi/plugin.c) with changes as the plugin ID, and returns its path. Its
    source is tests/changed/BY.c, by default KIND.c; `renamed` changes nothing but the id. The macros
    ("IN_CREATE=leave") select changes; `sources` are the plugin's other files. OF may be the path of another source."""
    source = of if str(of).endswith(".c") else f"{of}/{of}.c"
    macros = [f'SOURCE="{source if pathlib.Path(source).is_absolute() else f"{kind}/{source}"}"', f'ID="{id}"', *macros]
    return build_plugin(kind, id, SOURCE / f"tests/changed/{by or kind}.c", *sources, **options, flags=[
        "-O2", "-fno-math-errno", "-ffp-contract=off", f"-I{SOURCE}/tests", f"-I{SOURCE}/plugins",
        *(f"-D{macro}" for macro in macros), *flags, "-lm"])


def patches(file):
    """Returns the patches of a file as pairs: name, text. A patch follows a line "=== NAME" (tests/conform/mutants)."""
    sections = re.split(r"^=== (.*)\n", read(file), flags=re.M)
    return list(zip(sections[1::2], sections[2::2]))


def patched(file, patch, to):
    """Writes TO: the file with the text of a patch. Returns its path."""
    run("patch", "-s", "-F0", "-o", to, file, stdin=patch)
    return pathlib.Path(to)


# ---- the CUDA emulator (tests/cuda) ----

EMULATOR = BUILD / "tests/cuda"
# Sections of an INI file that select the emulator.
CUDA = f"[device]\nplugin = cuda\n[device.cuda]\nworkspace = 1Mi\ncache = {EMULATOR}/compiled\n"


def counts(file, call):
    """Returns the counts of a call, of each process that wrote to the file WEFT_EMULATOR_COUNTS."""
    return [int(line.split()[-1]) for line in read(file).splitlines() if line.startswith(f"call {call} ")]


def grown_headers(to):
    """Copies the SDK's headers to TO/weft with the changes of a newer SDK: each public struct with a struct_size has
    more fields at its end, so that code built with the copy has longer structs. An unchanged file keeps its time."""
    n = 0
    for header in sorted((SOURCE / "sdk/include/weft").glob("*.h")):
        text, grown = re.subn(r"^((?:typedef )?struct weft_\w+ \{\n    uint32_t struct_size;\n.*?)^\}",
                              r"\1    uint64_t grown[13];\n}", read(header), flags=re.M | re.S)
        assert grown == text.count("\n    uint32_t struct_size;\n")
        n += grown
        file = pathlib.Path(to) / "weft" / header.name
        if not file.exists() or read(file) != text:
            write(file, text)
    assert n > 50


# ---- inputs of a run ----


def write(file, text):
    """Writes a file, and its directories; returns its path."""
    path = pathlib.Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def make_model(directory, hidden, head, intermediate, layers, vocabulary, **changes):
    """Writes a LLaMA configuration with 4 heads, with changed keys, and a tokenizer of 512 ids."""
    for file in (SOURCE / "configs/chess/base").glob("tokenizer*.json"):
        write(pathlib.Path(directory) / file.name, file.read_text())
    write_json(pathlib.Path(directory) / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "head_dim": head,
        "intermediate_size": intermediate, "num_hidden_layers": layers, "vocab_size": vocabulary,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
        "torch_dtype": "float32",
        **changes})


def make_text(n, file="games.txt"):
    """Writes n games of chess, one a line."""
    with open(SOURCE / "configs/chess/train.txt", encoding="utf-8") as games:
        write(file, "".join(line for line, _ in zip(games, range(n))))


def write_ini(file, **sections):
    """Writes an INI file. Each section is a string of words key=value: write_ini("run.ini", train="steps=2 clip=1")."""
    return write(file, "".join(f"[{name}]\n" + "".join(f"{word}\n" for word in words.split())
                               for name, words in sections.items()))


def make_run(rest=""):
    """Writes a model, games.txt and run.ini, which ends within [train] and is continued by `rest`."""
    make_model("model", 40, 10, 88, 3, 521)  # indivisible sizes: head dimension 10, a padded vocabulary
    make_text(60)
    write("run.ini", f"""\
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
{rest}""")


def make_ranks_run():
    """Writes a small model, games.txt and run.ini for tests of several ranks: strategy ddp, output in one."""
    make_model("model", 32, 8, 56, 2, 512)
    make_text(40)
    write_ini("run.ini", run="out=one", model="plugin=llama path=model start=fresh",
              data="plugin=text path=games.txt document=line context=64", train="steps=3 global_batch=4 micro_batch=1",
              strategy="plugin=ddp", device="threads=1")


def change_json(file, to=None, **changes):
    """Sets keys of a JSON object in a file, or removes those with None; writes it back, or to another file."""
    values = {**read_json(file), **changes}
    return write_json(to or file, {key: value for key, value in values.items() if value is not None})


def write_json(file, value):
    """Writes a JSON file."""
    return write(file, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


# ---- files of a run ----


def read(file):
    """Returns a file's text."""
    return pathlib.Path(file).read_text(errors="surrogateescape")


def read_json(file):
    """Returns a JSON file's value."""
    return json.loads(read(file))


def records(file):
    """Returns the records of a JSON Lines file (metrics.jsonl, evaluations.jsonl, ...), [] if there is none yet."""
    path = pathlib.Path(file)
    return [json.loads(line) for line in read(path).splitlines()] if path.exists() else []


def count_lines(file):
    """Returns the number of complete lines of a file, 0 if there is none yet."""
    path = pathlib.Path(file)
    return path.read_bytes().count(b"\n") if path.exists() else 0


def losses(out):
    """Returns the losses of a run's steps."""
    return fields(out, "loss")


def fields(out, name):
    """Returns that field of the records of a run's steps that have it."""
    return [record[name] for record in records(pathlib.Path(out) / "metrics.jsonl") if name in record]


def agree(a, b, most, steps=6):
    """Fails unless the losses of two runs differ by at most that part in every step, and decrease."""
    __tracebackhide__ = True
    first, second = losses(a), losses(b)
    assert len(first) == len(second) == steps and first[-1] < first[0]
    assert max(abs(x / y - 1) for x, y in zip(first, second)) <= most


def checkpoints(out):
    """Returns the names of a run's checkpoints, sorted by step."""
    return sorted((path.name for path in (pathlib.Path(out) / "checkpoints").glob("step-*")),
                  key=lambda name: int(name[5:]))


def eval_loss(words, *arguments, **options):
    """Returns the loss of `weft eval WORDS ARGUMENT...`."""
    __tracebackhide__ = True
    return weft(f"eval {words}", *arguments, "--json", **options).json["loss"]


def hashes(directory, pattern="*"):
    """Returns the SHA-256 of each file below a directory whose name matches, by relative path."""
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(pathlib.Path(directory).rglob(pattern)) if path.is_file()}


def same_tensors(a, b):
    """Fails unless both directories have the same weight files, at least one."""
    __tracebackhide__ = True
    first, second = hashes(a, "*.safetensors"), hashes(b, "*.safetensors")
    assert first and first == second
