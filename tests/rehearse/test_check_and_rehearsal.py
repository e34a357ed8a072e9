"""What check is certain of is the first finding of the rehearsal, too: over the faulty projects of the hazards' tests.

The projects are faulty parts of programs: what they import and load is put beside them here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gonogo.check.static_findings import check_project
from gonogo.finding import Certainty, Severity, Verdict
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.request import RehearsalRequest

HAZARDS = Path(__file__).parent.parent / "hazards"
TOKENIZER = Path(__file__).parents[2] / "examples" / "slam_omni_dummy_loss" / "model"
SOON = ["ds-config-without-zero-section/bad_trainer"]
"""What `make test` rehearses; the others show the same of other settings."""
LATER = [
    "accelerate-mixed-precision-against-ds-config/bad_option",
    "best-model-strategies-differ/bad_steps",
    "ds-auto-values-in-own-loop/bad_micro_batch",
    "ds-batch-size-world-size-mismatch/bad_loop_on_four_gpus",
    "ds-config-and-code-optimizer-conflict/bad_prepare",
    "ds-config-file-not-found/bad_typo",
    "ds-config-hf-args-mismatch/bad_all_at_once",
    "ds-config-json-with-comments/bad_comments",
    "ds-config-value-string-type/bad_enabled",
    "ds-fp16-and-bf16-enabled/bad_config_and_argument",
    "ds-zero-optimization-boolean/bad_trainer",
    "eval-strategy-without-eval-data/bad_steps",
    "save-only-model-with-best-model-at-end/bad_best_model",
    "training-argument-not-in-version/bad_option",
    "training-argument-unknown/bad_misspelt",
    "zero-offload-client-optimizer/bad_loop",
    "zero3-low-cpu-mem-device-map/bad_device_map",
]
DATA = """\
import torch

ROW = {"input_ids": [1, 5, 6, 2], "labels": [1, 5, 6, 2], "attention_mask": [1] * 4}


def load(*_, **__):
    return [dict(ROW) for _ in range(64)]


load_examples = load


def batches(*_, **__):
    for _ in range(16):
        yield {name: torch.tensor([value] * 2).cuda() for name, value in ROW.items()}


def loader(*_, **__):
    rows = [{name: torch.tensor(value) for name, value in ROW.items()} for _ in range(64)]
    return torch.utils.data.DataLoader(rows, batch_size=2)
"""
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, **SMALL}
MODEL = f"""\
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from data import batches


def build(*_, **__):
    return LlamaForCausalLM(LlamaConfig(vocab_size=1000, **{SMALL}))


class Translator(torch.nn.Module):
    def __init__(self, *_, **__):
        super().__init__()
        self.model = build()

    def forward(self, **batch):
        return self.model(**batch).loss
"""


def whole(name: str, folder: Path) -> Path:
    """A copy of the project with the modules that it imports and the models that it loads."""
    copy = folder / "project"
    # Without the releases that it pins: what those would raise, a rehearsal with the installed ones can't be sure of.
    shutil.copytree(HAZARDS / name, copy, ignore=shutil.ignore_patterns("requirements.txt"))
    for module, code in (("data", DATA), ("model", MODEL)):
        if not (copy / f"{module}.py").exists():
            (copy / f"{module}.py").write_text(code)
    for model in ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", "models/llama-2-7b", "models/qwen2-1.5b"):
        (copy / model).mkdir(parents=True, exist_ok=True)
        (copy / model / "config.json").write_text(json.dumps(CONFIG))
        for path in TOKENIZER.glob("tokenizer*"):
            shutil.copy(path, copy / model)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SOON, *(pytest.param(name, marks=pytest.mark.very_slow) for name in LATER)])
def test_what_check_is_certain_of_is_the_first_finding(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole(name, tmp_path))
    command = ["bash", "launch.sh"]
    errors = [finding for finding in check_project(command).findings if finding.severity is Severity.ERROR]
    certain = {finding.hazard for finding in errors if finding.certainty is Certainty.CERTAIN}
    record, report = rehearse_and_report(RehearsalRequest(command, gpus="8xH100-80G", steps=1))
    first = report.findings[0]
    assert first.hazard in certain, (report.findings, record.ranks[0].failure)
    assert first.ranks == (0,)
    assert "program-raises" not in {finding.hazard for finding in report.findings}
    assert report.verdict is Verdict.NO_GO
