"""What the figures of memory and the settings around an out-of-memory error say beyond its message."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_explanations import clues, framed, report_on

from gonogo.finding import Verdict

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 79.11 "
    "GiB of which {free} GiB is free. Including non-PyTorch memory, this process has 60.00 GiB memory in use. Of the "
    "allocated memory 59.00 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated."
)
FSDP = "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"
STEP = "{{'loss': 0.9, 'memory(GiB)': {memory}, 'epoch': 0.1}}\n"


def out_of_memory(
    path: str = "transformers/model.py", function: str = "forward", asked: float = 2.0, free: float = 1.0
) -> str:
    return framed(path, "x = f(y)", OOM.format(asked=asked, free=free), function)


def test_a_gather_of_most_of_the_model_is_no_lack_of_room_for_activations(tmp_path: Path) -> None:
    report = report_on(tmp_path, out_of_memory(FSDP, "foreach_all_gather", 61.0, 50.0), "torchrun train.py")
    assert "one unit holds most of the model" in clues(report)
    assert not {"gpu-oom-activations", "gpu-oom-model-states"} & {finding.hazard for finding in report.findings}
    assert report.answer is not None
    assert report.answer.because.en.startswith("FSDP gathers 61.0 GiB at once")
    assert report.verdict is Verdict.NO_GO


def test_a_gather_of_one_layer_is_none_of_the_model(tmp_path: Path) -> None:
    report = report_on(tmp_path, out_of_memory(FSDP, "foreach_all_gather"), "torchrun train.py")
    assert "most of the model" not in clues(report)


@pytest.mark.parametrize(
    ("figures", "told"), [((40, 50, 60, 75), True), ((40, 70, 71, 72), False), ((40, 60, 55, 75), False)]
)
def test_memory_that_grows_from_step_to_step(tmp_path: Path, figures: tuple[int, ...], told: bool) -> None:
    log = "".join(STEP.format(memory=figure) for figure in figures) + out_of_memory()
    report = report_on(tmp_path, log, "torchrun train.py")
    assert ("only ever grows (40 at first, 75 at last)" in clues(report)) == told


@pytest.mark.parametrize(
    ("launch", "told"),
    [
        ("torchrun finetune.py --distributed.tp_size 4", True),
        ("torchrun finetune.py --distributed.tp_size 1", False),
        ("torchrun pretrain_gpt.py --use-megatron-fsdp --tensor-model-parallel-size 4", False),
        ("python train.py actor_rollout_ref.rollout.tensor_model_parallel_size=4", False),
    ],
)
def test_tensor_parallelism_divides_only_what_its_plan_names(tmp_path: Path, launch: str, told: bool) -> None:
    report = report_on(tmp_path, out_of_memory(), launch)
    assert ("every other one is whole on each rank" in clues(report)) == told
