"""``gonogo rehearse --life``: the stages of a run's two lives, and what the second life takes over from the first."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.trees import copy_with_holes
from gonogo.evidence.environment.hardware import parse_memory_size
from gonogo.evidence.rehearsal.lives import RESULT_STAGES, LifePart
from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding import Text, UserError, translated
from gonogo.rehearse.job_signal import parse_job_signal

_LIFE_STAGES = ("load", "train", "eval", "save", "kill", "resume", *RESULT_STAGES)
CHECKPOINT_PROGRAMS_MODULE = "gonogo.virtual.checkpoint_programs"
_API_SERVER = "vllm.entrypoints.openai.api_server"
_PROCESS_COUNT_OPTIONS = ("--nproc_per_node", "--nproc-per-node", "--num_processes", "--num-processes", "--num_gpus")
"""Launcher options for the number of processes per node."""
_DIGITS_PATTERN = re.compile(r"\d+")
_EMPTY_OPTION = translated("{name} is empty: give it a value in quotes, or leave it out")


@dataclass
class LifePass:
    """One pass over the command, and what it leaves to the next pass."""

    part: LifePart = ""
    below: tuple[Path, ...] = ()
    """The trees of files that earlier passes wrote."""
    confinement: Confinement | None = None
    """The confinement of the first pass, whose worlds the second pass starts from."""
    trees: list[Path] = field(default_factory=list)
    """The trees of files that this pass wrote."""
    first: RehearsalRecord | None = None
    """The record of the first life, for later passes."""
    between: tuple[RehearsalRecord, ...] = ()
    """The records of the stages between the first life and this pass."""

    @property
    def written_folders(self) -> tuple[str, ...]:
        """Folders in which earlier passes wrote; not the working directory, which contains other files too."""
        records = [one for one in (self.first, *self.between) if one is not None]
        folders = {os.path.dirname(file) for one in records for file in one.checkpoint_bytes}
        return tuple(sorted(folders - {one.cwd for one in records}))

    def resume_pass(self, left: Path, tree: Path, first: RehearsalRecord) -> LifePass:
        """The pass that resumes from the files in ``left``, which a kill has left of those in ``tree``."""
        if self.confinement is not None and left != tree:
            self.confinement.add_copy(left, tree)
        return LifePass("second", below=(left,), confinement=self.confinement, first=first)


@dataclass(frozen=True)
class StageCommands:
    """The commands of ``--convert-with``, ``--merge-with`` and ``--serve-with``, each as one quoted argument."""

    convert: str | None = None
    merge: str | None = None
    serve: str | None = None

    def command_of(self, stage: str) -> list[str]:
        """The words of a stage's command; empty if it has none. Raises UserError for one that can't be parsed."""
        given: str | None = getattr(self, stage)
        words = _split_words(f"--{stage}-with", given)
        return _vllm_loader_command(words) or words if stage == "serve" else words


def _vllm_loader_command(words: Sequence[str]) -> list[str] | None:
    """The command that only runs vLLM's loaders, for a command that starts its server; None for any other."""
    program = [os.path.basename(word) for word in words[:3]]
    if program[:2] == ["vllm", "serve"]:
        rest = words[2:]
    elif len(program) == 3 and program[0].startswith("python") and program[1:] == ["-m", _API_SERVER]:
        rest = words[3:]
    else:
        return None
    return [sys.executable, "-m", CHECKPOINT_PROGRAMS_MODULE, "vllm", *rest]


def parse_life_stages(
    life: str | None,
    resume_on: str | None,
    resume_with: str | None,
    commands: StageCommands | None = None,
    *,
    kill_between_writes: bool = False,
) -> tuple[str, ...]:
    """The stages that ``--life`` requests, none without it. Raises UserError for invalid combinations."""
    commands = commands or StageCommands()
    given = {"--resume-on": resume_on, "--resume-with": resume_with}
    given |= {f"--{stage}-with": getattr(commands, stage) for stage in RESULT_STAGES}
    if kill_between_writes and "kill" not in (life or ""):
        raise UserError(
            translated("{name} needs --life {stages}").format(
                name="--kill-between-writes", stages="train,save,kill,resume"
            )
        )
    stages = tuple(word.strip().lower() for word in (life or "").split(",")) if life is not None else ()
    for stage in stages:
        if stage not in _LIFE_STAGES:
            raise UserError(
                translated("--life {life}: {stage!r} is not a stage: use {known}").format(
                    life=life, stage=stage, known=", ".join(_LIFE_STAGES)
                )
            )
    for name, value in given.items():
        stage = name.removeprefix("--").partition("-")[0]
        if value is not None and stage not in stages:
            example = ["train", "save", *(["kill"] if stage == "resume" else []), stage]
            raise UserError(translated("{name} needs --life {stages}").format(name=name, stages=",".join(example)))
        if value is not None and not value.strip():
            raise UserError(_EMPTY_OPTION.format(name=name))
    if life is None:
        return ()
    places = [_LIFE_STAGES.index(stage) for stage in stages]
    goes_on = {"kill", "resume"} & set(stages)
    if (
        places != sorted(set(places))
        or "save" not in stages
        or len(goes_on) == 1
        or not (goes_on or set(RESULT_STAGES) & set(stages))
    ):
        raise UserError(
            translated(
                "--life {life}: give the stages in order: --life train,save,kill,resume or "
                "--life train,save,merge,serve"
            ).format(life=life)
        )
    if "convert" in stages and not commands.command_of("convert"):
        raise UserError(translated("--life convert: specify the converter, with --convert-with COMMAND"))
    for stage in RESULT_STAGES:
        commands.command_of(stage)
    return stages


def parse_disk(disk: str | None) -> tuple[int | None, int | None]:
    """The bytes that ``--disk`` says are free, and those that are written per second. Raises UserError."""
    if disk is None:
        return None, None
    space, at, rate = disk.partition("@")
    return parse_memory_size(space, "--disk"), parse_memory_size(rate, "--disk") if at else None


def check_save_options(
    life_stages: Sequence[str], saves: int, disk: str | None, signal: str | None = None, *, kill_between_writes: bool
) -> None:
    """Raise UserError for such options without ``--life``, and for what they can't be combined with."""
    parse_disk(disk)
    parse_job_signal(signal)
    for name, is_given in (("--saves", saves > 1), ("--disk", disk is not None), ("--signal", signal is not None)):
        if is_given and not life_stages:
            raise UserError(
                translated("{name} needs --life {stages}").format(name=name, stages="train,save,kill,resume")
            )
    if kill_between_writes and (saves > 1 or signal is not None):
        raise UserError(
            translated("--kill-between-writes kills the first save: it can't be combined with --saves or --signal")
        )
    if saves > 1 and signal is not None:
        raise UserError(translated("--saves can't be combined with --signal, which ends the run with one save"))


def check_life_options(life_stages: Sequence[str], ray: str | None, *, has_viewer_output: bool) -> None:
    """Raise UserError for options that can't be combined with ``--life``."""
    for name, is_given in (("--ray", ray is not None), ("--trace, --memory-viz, --flight-recorder", has_viewer_output)):
        if life_stages and is_given:
            raise UserError(translated("--life can't be combined with {name}").format(name=name))


def resume_command(command: Sequence[str], resume_with: str | None, gpus_per_node: int | None) -> list[str]:
    """The command of the second life: ``resume_with`` replaces options in the command, or is appended to it.

    With ``gpus_per_node``, the launcher's processes per node are adapted to the machine.
    """
    words = _split_words("--resume-with", resume_with)
    changed = list(command)
    given = list(_split_options(words))
    if gpus_per_node is not None and not any(name in _PROCESS_COUNT_OPTIONS for name, _ in given):
        for name in _PROCESS_COUNT_OPTIONS:
            _replace_option(changed, name, [str(gpus_per_node)])
    for name, values in given:
        if not name.startswith("-") or not _replace_option(changed, name, values):
            changed += [name, *values]
    return changed


def _split_words(option: str, given: str | None) -> list[str]:
    try:
        return shlex.split(given or "")
    except ValueError as error:
        raise UserError(translated("{option} {words}: {why}").format(option=option, words=given, why=error)) from None


def _split_options(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each option with its values, which extend to the next option."""
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=") if words[at].startswith("--") else (words[at], "", "")
        at += 1
        values = [value] if equals else []
        while name.startswith("-") and at < len(words) and not words[at].startswith("-"):
            values.append(words[at])
            at += 1
        yield name, values


def _replace_option(command: list[str], name: str, values: list[str]) -> bool:
    """Replace the values of an option in the command, keeping its syntax; False if the command lacks it."""
    for at, word in enumerate(command):
        if word.startswith(f"{name}=") and len(values) == 1:
            command[at] = f"{name}={values[0]}"
            return True
        if word == name:
            end = at + 1
            while end < len(command) and not command[end].startswith("-") and end - at <= max(len(values), 1):
                end += 1
            command[at + 1 : end] = values
            return True
    return False


def has_saved_checkpoint(record: RehearsalRecord) -> bool:
    """Whether all ranks completed and at least one saved state."""
    return all(rank.outcome in ("completed", "out-of-memory") for rank in record.ranks) and any(
        rank.life is not None and rank.life.at_save is not None for rank in record.ranks
    )


def written_file_sizes(tree: Path, ranks: Sequence[RankRecord]) -> dict[str, int]:
    """The sizes of the files that exist at the kill, in folders in which ranks opened files after a step."""
    names = {name for rank in ranks if rank.life is not None for name in rank.life.written}
    folders = {os.path.dirname(name): tree / os.path.dirname(name).lstrip("/") for name in sorted(names)}
    return {
        os.path.join(name, place.name): place.stat().st_size  # also if it was renamed
        for name, folder in folders.items()
        if folder.is_dir()
        for place in sorted(folder.iterdir())
        if _is_regular_file(place)
    }


def default_stage_command(stage: str, tree: Path, stages: Sequence[RehearsalRecord]) -> list[str] | None:
    """The command for a stage that the user gave none for: PEFT merges the adapter, transformers loads the model.

    None if no such folder was written. The latest of the earlier ``stages`` that wrote one counts.
    """
    mark = {"merge": "adapter_config.json", "serve": "config.json"}[stage]
    for record in reversed(stages):
        lives = [rank.life for rank in record.ranks if rank.life is not None]
        names = {os.path.join(record.cwd, name) for life in lives for name in life.written}
        folders = sorted({os.path.dirname(name) for name in names if os.path.basename(name) == mark})
        for folder in folders:
            if _is_regular_file(tree / folder.lstrip("/") / mark):
                words = [sys.executable, "-m", CHECKPOINT_PROGRAMS_MODULE, stage, folder]
                return [*words, f"{folder}-merged"] if stage == "merge" else words
    return None


def is_completed(record: RehearsalRecord) -> bool:
    """Whether all ranks reached the program's end."""
    return all(rank.outcome in ("completed", "out-of-memory") and not rank.unsupported for rank in record.ranks)


def weight_file_sizes(tree: Path, record: RehearsalRecord) -> dict[str, int]:
    """The files with weights that a later stage wrote, and their sizes."""
    lives = [rank.life for rank in record.ranks if rank.life is not None]
    files = {os.path.join(record.cwd, tensor.file) for life in lives for tensor in life.saved}
    places = {file: tree / file.lstrip("/") for file in sorted(files)}
    return {file: place.stat().st_size for file, place in places.items() if _is_regular_file(place)}


def _is_regular_file(place: Path) -> bool:
    return place.is_file() and not place.is_symlink()


def add_files_of_other_ranks(
    tree: Path, ranks: Sequence[RankRecord], world_size: int, sizes: dict[str, int] | None = None
) -> Iterator[Text]:
    """Generate the files of ranks that weren't run, if the names of ranks 0's and 1's files differ only in the rank.

    Yields notes on what was generated. A file that only rank 0 wrote is taken to be written by it alone. ``sizes``
    gets the sizes.
    """
    run = {rank.rank: rank.life.written for rank in ranks if rank.life is not None}
    others = [number for number in range(world_size) if number not in run]
    if not others:
        return
    if 0 not in run or 1 not in run:
        yield translated(
            "files of ranks {others} are missing: rehearse ranks 0 and 1 (--ranks 0,1) to have them generated"
        ).format(others=", ".join(map(str, others)))
        return
    only_first, only_second = set(run[0]) - set(run[1]), set(run[1]) - set(run[0])
    made: dict[str, None] = {}
    for path in sorted(only_second):
        original = tree / path.lstrip("/")
        if not _is_regular_file(original):
            continue
        for pattern in _rank_file_patterns(path, only_first):
            for number in others:
                target = tree / pattern(number).lstrip("/")
                if not target.exists():
                    copy_with_holes(original, target)
                    if sizes is not None:
                        sizes[pattern(number)] = original.stat().st_size
            made.setdefault(os.path.basename(path))
            break
    if made:
        yield translated("files of ranks {others} were generated like those of rank 1: {files}").format(
            others=f"{others[0]}-{others[-1]}" if len(others) > 1 else others[0], files=", ".join(made)
        )


def _rank_file_patterns(path: str, rank0_paths: set[str]) -> Iterator[_RankFileName]:
    """Name patterns for the other ranks' versions of a file of rank 1, if rank 0 has the same name with 0 for 1."""
    folder, name = os.path.split(path)
    ones = [match for match in _DIGITS_PATTERN.finditer(name) if int(match[0]) == 1]
    for chosen in ([match] for match in ones):
        pattern = _RankFileName(folder, name, chosen)
        if pattern(0) in rank0_paths:
            yield pattern
    if len(ones) > 1 and (pattern := _RankFileName(folder, name, ones))(0) in rank0_paths:
        yield pattern


@dataclass(frozen=True)
class _RankFileName:
    """A file name with the rank in it; called with a rank, it returns that rank's path."""

    folder: str
    name: str
    numbers: list[re.Match[str]]

    def __call__(self, rank: int) -> str:
        name = self.name
        for match in reversed(self.numbers):
            name = f"{name[: match.start()]}{rank:0{len(match[0])}d}{name[match.end() :]}"
        return os.path.join(self.folder, name)
