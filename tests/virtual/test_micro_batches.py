"""Micro-batches that are counted instead of run: the record is what it is when each is run."""

from __future__ import annotations

import msgspec
import pytest
from virtual.forked import output_of, rehearse_all
from virtual.strategies import TRAINER

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.evidence.rehearsal.work import PhaseWork

pytestmark = pytest.mark.slow
EIGHT = "gradient_accumulation_steps=8"
IN_ORDER = 'train_sampling_strategy="sequential"'
OFFLOAD = "zero(3, optimizer='cpu', parameters='cpu')"

PADDED = """
class Padded(Tokens):
    def __getitem__(self, index):
        item = super().__getitem__(index)
        item["attention_mask"] = (torch.arange(64) < LENGTH(index)).long()
        return item
Tokens = Padded
"""
COUNTING = """
class Counts(Trainer):
    turn = 0
    def training_step(self, *args, **kwargs):
        self.turn += 1
        return super().training_step(*args, **kwargs)
Trainer = Counts
"""

ALIKE = {
    "zero-3 offload": f"train(model(), {OFFLOAD}, gradient_checkpointing=True, {EIGHT})",
    "ddp": f"train(model(attn_implementation='eager'), {EIGHT})",
    "padded": PADDED.replace("LENGTH(index)", "32 + index % 32") + f"train(model(), zero(2), {EIGHT})",
}
"""Programs whose micro-batches are alike."""
UNLIKE = {
    "of masks that decide": f"""
class Masked(Trainer):
    def compute_loss(self, model, inputs, *args, **kwargs):
        whole = bool(inputs["attention_mask"].all())
        extra = torch.ones(1 << 22, device="cuda") if whole else None
        return super().compute_loss(model, inputs, *args, **kwargs)
Trainer = Masked
{PADDED.replace("LENGTH(index)", "64 - index // 16 % 2")}
train(model(), zero(2), {EIGHT}, {IN_ORDER})
""",
    "of its own count": f"{COUNTING}train(model(), zero(2), {EIGHT})",
    "of growing length": f"""
class Longer(Tokens):
    def __getitem__(self, index):
        return {{name: value[: 16 + index // 16] for name, value in super().__getitem__(index).items()}}
Tokens = Longer
train(model(), zero(2), {EIGHT}, {IN_ORDER})
""",
    "that keeps tensors": f"""
kept = []
class Keeps(Trainer):
    def training_step(self, *args, **kwargs):
        kept.append(torch.ones(1 << 20, device="cuda"))
        return super().training_step(*args, **kwargs)
Trainer = Keeps
train(model(), zero(2), {EIGHT})
""",
}
"""Programs of which each micro-batch may do something else."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, RankRecord]]:
    programs = {name: f"{TRAINER}\n{program}" for name, program in {**ALIKE, **UNLIKE}.items()}
    found = {}
    for every in (False, True):
        folder = tmp_path_factory.mktemp("every" if every else "counted")
        found[folder.name[:5]] = records = rehearse_all(folder, programs, every=every, counts_work=True)
        for name, record in records.items():
            assert record.outcome == "completed", output_of(folder, name)
    return found


def _rounded(record: RankRecord) -> list[PhaseWork]:
    """The work, its sums of seconds to 12 digits: added up in another order they differ in the last ones."""
    return [
        msgspec.structs.replace(
            one,
            kernels=[],
            long_seconds=float(f"{one.long_seconds:.12g}"),
            short_seconds=float(f"{one.short_seconds:.12g}"),
        )
        for one in record.work
    ]


def _counted(record: RankRecord) -> list[str]:
    return [one.what for one in record.left_out if "micro-batches" in one.what]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALIKE, *UNLIKE])
def test_the_record_is_that_of_a_run_of_all(folders: dict[str, dict[str, RankRecord]], name: str) -> None:
    counted, every = folders["count"][name], folders["every"][name]
    assert not _counted(every)
    for field in ("operators", "steps", "phases", "devices", "host", "collectives", "assumptions", "as_run",
                  "parameters_without_gradient", "events", "batch", "data_ended"):  # fmt: skip
        assert getattr(counted, field) == getattr(every, field), field
    assert _rounded(counted) == _rounded(every)


@pytest.mark.parametrize("name", ALIKE)
def test_micro_batches_that_are_alike_are_counted(folders: dict[str, dict[str, RankRecord]], name: str) -> None:
    (said,) = _counted(folders["count"][name])
    assert int(said.split()[0]) >= 8, said


@pytest.mark.parametrize("name", UNLIKE)
def test_others_are_run(folders: dict[str, dict[str, RankRecord]], name: str) -> None:
    assert not _counted(folders["count"][name])
