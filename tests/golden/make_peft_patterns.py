"""peft_patterns.json: which modules PEFT means by keys of rank_pattern, and which it leaves out by exclude_modules.

What its own functions say of each path: `ranks` has the value of the first key that means it, 0 where none does,
`unmet` the keys that mean no path, and `left_out` whether it is. Objects keep the order of their keys, on which the first depends."""
import json
import pathlib

import peft
from peft.tuners.tuners_utils import _ExcludedModule, check_target_module_exists
from peft.utils.other import get_pattern_key

HERE = pathlib.Path(__file__).resolve().parent
PATHS = ["model.embed_tokens"] + [
    f"model.layers.{layer}.{name}" for layer in (0, 1, 10, 11)
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                 "mlp.up_proj", "mlp.down_proj")] + ["model.layers.1.mlp.experts.1.up_proj", "qproj"]
RANKS = [
    {"q_proj": 16},
    {"q_proj": 16, "layers.0.self_attn.v_proj": 4, "v_proj": 2},
    {"proj": 3, "qproj": 5, ".proj": 7, "._proj": 9},
    {"layers.1.self_attn.q_proj": 2, "layers.1..self_attn.q_proj": 3, ".*": 4},
    {".*": 4, "q_proj": 8},
    {"q_proj": 8, ".*": 4},
    {"^model.layers.0.self_attn.q_proj": 2, "^layers.1.self_attn.q_proj": 3, "^q": 4, "^qproj$": 5},
    {"model.layers.0.self_attn.k_proj": 2, r"model\.layers\.10\.mlp": 3, r"mlp\..*": 4},
    {"q_proj|k_proj": 2, "model|mlp.up_proj": 3, "": 4},
    {"(q|k)_proj": 2, r"layers\.[02-9]\.mlp\.(?:up|gate)_proj": 3, r"layers\.\d{2}\.mlp.*": 4},
    {r"(1)\1\.self_attn\.(q|k)_proj": 2, r"layers\.(\d)\3\.mlp\.up_proj": 3, r"(?P<n>1)\.mlp\.experts\.(?P=n)\.up_proj": 4},
    {r"(?!.*q_proj)self_attn\.\w+": 2, r".*(?<=up)_proj": 3, r"(?:mlp\.)?(?=down).*": 4},
    {r"q_proj)|(v_proj": 2, r"model)|(k_proj": 3},
    {r"[^.]+_proj": 2, r"[]q]proj": 3, r"[\w.]+": 4},
    {r"layers\.1{1,2}\..*?proj": 2, r"layers\.10*\.mlp\.\S+": 3, r"\bembed\B.tokens\Z": 4},
    {r"Q_PROJ": 2, r"(?i:Q_PROJ)": 3, r"(?s:v.proj)": 4, r"layers\x2e0.mlp\.up\x5Fproj": 5},
    {r"layers\.(?>1|11)\.mlp\.up_proj": 2, r"layers\.1++\.mlp\.down_proj": 3, r"layers\.[0-9]+?\..*": 4},
]
LEFT_OUT = [
    ["q_proj"], ["model.layers.0.self_attn.q_proj", "layers.1.mlp.up_proj"], ["proj", "_proj", "qproj"],
    ["self_attn", "mlp", "model"], ["q_.*", "*.k_proj", "all-linear", "v_proj"], [".v_proj", "", "1.self_attn.v_proj"],
    "q_proj", ".*q_proj", r"model\.layers\.1\..*", r"model.layers.1.*|.*embed.*", r"(?i)MODEL.*0\.mlp.*", "model",
    r"model\.layers\.\d\.(?!mlp).*", r"(.*\.)?(up|down)_proj", r"^(language_model|model)(?=\.).*\.(k_proj|up_proj)$",
    r"(?:.*?(?:vision|language).*?(?:attn|mlp).*?(?:k_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:mlp)\.(?:(?:up_proj)))",
]


def rank(pattern, path):
    return pattern.get(get_pattern_key(pattern.keys(), path), 0)


def unmet(pattern):
    return [key for key in pattern if all(get_pattern_key([key], path) == path != key for path in PATHS)]


def is_left_out(names, path):
    config = peft.LoraConfig(target_modules=".*", exclude_modules=names)
    return int(isinstance(check_target_module_exists(config, path), _ExcludedModule))


if __name__ == "__main__":
    made = {
        "peft": peft.__version__,
        "paths": PATHS,
        "rank_pattern": [{"pattern": p, "ranks": [rank(p, path) for path in PATHS], "unmet": unmet(p)} for p in RANKS],
        "exclude_modules": [{"modules": n, "left_out": [is_left_out(n, path) for path in PATHS]} for n in LEFT_OUT],
    }
    lists = {kind: ",\n".join("  " + json.dumps(row) for row in made[kind]) for kind in ("rank_pattern", "exclude_modules")}
    text = '{"peft": %s,\n "paths": %s,\n "rank_pattern": [\n%s],\n "exclude_modules": [\n%s]}\n' % (
        json.dumps(made["peft"]), json.dumps(PATHS), lists["rank_pattern"], lists["exclude_modules"])
    assert json.loads(text) == made
    for row in made["rank_pattern"]:
        assert any(row["ranks"])
    (HERE / "peft_patterns.json").write_text(text)
    print(len(RANKS), "patterns,", len(LEFT_OUT), "exclusions,", len(PATHS), "paths; peft", peft.__version__)
