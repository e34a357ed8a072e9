"""Lives of real frameworks: what is healthy is GO, and what is lost is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_life_truth import PROGRAMS, STAGES

from gonogo.finding import Verdict
from gonogo.rehearse.answer import rehearsed
from gonogo.rehearse.request import RehearsalRequest

_TRAINER = (
    "torchrun --nproc_per_node 2 trainer.py --output_dir out --max_steps 8 --save_steps 2 --report_to none "
    "--per_device_train_batch_size 1 --logging_steps 1 --optim adamw_torch"
)
_ENGINE = "torchrun --nproc_per_node 2 engine.py"
_SHARDED = "torchrun --nproc_per_node 2 sharded.py"
_FROM_2 = "--resume_from_checkpoint=out/checkpoint-2"
_FSDP = {"transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"]}
_FILES = {
    **{
        f"z{stage}.json": {
            **dict.fromkeys(
                ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto"
            ),
            "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"},
            "zero_optimization": {"stage": stage},
        }
        for stage in (1, 2, 3)
    },
    "sharded1.json": {"fsdp_version": 1, "state_dict_type": "SHARDED_STATE_DICT", **_FSDP},
    "sharded2.json": {"fsdp_version": 2, "state_dict_type": "SHARDED_STATE_DICT", **_FSDP},
    "full1.json": {"fsdp_version": 1, "state_dict_type": "FULL_STATE_DICT", **_FSDP},
}
CELLS = [
    (_TRAINER, _FROM_2, None, Verdict.GO, None),
    *((f"{_TRAINER} --bf16 --deepspeed z{stage}.json", _FROM_2, None, Verdict.GO, None) for stage in (1, 2, 3)),
    (f"{_TRAINER} --fsdp full_shard --fsdp_config sharded2.json", _FROM_2, None, Verdict.GO, None),
    # accelerate 1.15 asks a fresh optimizer, which has no states yet, for the states to be filled.
    (
        f"{_TRAINER} --fsdp full_shard --fsdp_config sharded1.json",
        *(_FROM_2, None, Verdict.NO_GO, "resume-optimizer-not-restored"),
    ),
    # Which of rank 0's moments rank 1 was sent is not known.
    (f"{_TRAINER} --fsdp full_shard --fsdp_config full1.json", _FROM_2, None, Verdict.CANNOT_TELL, None),
    (f"{_TRAINER} --adapter --head", _FROM_2, None, Verdict.NO_GO, "resume-weights-not-restored"),
    (f"{_ENGINE} 2", None, None, Verdict.GO, None),
    (f"{_ENGINE} 2 optimizer", None, None, Verdict.NO_GO, "resume-optimizer-not-restored"),
    (f"{_ENGINE} 2", None, "1xH100-80G", Verdict.NO_GO, "checkpoint-world-size-mismatch"),
    (f"{_ENGINE} 3", None, "1xH100-80G", Verdict.NO_GO, "checkpoint-world-size-mismatch"),
    (f"{_SHARDED} by-name", None, None, Verdict.GO, None),
    (f"{_SHARDED} raw", None, None, Verdict.NO_GO, "resume-optimizer-not-restored"),
    ("torchrun --nproc_per_node 2 accelerated.py", None, None, Verdict.GO, None),
]


@pytest.mark.very_slow
@pytest.mark.parametrize(("command", "resume_with", "resume_on", "verdict", "hazard"), CELLS)
def test_a_cell(
    command: str,
    resume_with: str | None,
    resume_on: str | None,
    verdict: Verdict,
    hazard: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in _FILES.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.chdir(folder)
    request = RehearsalRequest(
        command.split(), gpus="2xH100-80G", ranks="all", as_installed=True, life=STAGES, resume_with=resume_with,
        resume_on=resume_on,
    )  # fmt: skip
    _, report = rehearsed(request)
    assert report.verdict is verdict
    lost = [finding.hazard for finding in report.findings if finding.hazard.startswith("resume-")]
    if hazard is not None:
        assert hazard in [finding.hazard for finding in report.findings]
    else:
        assert set(lost) <= {"resume-random-state-not-restored"}
