"""Changes that make a run fit: which are tried, in which order, and where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from made_up import error
from msgspec.structs import replace

from gonogo.check.findings import check
from gonogo.evidence.rehearsal.record import Frame, MemoryShortage, Phase
from gonogo.trials.cure.candidate import Candidate
from gonogo.trials.cure.loop_edits import loop_candidates
from gonogo.trials.cure.memory import memory_candidates
from gonogo.trials.cure.trial import Trial

GIB = samples.GIB
TRAINER = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=AutoModelForCausalLM.from_pretrained("model"), args=arguments).train()
"""
LOOP = """\
import deepspeed
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds.json")
"""


def candidates(folder: Path, by_category: dict[str, int], stage: int = 2) -> list[Candidate]:
    """What is tried where the peak on 80 GiB is this."""
    peak = sum(by_category.values())
    short = MemoryShortage("cuda:0", GIB, 78 * GIB, 79 * GIB, 79 * GIB, "forward", 0)
    device = replace(samples.device_memory(allocated=peak, shortage=short), by_category=by_category)
    config: dict[str, object] = {"zero_optimization": {"stage": stage}}
    record = samples.rehearsal_record(
        samples.rank_record(0, "out-of-memory", devices=[device], deepspeed_config=config), world_size=8
    )
    checked = check([], ["torchrun", "--nproc_per_node", "8", "train.py", *_options(folder)])
    return list(memory_candidates(error("gpu-oom-activations"), Trial(checked, record)))


def _options(folder: Path) -> list[str]:
    return (folder / "options").read_text().split() if (folder / "options").exists() else []


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "ds.json").write_text(
        '{\n  "train_micro_batch_size_per_gpu": 8,\n  "gradient_accumulation_steps": 2,\n'
        '  "zero_optimization": {"stage": 2}\n}\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_micro_batch_comes_first_then_checkpointing(loop: Path) -> None:
    found = candidates(loop, {"parameters": 10 * GIB, "activations": 100 * GIB})
    assert found[0].title.en.startswith("micro-batch 4 and gradient accumulation 4")
    assert [edit.after for edit in found[0].edits] == [b"4", b"4"]
    kinds = [one.kind for one in found]
    assert kinds.index("checkpointing") == 3  # after micro-batches 4, 2 and 1
    checkpointing = found[3].edits[0]
    assert b"model.gradient_checkpointing_enable(" in checkpointing.after


def test_what_can_not_be_enough_is_not_tried(loop: Path) -> None:
    found = candidates(loop, {"parameters": 30 * GIB, "optimizer": 60 * GIB, "activations": 5 * GIB})
    titles = [one.title.en for one in found]
    assert titles[:2] == ["ZeRO stage 3", "optimizer offload to the CPU"]  # no micro-batch alone
    assert b'"offload_optimizer"' in found[1].edits[0].after


def test_a_higher_stage_where_gradients_are_whole(loop: Path) -> None:
    (loop / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    found = candidates(loop, {"parameters": 40 * GIB, "gradients": 40 * GIB, "optimizer": 10 * GIB}, stage=1)
    assert found[0].title.en == "ZeRO stage 2"
    assert found[0].edits[0].after == b"2"


def test_settings_of_the_trainer_are_options_of_its_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "launch.sh").write_text("torchrun train.py --output_dir out --per_device_train_batch_size 4\n")
    monkeypatch.chdir(tmp_path)
    short = MemoryShortage("cuda:0", GIB, 78 * GIB, 79 * GIB, 79 * GIB, "forward", 0)
    held = {"parameters": 10 * GIB, "activations": 120 * GIB}
    device = replace(samples.device_memory(allocated=130 * GIB, shortage=short), by_category=held)
    record = samples.rehearsal_record(samples.rank_record(0, "out-of-memory", devices=[device]))
    trial = Trial(check([], ["bash", "launch.sh"]), record)
    found = list(memory_candidates(error("gpu-oom-activations"), trial))
    assert [edit.after.decode() for edit in found[0].edits] == ["2", " --gradient_accumulation_steps 2"]
    assert [edit.after.decode() for edit in found[2].edits] == [" --gradient_checkpointing True"]


EVALUATES = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
validation = DataLoader(rows, batch_size=16)
kept, losses = [], []
for number, batch in enumerate(validation):
    logits = model(batch)
    kept.append(logits)
    kept.append(logits[0] + 1)
    losses.append(logits.mean().item())
"""


@pytest.mark.parametrize(
    ("phase", "line", "expected"),
    [
        ("evaluate", 10, ["kept.append(logits.cpu())", "kept.append((logits[0] + 1).cpu())",
                          "batch_size=4", "batch_size=1"]),
        ("evaluate", 8, ["kept.append(logits.cpu())", "kept.append((logits[0] + 1).cpu())",
                         "batch_size=4", "batch_size=1"]),
        ("step", 10, ["torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)"]),
        ("forward", 10, []),
    ],
)  # fmt: skip
def test_a_loop_of_the_users_own_is_changed_in_one_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase, line: int, expected: list[str]
) -> None:
    (tmp_path / "train.py").write_text(EVALUATES)
    monkeypatch.chdir(tmp_path)
    frame = Frame(str(tmp_path / "train.py"), line, "<module>", "", "user")
    short = MemoryShortage("cuda:0", GIB, 78 * GIB, 79 * GIB, 79 * GIB, phase, 0, frames=(frame,))
    run = check([], ["torchrun", "--nproc_per_node", "8", "train.py"]).gathered.runs[0]
    found = list(loop_candidates(error("gpu-oom-activations"), short, run))
    written = [apply_edits(tmp_path, one) for one in found]
    assert len(written) == len(expected)
    for text, part in zip(written, expected, strict=True):
        assert part in text


def apply_edits(folder: Path, candidate: Candidate) -> str:
    data = EVALUATES.encode()
    for edit in sorted(candidate.edits, key=lambda one: -one.start):
        data = data[: edit.start] + edit.after + data[edit.end :]
    return data.decode()
