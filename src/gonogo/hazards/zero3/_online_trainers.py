"""TRL's trainers that generate during training, under ZeRO-3."""

from collections.abc import Iterator

from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call, Script

_ONLINE_TRAINERS = (
    *("trl.GRPOTrainer", "trl.PPOTrainer", "trl.RLOOTrainer", "trl.OnlineDPOTrainer", "trl.GKDTrainer"),
    *("trl.XPOTrainer", "trl.NashMDTrainer"),
)


def gathering_trainers(script: Script, run: Run) -> Iterator[Call]:
    """The script's TRL trainers that gather the weights and remove ZeRO-3's hooks to generate."""
    if run.zero_stage != 3 or b"trl" not in script.source.data:
        return
    if run.arguments.get("ds3_gather_for_generation").truth is False:
        return
    yield from script.calls(*_ONLINE_TRAINERS)
