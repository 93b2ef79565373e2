"""Ranks that would train differently do not start: different files, data, plugins and programs. Rank 2 runs another
command than the others."""
import os
import pathlib
import re
import shlex
import shutil

import pytest
from harness import (BUILD, FAILS, WEFT, change_json, changed_plugin, launcher, make_model, make_ranks_run,
                     needs, read, run, says, start, weft, write)

HASH = r"sha256 [0-9a-f]+\.\.\."


@pytest.fixture(scope="module", autouse=True)
def inputs(scratch, plugin_path):
    make_ranks_run()
    write("run.ini", read("run.ini").replace("global_batch=4", "global_batch=6"))


@pytest.fixture(autouse=True)
def mpich():
    needs("mpich")


def words(*arguments, command="train", program=WEFT, env={}, cwd=None):
    """Returns a rank's command as a line of the shell."""
    set_up = [f"{name}={value}" for name, value in env.items()]
    line = shlex.join(map(str, ["env", *(["-C", cwd] if cwd else []), *set_up, program, command, *arguments]))
    return line + (" --overwrite" if command == "train" else "")


def begin(usual, other):
    """Runs 3 ranks, of which rank 2 runs the other command; they fail without training. Returns the Result."""
    said = run(*launcher("mpich", 3), "sh", "-c", f"if [ $PMI_RANK = 2 ]; then exec {other}; else exec {usual}; fi",
               status=FAILS)
    assert not pathlib.Path("one/model").exists()
    return said


def differ(usual, other, *rows):
    """Rank 0 reports once that rank 2 differs, in a table that has these rows."""
    said = begin(usual, other)
    assert said.status == 1
    says(said.err, re.compile(r"^\[0\] weft [a-z]*: rank 2 and rank 0 differ in "), count=1)
    for row in rows:
        says(said.err, re.compile(r"^\[0\] " + " +".join(row) + "$"))
    return said


def test_other_file(scratch):
    changed = read("run.ini").replace("global_batch=6", "global_batch=3").replace("threads=1", "threads=2")
    write("other.ini", changed.replace("plugin=ddp", "plugin=ddp\nreduce_at=last"))
    said = differ(words("run.ini"), words("other.ini"), ("", "rank 0", "rank 2"),
                  (r"\[train\] global_batch", "6", "3"), (r"\[strategy\] reduce_at", "each", "last"))
    says(said.err, "threads", count=0)  # a key that may differ


def test_long_value():
    """A difference after 6,000 equal characters."""
    long = "a_key_of_some_sort," * 320
    differ(words("run.ini", f"model.ignore={long}this_one,an_end"), words("run.ini", f"model.ignore={long}that"),
           (r"\[model\] ignore", r"\.\.\.some_sort,this_one,an_end", r"\.\.\.some_sort,that"))


def test_other_plugin_file(scratch):
    directory = scratch / "appended"
    write(directory / "x", "")
    file = BUILD / "plugins/weft-policy-block.so"
    (directory / file.name).write_bytes(file.read_bytes() + b"x")
    plugin = rf"block [0-9.]+, {HASH}"
    differ(words("run.ini"), words("run.ini", env={"WEFT_PLUGIN_PATH": f"{directory}:{BUILD}/plugins"}),
           ("plugin policy", plugin, plugin))


def elsewhere():
    """Makes a directory in which the same relative paths have other files."""
    shutil.rmtree("elsewhere", ignore_errors=True)
    os.mkdir("elsewhere")
    write("elsewhere/games.txt", read("games.txt"))


def test_other_data(scratch):
    """The same path with another text, as on two hosts."""
    if start("unshare", "--uts", "hostname", "other").process.wait() != 0:
        pytest.skip("other data on a host of another name needs unshare --uts, which root has")
    elsewhere()
    write("elsewhere/games.txt", "".join(read("games.txt").splitlines(True)[20:]))
    write("here.ini", read("run.ini").replace("=games.txt", "=/proc/self/cwd/games.txt"))
    other = words(scratch / "here.ini", cwd="elsewhere")
    differ(words(scratch / "here.ini"), f"unshare --uts sh -c 'hostname other; exec {other}'",
           ("the sequences of the data", "[0-9a-f]{16}", "[0-9a-f]{16}"))


@pytest.fixture(scope="module")
def weights(inputs):
    """A model with weights, and a copy at the same relative path."""
    make_model("wide", 64, 16, 112, 2, 512)
    weft("train", "run.ini", "run.out=made", "model.path=wide")
    shutil.copy("made/model/model.safetensors", "wide")
    text = re.sub("(?m)^path=model$", "path=/proc/self/cwd/wide", read("run.ini"))
    write("weights.ini", re.sub("(?m)^start=fresh$", "start=weights", text))
    elsewhere()
    shutil.copytree("wide", "elsewhere/wide")


def of_weights(scratch):
    return words(scratch / "weights.ini"), words(scratch / "weights.ini", cwd="elsewhere")


def test_equal_copies_of_the_weights(scratch, weights):
    usual, other = of_weights(scratch)
    run(*launcher("mpich", 3), "sh", "-c", f"if [ $PMI_RANK = 2 ]; then exec {other}; else exec {usual}; fi")
    assert pathlib.Path("one/model/model.safetensors").exists()
    shutil.rmtree("one")


def test_other_weights(scratch, weights):
    """One byte differs between 64 blocks of 4 KiB spread evenly over the file, so that sampled hashes would miss it."""
    file = pathlib.Path("elsewhere/wide/model.safetensors")
    content = bytearray(file.read_bytes())
    gap = (len(content) - 4096) // 63 - 4096
    assert gap > 8
    place = (len(content) - 4096) * 31 // 63 + 4096 + gap // 2
    content[place] ^= 255
    file.write_bytes(content)
    differ(*of_weights(scratch), ("model.safetensors", f"[0-9]+ bytes, {HASH}", f"[0-9]+ bytes, {HASH}"))


def test_other_config_json(scratch, weights):
    """A constant of the model that changes no program."""
    shutil.copy("wide/model.safetensors", "elsewhere/wide/model.safetensors")
    change_json("elsewhere/wide/config.json", rms_norm_eps=0.25)
    differ(*of_weights(scratch), ("the model's config.json", r"sha256 [0-9a-f]+(\.\.\.)?",
                                  r"sha256 [0-9a-f]+(\.\.\.)?"))


def apart(plugin, does, *arguments, **options):
    """Rank 0 names the plugin whose result differs by rank, not its file, and nothing is trained."""
    said = begin(words(*arguments, **options), words(*arguments, **options))
    says(said.err, re.compile(rf"^\[0\] weft [a-z]+: {plugin} \(/.*\.so\) {does}"))
    says(said.err, "another file", count=0)


def test_other_program_of_a_strategy():
    changed_plugin("strategy", "ddp", "moody", "OTHER_QUEUE_IF=this_rank(0)==2")
    apart("strategy:moody", "compiles other programs on rank 2 than on rank 0", "run.ini", "strategy.plugin=moody")
    proof = words("run.ini", "--steps", "1", "strategy.plugin=moody", command="prove")
    said = begin(proof, proof)
    says(said.err, re.compile(r"^\[[0-2]\] weft prove: moody.*: strategy:moody \(/.*\.so\) .* this rank .* rank [0-2]"))
    says(said.err, "another file", count=0)


@pytest.mark.parametrize("arguments, command", [
    ([], "train"), (["--rounds", "1", "strategy.plugin=ddp,fsdp"], "ab"), (["--steps", "1"], "prove")])
def test_other_units_of_a_policy(arguments, command):
    changed_plugin("policy", "block", "loner", "ROOT_ONLY_IF=this_rank(0)!=0")
    units = (r"makes other units on rank 1 and 1 more than on rank 0: 1 \(root\) on rank 1 and 1 more and 3 "
             r"\(root, model.layers.0, model.layers.1\) on rank 0; ")
    apart("policy:loner", units, "run.ini", *arguments, "policy.plugin=loner", command=command)


def test_other_tensors_of_a_model(scratch):
    weft("plugins", "new", "model", "wider")
    changed_plugin("model", scratch / "wider/wider.c", "wider")
    apart("model:wider", "declares other parameters on rank 2 than on rank 0: [0-9]+, of [0-9]+ elements on rank 2 and",
          "run.ini", "model.plugin=wider", f"model.path={scratch}/wider/try", "data.context=16",
          f"tokenizer.path={scratch}/model")


PROOF = ["run.ini", "--steps", "1", "strategy.plugin=single"]


def test_other_key_of_a_proof():
    differ(words(*PROOF, command="prove"), words(*PROOF, "optimizer.lr=0.5", command="prove"),
           (r"\[optimizer\] lr", "0.001", "0.5"))


def test_missing_plugin_of_a_proof(scratch):
    """The program searches plugins next to itself."""
    few = scratch / "few"
    os.makedirs(few / "plugins")
    shutil.copy(WEFT, few)
    shutil.copytree(BUILD / "libexec", few / "libexec")
    for file in (BUILD / "plugins").glob("*.so"):
        if file.name != "weft-strategy-fsdp.so":
            (few / "plugins" / file.name).symlink_to(file)
    differ(words(*PROOF, command="prove"), words(*PROOF, command="prove", program=few / WEFT.name,
                                                 env={"WEFT_PLUGIN_PATH": ""}),
           ("cells of fsdp", "[0-9]+", "-"))


def test_other_plugin_file_of_a_proof(scratch):
    changed_plugin("strategy", "ddp", "ddp", "OTHER_QUEUE_IF=1", to="queue")
    said = begin(words(*PROOF, command="prove"),
                 words(*PROOF, command="prove", env={"WEFT_PLUGIN_PATH": f"{scratch}/queue:{BUILD}/plugins"}))
    says(said.err, re.compile(rf"^\[[0-2]\] weft prove: ddp.*: strategy:ddp \(/.*\.so\) .* on this rank \({HASH}\) .* "
                              r"rank [0-2], .* \(sha256 "))


def test_keys_that_may_differ():
    run(*launcher("mpich", 3), "sh", "-c", f"exec {words('run.ini')} device.threads=$((PMI_RANK + 1))")
    assert pathlib.Path("one/model/model.safetensors").exists()
    shutil.rmtree("one")
