"""The frameworks' own published recipes of post-training, with small models: is any of them NO-GO?

    python benchmarks/post_training_recipes.py --sources DIR [--only WORD …] [--keep]

DIR has a git repository of each framework, named as below; a recipe is read at the commit that stands there. A recipe
stays as it is but for what decides no failure and is not here: the model (two layers) with its template, the data, the
steps (two), where it reports to, and ms-swift's reward ``accuracy``, which wants a package of its own. Prints a line a
recipe; exits 1 where one is NO-GO. ``--keep`` also keeps the first verdict that a recipe ever got, before anything was
mended for it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from post_training import keep, rows_of, run_command
from post_training_cells import make_files

RESULTS = Path(__file__).resolve().parent / "post_training_recipes.jsonl"
GPUS = {"swift": "8xH100-80G", "llamafactory": "2xH100-80G", "trl": "1xH100-80G", "openrlhf": "8xH100-80G"}
"""A script that is started by ``python`` is one of one GPU."""
PACKAGES = {"trl": "trl_of_examples"}
"""Where the recipes are of another release than the one that the tests pin."""
_HEADS = {"en": "| recipe | first verdict | verdict | seconds | MiB |", "zh": "| 配方 | 首次结论 | 结论 | 秒 | MiB |"}


@dataclass(frozen=True)
class Source:
    """A repository, the commit that is read, and where its recipes lie."""

    repository: str
    commit: str
    folder: str
    recipes: tuple[str, ...]
    """Files; ``#2`` is the second command that one has."""


SOURCES = {
    "swift": Source(
        "modelscope/ms-swift",
        "3602360a562313afbf2ef6065fdf61f271a2c5b9",
        "examples/train",
        (
            "rlhf/dpo/lora.sh", "rlhf/dpo/full.sh", "rlhf/rm/train.sh", "rlhf/kto.sh", "rlhf/cpo.sh", "rlhf/orpo.sh",
            "rlhf/simpo.sh", "rlhf/gkd/vllm_colocate.sh", "rlhf/gkd/vllm_server.sh", "rlhf/gkd/full.sh",
            "rlhf/gkd/fast.sh", "rlhf/gkd/think_model.sh", "rlhf/gkd/multi_turn.sh", "rlhf/gkd/teacher_server.sh",
            "grpo/internal/gspo.sh", "grpo/internal/reinforce_plus_plus.sh", "grpo/internal/fipo.sh",
            "grpo/internal/real.sh", "grpo/internal/chord.sh", "grpo/internal/moe_full.sh",
            "grpo/internal/moe_lora.sh", "grpo/internal/vllm_72b_4gpu.sh", "grpo/internal/vllm_multi_turn.sh",
            "grpo/internal/transformers.sh", "grpo/internal/full_lmdeploy.sh", "grpo/external/agent.sh",
            "grpo/external/grpo_7b.sh", "grpo/external/grpo_32b_full.sh", "grpo/external/moe_full.sh",
            "grpo/external/moe_lora.sh", "grpo/external/vllm_gym.sh", "grpo/external/vllm_multi_turn.sh",
            "grpo/plugin/gsm8k/gsm8k.sh", "grpo/plugin/run_external_scheduler.sh", "grpo/opd_rl.sh",
            "grpo/multi_node/Qwen2_5_32B_full.sh", "rlhf/ppo/lora.sh", "rlhf/ppo/full.sh",
        ),
    ),
    "llamafactory": Source(
        "hiyouga/LLaMA-Factory",
        "ff6d4d12eeb035d6ce06805a5733dd7b29f2ac30",
        "examples",
        (
            "train_lora/qwen3_lora_dpo.yaml", "train_lora/qwen3_lora_kto.yaml", "train_lora/qwen3_lora_reward.yaml",
            "train_lora/qwen3_lora_sft.yaml", "train_lora/qwen3_lora_sft_ds3.yaml", "train_full/qwen3_full_sft.yaml",
            "train_lora/qwen3_lora_pretrain.yaml", "extras/loraplus/llama3_lora_sft.yaml",
            "extras/pissa/llama3_lora_sft.yaml", "extras/dft/qwen2_full_sft.yaml", "extras/muon/qwen2_full_sft.yaml",
            "extras/oft/llama3_oft_sft.yaml", "extras/eaft/qwen25_05b_eaft_full.yaml",
        ),
    ),
    "trl": Source(
        "huggingface/trl",
        "f2cd57710ae345ea6428ae95363267fcf38a3dc8",
        ".",
        (
            "trl/scripts/sft.py", "trl/scripts/dpo.py", "trl/scripts/kto.py", "examples/scripts/cpo.py",
            "examples/scripts/orpo.py", "examples/scripts/gkd.py", "examples/scripts/reward_modeling.py",
            "examples/scripts/prm.py", "examples/scripts/nash_md.py", "examples/scripts/online_dpo.py",
            "examples/scripts/xpo.py", "examples/scripts/tpo.py", "examples/scripts/distillation.py",
            "examples/scripts/gold.py", "examples/scripts/bco.py", "examples/scripts/ppo/ppo_tldr.py",
            "trl/scripts/sft.py #2", "trl/scripts/dpo.py #2", "examples/scripts/cpo.py #2",
            "examples/scripts/orpo.py #2", "examples/scripts/reward_modeling.py #2", "examples/scripts/prm.py #2",
            "examples/scripts/tpo.py #2", "examples/scripts/tpo.py #3",
        ),
    ),
    "openrlhf": Source(
        "OpenRLHF/OpenRLHF",
        "3c3be6234e0cb353e76bb8019947db9dfe99fca7",
        "examples/scripts",
        ("train_sft.sh", "train_rm.sh", "train_dpo_llama.sh"),
    ),
}  # fmt: skip
_DATA = {
    "kto": "labels", "bco": "labels", "sft": "train", "gkd": "train", "gold": "train", "grpo": "prompts",
    "ppo": "prompts", "ppo_tldr": "prompts", "nash_md": "prompts", "online_dpo": "prompts", "xpo": "prompts",
    "distillation": "train", "prm": "steps", "tpo": "triples",
}  # fmt: skip
"""By algorithm; else pairs."""


def command_of(name: str, recipe: str, text: str, folder: Path) -> str:
    """Write the recipe, made small, where its repository has it; returns what starts it."""
    file, _, which = recipe.partition(" #")
    path = folder / SOURCES[name].folder / file
    if name == "swift":
        path.write_text(_small_swift(text))
        return f"bash {path.relative_to(folder)}"
    if name == "llamafactory":
        path.write_text(_small_factory(text))
        return f"llamafactory-cli train {path.relative_to(folder)}"
    if name == "openrlhf":
        path.write_text(_small_openrlhf(text))
        return f"bash {path.relative_to(folder)}"
    return _small_trl(text, path.stem, int(which or 1))


def _small_swift(text: str) -> str:
    algorithm = re.search(r"--rlhf_type (\w+)", text)
    data = _DATA.get(algorithm[1] if algorithm else "sft", "pairs")
    data = {"labels": "swift_labels"}.get(data, data)
    for option, value in (
        ("model", "model --model_type qwen2 --template qwen2_5 --max_steps 2"),
        ("teacher_model", "model"),
        ("reward_model", "reward"),
        ("dataset", f"data/{data}.jsonl"),
        ("chord_sft_dataset", "data/train.jsonl"),
        ("report_to", "tensorboard"),
    ):
        text = re.sub(rf"(?m)^(\s*--{option}) [^\\\n]*?(\s*\\?)$", rf"\1 {value}\2", text)
    text = text.replace("--reward_funcs accuracy", "--reward_funcs format")
    gone = r"(?m)^\s*--(model_type|template|val_dataset|use_hf|max_steps|num_train_epochs) [^\n]*\\\n"
    return re.sub(gone, "", text)


def _small_factory(text: str) -> str:
    stage = re.search(r"stage: (\w+)", text)
    data = {"dpo": "rank", "rm": "rank", "kto": "tag"}.get(stage[1] if stage else "", "sums")
    for key, value in (("model_name_or_path", "model"), ("dataset", data), ("template", "qwen")):
        text = re.sub(rf"(?m)^{key}: .*$", f"{key}: {value}", text)
    return f"{text}\ndataset_dir: data\nmax_steps: 2\n"


def _small_openrlhf(text: str) -> str:
    data = "asked" if "train_sft" in text else "pairs"
    text = re.sub(r"--model.model_name_or_path \S+", "--model.model_name_or_path model", text)
    return re.sub(r"--data.dataset \S+", f"--data.dataset data/{data}", text)


def _small_trl(text: str, algorithm: str, which: int) -> str:
    """A command of the script's docstring."""
    start = list(re.finditer(r"(?m)^(?:accelerate launch|python) .*", text))[which - 1]
    words = []
    for line in text[start.start() :].splitlines():
        words.append(line.strip().rstrip("\\").strip())
        if not line.rstrip().endswith("\\"):
            break
    line = " ".join(words)
    data = _DATA.get(algorithm, "pairs")
    for option, value in (
        ("model_name_or_path", "model"), ("teacher_model_name_or_path", "model"), ("sft_model_path", "model"),
        ("reward_model_path", "reward"), ("dataset_name", f"data/{data}"), ("max_steps", "2"), ("output_dir", "out"),
    ):  # fmt: skip
        line = re.sub(rf"--{option}[ =]\S+", f"--{option} {value}", line)
    line = re.sub(r"--(dataset_config|push_to_hub|report_to|num_train_epochs)(?:[ =](?!--)\S+)?", "", line)
    return f"{line} --report_to none" + ("" if "--max_steps" in line else " --max_steps 2")


def prepare(name: str, sources: Path, folder: Path) -> None:
    """The project's files, and the examples of the framework beside them."""
    make_files(folder)
    source = SOURCES[name]
    for model in ("model", "reward", "teacher"):  # the context that recipes ask engines for
        path = folder / model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 32768}))
    _more_data(folder / "data")
    for train in folder.glob("data/*/train.jsonl"):
        for split in ("test", "validation"):
            shutil.copy(train, train.with_name(f"{split}.jsonl"))
    parts = ("examples", "trl/scripts") if name == "trl" else ("examples",)
    archive = ["git", "-C", str(sources / source.repository.partition("/")[2]), "archive", source.commit, *parts]
    packed = subprocess.run(archive, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)


def _more_data(data: Path) -> None:
    """Steps of an answer with their labels, answers with a reference, questions with answers: what few recipes read."""
    sums = [(f"What is {a} plus {b}?", a + b, a * b) for a in range(16) for b in range(64)]
    rows: dict[str, list[dict[str, object]]] = {
        "steps": [{"prompt": q, "completions": [f"It is {x}.", f"It is {y}."], "labels": [True, False]}
                  for q, x, y in sums],
        "triples": [{"prompt": q, "chosen": f"It is {x}.", "rejected": f"It is {y}.", "reference": f"{x}"}
                    for q, x, y in sums],
        "asked": [{"question": q, "response": f"It is {x}."} for q, x, _ in sums],
    }  # fmt: skip
    for name, lines in rows.items():
        (data / name).mkdir()
        (data / name / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    pairs = data / "pairs" / "train.jsonl"
    pairs.write_text(pairs.read_text() * 8)  # for two steps of a batch of 256


def main() -> int:
    """Rehearse the recipes that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, help="the folder with the repositories")
    parser.add_argument("--only", nargs="*", default=[], help="recipes whose name has all of these words")
    parser.add_argument("--keep", action="store_true", help=f"keep the answers in {RESULTS.name}")
    asked = parser.parse_args()
    refused = 0
    for name, source in SOURCES.items():
        chosen = [one for one in source.recipes if all(word in f"{name} {one}" for word in asked.only)]
        if not chosen:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            prepare(name, asked.sources, folder)
            for recipe in chosen:
                text = (folder / source.folder / recipe.partition(" #")[0]).read_text(encoding="utf-8")
                found = run_command(
                    command_of(name, recipe, text, folder), folder, PACKAGES.get(name, name), GPUS[name]
                )
                found = {"cell": f"{source.repository} {recipe}", **found}
                refused += found["verdict"] == "NO-GO"
                if asked.keep:
                    earlier = rows_of(RESULTS).get(str(found["cell"]), {"first": found["verdict"]})
                    keep({**found, "first": earlier.get("first", "")}, RESULTS)
                print(json.dumps(found, ensure_ascii=False), flush=True)
    return 1 if refused else 0


def table(language: str) -> str:
    """What is kept, in Markdown."""
    lines = [
        f"| {row['cell']} | {row.get('first') or '—'} | {row['verdict']} | {row['seconds']:.0f} | {row['mib']} |"
        for row in rows_of(RESULTS).values()
    ]
    return "\n".join([_HEADS[language], "| --- | --- | --- | ---: | ---: |", *lines])


if __name__ == "__main__":
    sys.exit(main())
