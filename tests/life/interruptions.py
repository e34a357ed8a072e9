"""Lives that are killed between two writes of their first save; what the resume has was seen in real runs on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TRUTH = Path(__file__).parent / "interruptions.json"
_SMALL = (
    "--output_dir out --max_steps 8 --save_steps 2 --report_to none --per_device_train_batch_size 1 --logging_steps 1 "
    "--optim adamw_torch --learning_rate 1e-2"
)


@dataclass(frozen=True)
class InterruptedCell:
    """A program on one rank; ``resume_with`` is what its second command has besides."""

    words: str
    resume_with: str | None = None

    @property
    def name(self) -> str:
        """What it is called in the truth."""
        return f"{self.words} | {self.resume_with or ''}"


_RESUME = "--resume_from_checkpoint out/checkpoint-2"
CELLS = [
    InterruptedCell(f"trainer.py {_SMALL}", _RESUME),
    InterruptedCell(f"trainer.py {_SMALL} --based --adapter", _RESUME),
    InterruptedCell("engine.py 2"),
    InterruptedCell("accelerated.py"),
    InterruptedCell("files.py"),
    InterruptedCell("files.py atomic"),
]
