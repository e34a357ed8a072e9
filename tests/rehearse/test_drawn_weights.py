"""What ``from_pretrained`` drew at random, in rehearsals of real programs: a wrapper's prefix, a new head."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gonogo.evidence.rehearsal.record import LoadedWeights, RehearsalRecord

TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128,
}  # fmt: skip
PROGRAM = """
import sys
from datasets import Dataset
from transformers import Trainer, TrainingArguments
import transformers

config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}
args = TrainingArguments(output_dir="out", max_steps=1, per_device_train_batch_size=1, report_to=[],
                         save_strategy="no", deepspeed=config)
model = getattr(transformers, sys.argv[1]).from_pretrained("model", **eval(sys.argv[2]))
exec(sys.argv[3])
labels = list(range(8)) if "LM" in sys.argv[1] else 1
rows = [{"input_ids": list(range(8)), "labels": labels} for _ in range(16)]
Trainer(model=model, args=args, train_dataset=Dataset.from_list(rows)).train()
"""


def rehearsed(folder: Path, *arguments: str, options: tuple[str, ...] = ()) -> tuple[list[LoadedWeights], str]:
    """What rank 0 drew, and the report."""
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "gonogo", "rehearse", "--gpus", "8xH100-80G", "--keep", "kept", *options]
    words = [*arguments, *("AutoModelForCausalLM", "{}", "")[len(arguments) :]]
    command += ["--", "torchrun", "--nproc_per_node", "8", "train.py", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert (folder / "kept").is_dir(), done.stdout + done.stderr
    record = msgspec.json.decode((folder / "kept" / "rehearsal.json").read_bytes(), type=RehearsalRecord)
    return record.ranks[0].drawn_weights, done.stdout


def saved(folder: Path, model: Any, prefix: str = "") -> None:
    """The model in ``folder/model``, its weights' names after a prefix."""
    from safetensors.torch import load_file, save_file

    model.save_pretrained(folder / "model")
    file = folder / "model" / "model.safetensors"
    save_file({prefix + name: value for name, value in load_file(file).items()}, file, metadata={"format": "pt"})


@pytest.mark.slow
def test_a_wrappers_prefix_leaves_all_weights_drawn(tmp_path: Path) -> None:
    import transformers

    saved(tmp_path, transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY)), "_orig_mod.")
    (drawn,), report = rehearsed(tmp_path)
    assert (drawn.model, drawn.source, drawn.share) == ("LlamaForCausalLM", "model", 1.0)
    assert (drawn.held, drawn.named_instead, drawn.under_zero3) == ((), "_orig_mod.lm_head.weight", True)
    assert "NO-GO" in report
    assert "error[weights-not-loaded]" in report


TAKEN_AFTERWARDS = """
import deepspeed
from safetensors.torch import load_file
stored = {name.removeprefix("_orig_mod."): value for name, value in load_file("model/model.safetensors").items()}
with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
    model.load_state_dict({name: value for name, value in stored.items() if "WORD" in name}, strict=False)
"""


@pytest.mark.very_slow
@pytest.mark.parametrize(("taken", "verdict"), [("", "GO"), ("norm", "NO-GO")], ids=["all", "the norms alone"])
def test_what_the_program_takes_itself_afterwards_is_not_drawn(tmp_path: Path, taken: str, verdict: str) -> None:
    import transformers

    saved(tmp_path, transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY)), "_orig_mod.")
    program = TAKEN_AFTERWARDS.replace("WORD", taken)
    drawn, report = rehearsed(tmp_path, "AutoModelForCausalLM", "{}", program)
    assert report.splitlines()[0].split()[0] == verdict
    if taken:
        [left] = drawn
        assert not any(taken in name for name in left.missing)
        assert 0.9 < left.share < 1
    else:
        assert drawn == []


@pytest.mark.very_slow
def test_a_new_head_is_no_finding(tmp_path: Path) -> None:
    import transformers

    saved(tmp_path, transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY)))
    (drawn,), report = rehearsed(tmp_path, "AutoModelForSequenceClassification", "{'pad_token_id': 0}")
    assert drawn.missing == ("score.weight",)
    assert drawn.missing_parameters == 2 * TINY["hidden_size"]
    assert not drawn.held
    assert "weights-not-loaded" not in report


@pytest.mark.very_slow
def test_a_head_of_another_size_is_no_finding(tmp_path: Path) -> None:
    import transformers

    saved(tmp_path, transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**TINY, pad_token_id=0)))
    drawn, report = rehearsed(
        tmp_path, "AutoModelForSequenceClassification", "{'num_labels': 5, 'ignore_mismatched_sizes': True}"
    )
    assert drawn == []
    assert "weights-not-loaded" not in report


@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("version", "finding"), [("5.0.0", True), ("5.1.0", True), ("5.2.0", False), ("4.57.6", False)]
)
def test_experts_under_zero_3_by_transformers(version: str, finding: bool, tmp_path: Path) -> None:
    import transformers

    config = transformers.Qwen3MoeConfig(**TINY, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    saved(tmp_path, transformers.Qwen3MoeForCausalLM(config))
    stored = tmp_path / "model" / "config.json"
    stored.write_text(stored.read_text().replace('"num_local_experts"', '"num_experts"'))  # as older releases name it
    drawn, report = rehearsed(tmp_path, options=("--with", f"transformers=={version}"))
    assert ("error[zero3-moe-weights-not-converted]" in report) == finding, report
    assert ("NO-GO" in report) == finding
    assert bool(drawn) == (version == "5.0.0")
    assert "weights-not-loaded" not in report
