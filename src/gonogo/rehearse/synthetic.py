"""``gonogo rehearse --synthetic-batch``: turns its options into the command to rehearse. Imports no torch."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.evidence.environment.hardware import parse_machine
from gonogo.evidence.paths import exists, is_file, is_folder, read_bytes
from gonogo.finding import UserError, translated
from gonogo.prepare.generated.published_folder import find_published_folder

PROGRAM = "gonogo.virtual.synthetic"
_DEFAULT_GPU_COUNT = 8
"""Accelerators per node if not specified."""


@dataclass(frozen=True)
class SyntheticOptions:
    """The values of ``--synthetic-batch`` and related options; None for those that were not given."""

    model: Path | None = None
    deepspeed: Path | None = None
    seq_len: int | None = None
    micro_batch: int | None = None
    gradient_checkpointing: bool = False

    def to_command(self, given: list[str] | None, gpus: str | None, nodes: int | None, steps: int) -> list[str]:
        """The command to rehearse: ``given``, or the synthetic program. Raises UserError if options contradict."""
        if self.model is None:
            self._check_unused()
            return given or []
        if given:
            raise UserError(
                translated(
                    "--synthetic-batch uses its own training program: remove the command ({command}), or the option"
                ).format(command=" ".join(given))
            )
        model = _resolve_model_path(self.model)
        machine = parse_machine(gpus, nodes, None, _DEFAULT_GPU_COUNT)
        words = ["torchrun", "--nnodes", str(machine.nodes), "--nproc_per_node", str(machine.count)]
        words += ["-m", PROGRAM, "--model", str(model), "--steps", str(steps)]
        if self.deepspeed is not None:
            _read_json_object(self.deepspeed)
            words += ["--deepspeed", str(self.deepspeed)]
        if self.seq_len is not None:
            words += ["--seq-len", str(self.seq_len)]
        if self.micro_batch is not None:
            words += ["--micro-batch", str(self.micro_batch)]
        return words + (["--gradient-checkpointing"] if self.gradient_checkpointing else [])

    def _check_unused(self) -> None:
        options = {
            "--deepspeed": self.deepspeed is not None,
            "--seq-len": self.seq_len is not None,
            "--micro-batch": self.micro_batch is not None,
            "--gradient-checkpointing": self.gradient_checkpointing,
        }
        for name, is_given in options.items():
            if is_given:
                raise UserError(
                    translated(
                        "{name} can only be used with --synthetic-batch MODEL; for a command, put it in the "
                        "command's own arguments"
                    ).format(name=name)
                )


def _resolve_model_path(model: Path) -> Path:
    """The model's folder or config; for the name of a published model, a generated folder.

    Raises UserError for a folder without ``config.json``, a missing file or an unknown name.
    """
    if not exists(model) and (made := find_published_folder(str(model))) is not None:
        return made
    file = model / "config.json" if is_folder(model) else model
    if not is_file(file):
        what = translated("has no config.json") if is_folder(model) else translated("does not exist")
        raise UserError(
            translated("--synthetic-batch {model}: it {what}; give a model folder, or its config.json").format(
                model=os.fspath(model), what=what
            )
        )
    if not isinstance(_read_json_object(file).get("model_type"), str):
        raise UserError(
            translated("{file}: it has no model_type, so transformers can't tell which model it is").format(
                file=os.fspath(file)
            )
        )
    return model


def _read_json_object(file: Path) -> dict[str, Any]:
    """A JSON object. Raises UserError for anything else."""
    try:
        found = json.loads(read_bytes(file).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            translated("{file}: it can't be read as JSON: {error}").format(
                file=os.fspath(file), error=getattr(error, "strerror", None) or error
            )
        ) from error
    if not isinstance(found, dict):
        raise UserError(translated("{file}: not a JSON object: write {{...}}").format(file=os.fspath(file)))
    return found
