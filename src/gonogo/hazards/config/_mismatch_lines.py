"""The lines in which transformers lists where the DeepSpeed JSON and TrainingArguments disagree."""

from __future__ import annotations

from typing import NamedTuple

REFUSED = "Please correct the following DeepSpeed config values that mismatch TrainingArguments"


class Mismatch(NamedTuple):
    """One line: ``- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=2``."""

    ds_key: str
    ds_value: str
    hf_key: str
    hf_value: str


def mismatches(message: str) -> list[Mismatch]:
    """All the lines of an exception's message; none where it is another exception."""
    if REFUSED not in message:
        return []
    found = []
    for line in message.splitlines():
        ds, separator, hf = line.strip().removeprefix("- ds ").partition(" vs hf ")
        if separator and line.strip().startswith("- ds "):
            ds_key, _, ds_value = ds.partition("=")
            hf_key, _, hf_value = hf.rpartition("=")
            found.append(Mismatch(ds_key, ds_value, hf_key, hf_value))
    return found
