"""Versions of DeepSpeed, transformers and torch that gonogo works with: the tables of `docs/compatibility.md`.

    python benchmarks/versions.py deepspeed [--only 0.14.1,0.14.2] [--programs clip] [--again]
    python benchmarks/versions.py transformers
    python benchmarks/versions.py torch          # the torch of this Python; see docs/compatibility.md

DeepSpeed: every release from 0.14.0; transformers: the last release of every minor from 4.51. Each is laid over the
installed environment with `gonogo rehearse --with`, and rehearsed with small programs; what is measured goes into
`benchmarks/versions.json` after each, so that a run that was ended goes on where it was.

- `clip`: `examples/qwen_72b_zero3_offload` with two small layers: the Trainer, ZeRO-3, both offloads, clipping.
- `zero2`, `zero3`: a loop of plain DeepSpeed over a small network.
- `trainer`: the Trainer on a small Qwen2, ZeRO-2.
- `experts`: the Trainer on a small Qwen3-MoE, ZeRO-3, from a checkpoint with its experts one by one, as published.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from packaging.version import Version
from safetensors.numpy import save_file

from gonogo.prepare.packages.index import available_releases

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "versions.json"
EXAMPLE = ROOT / "examples" / "qwen_72b_zero3_offload"
OLDEST = {"deepspeed": "0.14.0", "transformers": "4.51.0"}
PROGRAMS = {
    "deepspeed": ("clip", "zero2", "zero3"),
    "transformers": ("trainer", "experts"),
    "torch": ("clip", "trainer", "zero2", "zero3"),
}
BESIDE = ("torch", "deepspeed", "transformers", "accelerate", "tokenizers", "huggingface_hub")
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "max_window_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

EXPERTS = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}

LOOP = """
import sys

import deepspeed
import torch
from torch import nn

stage = int(sys.argv[-1])
config = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": stage},
}
with deepspeed.zero.Init(config_dict_or_path=config, enabled=stage == 3):
    model = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 100))
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(4):
    tokens = torch.randint(0, 100, (2, 16), device=engine.device)
    loss = nn.functional.cross_entropy(engine(tokens).flatten(0, 1), tokens.flatten())
    engine.backward(loss)
    engine.step()
    print(loss.item())
"""


def prepared(program: str, folder: Path) -> list[str]:
    """Write a program into the folder; the command that launches it."""
    if program.startswith("zero"):
        (folder / "loop.py").write_text(LOOP)
        return ["deepspeed", "--num_gpus", "8", "loop.py", program[-1]]
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    path = folder / "model" / "config.json"
    config = json.loads(path.read_text()) | SMALL
    config.pop("layer_types", None)
    if program == "experts":
        config |= EXPERTS
        save_file(experts(config), path.with_name("model.safetensors"), metadata={"format": "pt"})
    path.write_text(json.dumps(config))
    launch = (folder / "launch.sh").read_text()
    launch = launch.replace("--gradient_accumulation_steps 8", "--gradient_accumulation_steps 1")
    launch = launch.replace("--model_max_length 4096", "--model_max_length 256")
    # What transformers 5 calls dtype is torch_dtype to those before 4.56, in a script of their time; those before 4.46
    # don't know processing_class.
    script = (folder / "finetune.py").read_text().replace("        dtype=torch", "        torch_dtype=torch")
    (folder / "finetune.py").write_text(script.replace("        processing_class=tokenizer,\n", ""))
    for stale in folder.glob("requirements*.txt"):
        stale.unlink()
    if program == "trainer":
        config_file = folder / "ds_config.json"
        deepspeed_config = json.loads(config_file.read_text())
        deepspeed_config["zero_optimization"] = {"stage": 2, "overlap_comm": True, "reduce_bucket_size": "auto"}
        config_file.write_text(json.dumps(deepspeed_config))
    (folder / "launch.sh").write_text(launch)
    return ["bash", "launch.sh"]


def experts(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The weights of a small Qwen3-MoE under their published names."""
    hidden, head = config["hidden_size"], config["head_dim"]
    heads, groups = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    wide = config["moe_intermediate_size"]
    shapes = {f"{name}.weight": (config["vocab_size"], hidden) for name in ("model.embed_tokens", "lm_head")}
    shapes["model.norm.weight"] = (hidden,)
    for layer in range(config["num_hidden_layers"]):
        parts = {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (heads, hidden),
            "self_attn.k_proj": (groups, hidden), "self_attn.v_proj": (groups, hidden),
            "self_attn.o_proj": (hidden, heads), "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
            "mlp.gate": (config["num_experts"], hidden),
        }  # fmt: skip
        for expert in range(config["num_experts"]):
            names = {"gate_proj": (wide, hidden), "up_proj": (wide, hidden), "down_proj": (hidden, wide)}
            parts |= {f"mlp.experts.{expert}.{name}": shape for name, shape in names.items()}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in parts.items()}
    return {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}


def measure(program: str, options: list[str]) -> dict[str, Any]:
    """Rehearse a program, and say what came of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = prepared(program, folder)
        started = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", "--gpus", "8xH100-80G", "--host-memory", "2T",
             "--timeout", "900", "--format", "json", "--keep", "kept", *options, "--", *command],
            cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        seconds = round(time.monotonic() - started, 1)
        records = [json.loads(path.read_text()) for path in folder.glob("kept/**/record.json")]
    if run.returncode not in (0, 1, 3):
        return {"verdict": f"exit {run.returncode}", "why": run.stderr.strip().splitlines()[-1:], "seconds": seconds}
    report = json.loads(run.stdout)
    rank = report["rehearsal"]["ranks"][0]
    why = [entry["hazard"] for entry in report["findings"]]
    if report["verdict"] == "CANNOT-TELL":
        why += [f"{entry['what']}: {entry['why']}" for entry in report["skipped"] if "--ranks" not in entry["why"]]
    return {
        "verdict": report["verdict"],
        "why": why,
        "assumed": sorted(entry["what"] for entry in rank["assumptions"] if "older releases" in entry["what"]),
        "beside": [f"{e['what']}: {e['why']}" for e in report["skipped"] if "requirement" in e["what"]],
        "versions": {key: records[0]["versions"].get(key) for key in BESIDE} if records else {},
        "seconds": seconds,
    }


def wanted(package: str) -> list[str]:
    """The releases to try: all of DeepSpeed's, the last of every minor of transformers'."""
    releases = [v for v in available_releases(package) if v >= Version(OLDEST[package])]
    if package == "deepspeed":
        return [str(version) for version in releases]
    return [str(version) for version in {version.release[:2]: version for version in releases}.values()]


def load() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def save(package: str, version: str, program: str, result: dict[str, Any]) -> None:
    results = load()
    programs = results.setdefault(package, {}).setdefault(version, {})
    programs[program] = result
    results[package] = {key: results[package][key] for key in sorted(results[package], key=Version)}
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def try_versions(package: str, versions: list[str], programs: list[str], again: bool) -> None:
    for version in versions:
        for program in programs:
            if program in load().get(package, {}).get(version, {}) and not again:
                continue
            options = [] if package == "torch" else ["--with", f"{package}=={version}"]
            result = measure(program, options)
            save(package, version, program, result)
            print(package, version, program, result["verdict"], *result["why"], f"{result['seconds']} s", flush=True)


def cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    return result["verdict"] + (f" (`{result['why'][0]}`)" if result["verdict"] == "NO-GO" else "")


def table(package: str, language: str) -> str:
    """The package's table in Markdown; releases that came out alike stand on one line."""
    rows: list[tuple[list[str], tuple[str, ...]]] = []
    for version, programs in load().get(package, {}).items():
        cells = (*(cell(programs.get(name)) for name in PROGRAMS[package]), *beside(package, programs))
        if rows and rows[-1][1] == cells:
            rows[-1][0].append(version)
        else:
            rows.append(([version], cells))
    more = {
        "deepspeed": ["补回的名字" if language == "zh" else "put back for it"],
        "transformers": ["tokenizers", "huggingface-hub"],
    }
    header = [package, *(f"`{name}`" for name in PROGRAMS[package]), *more.get(package, [])]
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    for versions, cells in rows:
        lines.append("| " + " | ".join([", ".join(versions), *cells]) + " |")
    return "\n".join(lines)


def beside(package: str, programs: dict[str, Any]) -> list[str]:
    """What else was measured of a version: names put back for a DeepSpeed, what came with a transformers."""
    if package == "deepspeed":
        moved = sorted({name for result in programs.values() for name in result.get("assumed", [])})
        names = [name.partition(",")[0].removeprefix("torch.distributed.") for name in moved]
        return [", ".join(f"`{name}`" for name in names)]
    if package == "transformers":
        versions = next(iter(programs.values())).get("versions", {})
        return [versions.get("tokenizers") or "", versions.get("huggingface_hub") or ""]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=tuple(PROGRAMS))
    parser.add_argument("--only", metavar="VERSIONS", help="these versions, with commas between")
    parser.add_argument("--programs", metavar="NAMES", help="these programs, with commas between")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured")
    options = parser.parse_args()
    if options.package == "torch":
        versions = [Version(metadata.version("torch")).public]
    else:
        versions = options.only.split(",") if options.only else wanted(options.package)
    programs = options.programs.split(",") if options.programs else list(PROGRAMS[options.package])
    try_versions(options.package, versions, programs, options.again)


if __name__ == "__main__":
    main()
