"""peft-*: LoRA adapters as PEFT writes them, on golden models that are there, each with expected.safetensors.

Random A and B (B not zero), saved by save_pretrained. Expected, of PEFT on transformers: logits, the gradient of each
trained parameter, ten clipped AdamW steps as make_llama.py takes them, and weights that merge_and_unload gives.
Where a base is packed, its adapted matrices are the numbers that bitsandbytes' nf4 stands for (make_packed.py); that
PEFT on matrices that bitsandbytes holds packed comes to the same logits is looked at as well.
Names are Weft's: without base_model.model. and .default, an embedding's A as (vocabulary, r)."""
import json
import pathlib
import shutil
import sys

import bitsandbytes
import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import make_families  # noqa: E402
import make_llama  # noqa: E402
import make_packed  # noqa: E402
from make_llama import ADAMW, CLIP, STEPS, in_double, losses  # noqa: E402

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "peft-lora": dict(base="llama-gqa", seed=11, double=True,
                      lora=dict(r=4, lora_alpha=6, target_modules=LINEARS)),
    "peft-lora-parts": dict(base="llama-tied", seed=12, double=True,
                            lora=dict(r=3, lora_alpha=8, use_rslora=True, modules_to_save=["model.norm"],
                                      target_modules=["q_proj", "embed_tokens", "down_proj"])),
    "peft-lora-layers": dict(base="llama-tied", seed=13, double=True,
                             lora=dict(r=2, lora_alpha=2, layers_to_transform=[0, 2],
                                       target_modules=["k_proj", "v_proj", "up_proj"])),
    "peft-lora-fused": dict(base="family-phi3", seed=21, double=True,
                            lora=dict(r=2, lora_alpha=5, target_modules=r".*\.(qkv|gate_up|o)_proj")),
    "peft-lora-whole": dict(base="llama-gqa", seed=23, double=True,
                            lora=dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj"], modules_to_save=[
                                "embed_tokens", "lm_head", "norm", "input_layernorm", "post_attention_layernorm"])),
    # Entries match modules by a name, a path, its end, or an expression; some match several modules, and one
    # matches no module. They are in PEFT's saved order, because the first match applies again when the file
    # is read.
    "peft-lora-patterns": dict(base="llama-gqa", seed=24, double=True,
                               lora=dict(r=4, lora_alpha=6, target_modules=LINEARS + ["embed_tokens"],
                                         exclude_modules=["o_proj", "layers.1.mlp.down_proj", "mlp"],
                                         rank_pattern={"^model.layers.1.self_attn.k_proj": 2,
                                                       r"layers\.[01]\.self_attn\.(q|k)_proj": 3, "embed_tokens": 1,
                                                       "self_attn.k_proj": 7, "layers.0.mlp.up_proj|gate_proj": 5},
                                         alpha_pattern={"layers.0.self_attn.q_proj": 2.5, "q_proj": 11, "up_proj": 1,
                                                        "embed_tokens": 3, r"model\.layers\.1\..*": 8})),
    "peft-lora-excluded": dict(base="family-phi3", seed=25, double=True,
                               lora=dict(r=2, lora_alpha=2, use_rslora=True, target_modules="all-linear",
                                         exclude_modules=r"model\.layers\.0\.(?!self_attn\.qkv).*|.*\.o_proj",
                                         rank_pattern={"down_proj": 4, "qkv_proj": 3}, alpha_pattern={"qkv_proj": 1})),
    "peft-dora-nf4": dict(base="llama-gqa", seed=22, double=True, packed=True,
                          lora=dict(r=3, lora_alpha=5, use_dora=True, target_modules=LINEARS)),
}
MERGED = 2  # number of weights per case stored from merge_and_unload


def own_name(name):
    """Weft's name of a trained parameter of a PeftModel."""
    name = name.removeprefix("base_model.model.").replace(".modules_to_save.default", "").replace(".default", "")
    return name + ".weight" if "lora_embedding" in name else name


def own_shape(name, value):
    return value.T if "lora_embedding_A" in name else value


def trained(model):
    return {own_name(n): (n, p) for n, p in model.named_parameters() if p.requires_grad}


def open_base(spec, base):
    """In fp32, its linears as bitsandbytes packs them where the case says so."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for name, module in model.named_modules() if spec.get("packed") else ():
        if name.rpartition(".")[2] in LINEARS:
            module.weight.data = make_packed.nf4(module.weight.data)["numbers"].float()
    return model


def in_bitsandbytes(base):
    """The same, held packed by bitsandbytes, whose library for CPUs takes the next code for one scale in some 600."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for name, module in list(model.named_modules()):
        if name.rpartition(".")[2] in LINEARS:
            packed = bitsandbytes.nn.Linear4bit(module.in_features, module.out_features, bias=module.bias is not None,
                                                compute_dtype=torch.float32, compress_statistics=True, quant_type="nf4")
            packed.weight = bitsandbytes.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4",
                                                       compress_statistics=True)
            packed.bias = module.bias
            model.set_submodule(name, packed.to("cpu"))
    return model


def make_adapter(spec, base, where):
    model = get_peft_model(open_base(spec, base),
                           LoraConfig(task_type="CAUSAL_LM", **spec["lora"]))
    rng = torch.Generator().manual_seed(spec["seed"])
    with torch.no_grad():
        for name, (_, p) in sorted(trained(model).items()):
            drawn = torch.randn(p.shape, generator=rng)
            if "magnitude" in name:
                p.mul_(1 + 0.1 * drawn)
            else:
                p.copy_((1 if "norm" in name else 0) + 0.3 * drawn)
    model.save_pretrained(where)
    for file in where.iterdir():
        if file.name == "README.md":
            file.unlink()
    path = where / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = "../" + base.name
    for names in (config["target_modules"], config["exclude_modules"]):
        if isinstance(names, list):
            names.sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def fresh_magnitudes(spec, base):
    """What DoRA begins with: the norms of the rows, as the base holds them."""
    model = get_peft_model(open_base(spec, base), LoraConfig(task_type="CAUSAL_LM", **spec["lora"]))
    return {"fresh." + name: p.detach().clone() for name, (_, p) in trained(model).items() if "magnitude" in name}


def load(spec, base, where):
    model = open_base(spec, base)
    model = PeftModel.from_pretrained(model, where, is_trainable=True)
    return model.double() if spec["double"] else model


def logits_packed(model, batch):
    """A window is the other script's to know."""
    of = make_families if getattr(model.config, "sliding_window", None) else make_llama
    return of.logits_packed(model, batch)


def run(model, batch):
    out, parts = {}, trained(model)
    logits = logits_packed(model, batch)
    total = losses(logits, batch)[1]
    total.backward()
    out["logits"], out["loss_sum"] = logits.detach(), total.detach().double().reshape(1)
    for name, (n, p) in parts.items():
        out["grad." + name] = own_shape(n, p.grad.clone())
    count, kept = int((batch["weights"] != 0).sum()), {"loss": [], "norm": []}
    optimizer = torch.optim.AdamW([p for _, p in parts.values()], foreach=False, **ADAMW)
    for _ in range(STEPS):
        optimizer.zero_grad()
        mean = losses(logits_packed(model, batch), batch)[1] / count
        mean.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in parts.values()], CLIP, foreach=False)
        kept["norm"].append(norm.item())
        kept["loss"].append(mean.item())
        optimizer.step()
    for name, (n, p) in parts.items():
        out["adamw10." + name] = own_shape(n, p.detach().clone())
    for key, values in kept.items():
        out["adamw10." + key] = torch.tensor(values, dtype=torch.float64)
    return out


def merged(spec, base, where):
    """The weights that merging changes most early in the file: enough to hold a merge against."""
    before = open_base(spec, base).state_dict()
    after = load(spec, base, where).merge_and_unload().state_dict()
    names = [k for k in sorted(after) if k in before and not torch.equal(before[k].double(), after[k].double())]
    return {"merged." + k: after[k] for k in names[:1] + names[-MERGED + 1:]}


def make(name, spec, out):
    where, base = out / name, HERE / spec["base"]
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    make_adapter(spec, base, where)
    kept = load_file(base / "expected.safetensors")
    batch = {k: kept[k] for k in ("ids", "targets", "weights", "starts")}
    if spec["double"]:
        with in_double():
            expected = run(load(spec, base, where), batch)
    else:
        expected = run(load(spec, base, where), batch)
    if spec.get("packed"):
        with torch.no_grad():
            found = logits_packed(PeftModel.from_pretrained(in_bitsandbytes(base), where), batch)
        apart = ((found - expected["logits"]).norm() / expected["logits"].norm()).item()
        print(f"{name}: logits of bitsandbytes' own matrices are {apart:.1e} apart")
        assert apart < 1e-2
        expected |= fresh_magnitudes(spec, base)
    expected |= merged(spec, base, where)
    tensors = dict(batch, count=kept["count"])
    for key, value in expected.items():
        tensors[key] = value if value.dim() == 1 and key in ("loss_sum", "adamw10.loss", "adamw10.norm") else value.float()
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, where / "expected.safetensors")
    for file in where.iterdir():
        file.chmod(0o644)
    losses10 = tensors["adamw10.loss"]
    print(f"{name}: {sum(f.stat().st_size for f in where.iterdir())} bytes; loss {losses10[0]:.4f} to {losses10[-1]:.4f}; "
          f"peft {peft.__version__}, transformers {transformers.__version__}")
    assert losses10[-1] < losses10[0] and all(torch.isfinite(v.double()).all() for v in tensors.values())


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for case, what in ((c, w) for c, w in CASES.items() if len(sys.argv) < 3 or c == sys.argv[2]):
        make(case, what, pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
