"""Failed lookups that contributed to a failure: recognized by who looked and where it led, not by messages."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from gonogo.evidence.config.model import is_in_hub_cache
from gonogo.evidence.library import is_library_path
from gonogo.evidence.prepared import is_prepared_automatically
from gonogo.evidence.rehearsal.failures import exception_class_name
from gonogo.evidence.rehearsal.influence import Influence, ProgramLine
from gonogo.evidence.rehearsal.record import FailedLookup, Failure, RankRecord, RehearsalRecord
from gonogo.finding import translated
from gonogo.finding.ranks import ranks_text
from gonogo.finding.remedy import Purpose, Reason, prepare_launch, rehearse_again, run_command
from gonogo.prepare.environment_mismatch import distribution_of, is_project_module
from gonogo.prepare.inferred.producers import reason_with_producer
from gonogo.prepare.missing_files import NO_PROGRAM, NO_SUCH_FILE, is_repository_file
from gonogo.rehearse.limits.synthetic_data_failures import NO_ENVIRONMENT, PATH_MISSING
from gonogo.rehearse.limits.world import ProjectWorld

_TRAINING_PHASES = frozenset({"forward", "backward", "step"})
_MAX_LOOKUPS = 60
"""How many of the last failed lookups are traced through the program's files."""
_CODE = frozenset({".py", ".pyi", ".pyc", ".so"})
_METADATA = frozenset({".dist-info", ".egg-info"})
"""Metadata folders of installed packages, in which files such as entry_points.txt are optional."""
_IMPORT_ERROR_TYPES = frozenset({"ModuleNotFoundError", "ImportError"})

_MODULE_NOT_INSTALLED = Reason(
    translated(
        "the program looked for the module {name}, which is not installed here, and continued without it; the target "
        "machine may have it: pip install {package} here too, or rehearse with --with {package}"
    ),
    rehearse_again("--with", "{package}", purpose=Purpose.INSTALL_PACKAGE),
)
_NO_LIBRARY = Reason(
    translated(
        "the library {name} does not load on this machine, but may on the target machine, with the CUDA packages: "
        "rehearse where it is installed"
    ),
    rehearse_again(purpose=Purpose.AFTER_INSTALL, subject="{name}"),
)
_NO_NETWORK = Reason(
    translated(
        "the program tried to get {name} over the network, which a rehearsal does not use: download what it needs "
        "beforehand (gonogo prepare -- COMMAND generates what it can)"
    ),
    prepare_launch(),
)
_NO_NETWORK_AFTER_PREPARE = Reason(
    translated(
        "the program tried to get {name} over the network, but gonogo prepare generated nothing for it: download "
        "what it needs, and use its folder in the command"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_DOWNLOAD = translated(
    "the program downloads {address}, which a rehearsal does not: put the file where it looks for it, in {path} "
    "({command})"
)
_GENERATED_FILE = Reason(
    translated(
        "the program read {name}, which gonogo generated in place of a file that is not here, before it failed: put "
        "the real file there, or a few rows of it"
    ),
    rehearse_again(purpose=Purpose.AFTER_FILES, subject="{name}"),
)
_OTHER_RANKS = Reason(
    translated("it reads what all ranks write ({name}), but only {ranks} of {world} were rehearsed: use --ranks all"),
    rehearse_again("--ranks", "all", purpose=Purpose.ALL_RANKS),
)


def explain_missing_inputs(rank: RankRecord, record: RehearsalRecord, world: ProjectWorld) -> Iterator[Reason]:
    """The missing inputs that contributed to a rank's failure, the last lookup first."""
    failure = rank.failure
    assert failure is not None
    for one in rank.absent[:_MAX_LOOKUPS]:
        if _is_machine_specific(one, failure, record, world) and _is_related_to_failure(one, failure):
            description = _describe_lookup(one, is_prepared=world.prepared.environment != NO_ENVIRONMENT)
            yield reason_with_producer(description, one.name, world.cwd) if one.kind == "file" else description


def explain_generated_files(rank: RankRecord) -> Reason | None:
    """The file that gonogo generated and whose content may have led to a rank's failure while it loaded; None: none."""
    failure = rank.failure
    assert failure is not None
    if set(rank.phases) & _TRAINING_PHASES:
        return None
    for one in rank.absent[:_MAX_LOOKUPS]:
        if one.kind == "made" and _leads_to_failure(one, failure):
            return _GENERATED_FILE.format(name=one.name)
    return None


def explain_missing_rank_output(rank: RankRecord, record: RehearsalRecord) -> Reason | None:
    """Missing output of other ranks that contributed to a rank's failure; None if there is none."""
    failure = rank.failure
    assert failure is not None
    for one in rank.absent[:_MAX_LOOKUPS]:
        if (one.kind == "folder" or (one.kind == "file" and one.written)) and _is_related_to_failure(one, failure):
            ranks = ranks_text(found.rank for found in record.ranks)
            return _OTHER_RANKS.format(name=one.name, ranks=ranks, world=record.world_size)
    return None


def _is_machine_specific(lookup: FailedLookup, failure: Failure, record: RehearsalRecord, world: ProjectWorld) -> bool:
    """Whether the absence may be specific to this machine, and not also hold on the one that trains."""
    if lookup.kind == "file":
        if lookup.asked.owner != "user" and _is_hub_repository(lookup.name, world):
            return False  # on every machine a library looks for a local folder before it asks the Hub
        path = Path(os.path.normpath(world.cwd / lookup.name))
        written = (
            lookup.written
            or record.was_written_before(str(path))
            or lookup.phase in _TRAINING_PHASES
            or lookup.step > 0
        )  # output of the program itself
        is_as_installed = path.suffix in _CODE or path.parent.suffix in _METADATA
        of_package = is_as_installed and is_library_path(str(path))
        return not written and not of_package and not is_repository_file(path, world.cwd)
    if lookup.kind == "module":
        name = lookup.name.partition(".")[0]
        if is_project_module(name, world.cwd) or exception_class_name(failure) in _IMPORT_ERROR_TYPES:
            return False  # environment_mismatch handles these by their messages
        return not record.whole_environment or distribution_of(name) in record.differing
    return lookup.kind not in ("folder", "made")


def _is_hub_repository(name: str, world: ProjectWorld) -> bool:
    """Whether a path is the Hub name of a model or dataset that was found otherwise, or a file below it."""
    relative = os.path.relpath(name, world.cwd) if os.path.isabs(name) else os.path.normpath(name)
    parts = Path(relative).parts
    names = {"/".join(parts[:count]) for count in (1, 2)}
    prepared = {*world.prepared.models, *world.prepared.datasets}
    return any(one.lower() in prepared or is_in_hub_cache(one) for one in names)


def _is_related_to_failure(lookup: FailedLookup, failure: Failure) -> bool:
    """Whether a lookup may have caused the failure, or led the program to where it failed."""
    if lookup.handed:
        return True
    if lookup.asked.owner != "user" and (lookup.kind == "module" or not lookup.raised_below):
        return False  # the library can do without it
    return _leads_to_failure(lookup, failure)


def _leads_to_failure(lookup: FailedLookup, failure: Failure) -> bool:
    shared = lookup.shared
    if shared is not None and shared.path == lookup.asked.path and shared.line == lookup.failed_at == lookup.asked.line:
        return True
    if shared is not None and not shared.path.startswith("<"):
        if shared.line == lookup.failed_at:
            return True
        influence = Influence(ProgramLine(shared.path, shared.line), may_raise=True)
        if influence.is_influenced(ProgramLine(shared.path, lookup.failed_at)):
            return True
    if lookup.asked.owner != "user":
        return False
    users = [frame for frame in failure.frames if frame.owner == "user"]
    influence = Influence(
        ProgramLine(lookup.asked.path, lookup.asked.line), (frame.path for frame in users), may_raise=True
    )
    return any(influence.decides(ProgramLine(frame.path, frame.line)) for frame in users) or (
        bool(users) and influence.is_influenced(ProgramLine(users[-1].path, users[-1].line))
    )


def _describe_lookup(lookup: FailedLookup, *, is_prepared: bool) -> Reason:
    if lookup.kind == "module":
        return _MODULE_NOT_INSTALLED.format(name=lookup.name, package=distribution_of(lookup.name))
    if lookup.kind == "program":
        return NO_PROGRAM.format(path=lookup.name)
    if lookup.kind == "library":
        return _NO_LIBRARY.format(name=lookup.name)
    if lookup.kind == "address" and lookup.into:
        folder = os.path.dirname(lookup.into)
        made = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
        command = f"{made}curl -L -o {shlex.quote(lookup.into)} {shlex.quote(lookup.name)}"
        why = _DOWNLOAD.format(address=lookup.name, path=lookup.into, command=command)
        return Reason(why, run_command(command))
    if lookup.kind == "address":
        text, otherwise = (_NO_NETWORK_AFTER_PREPARE if is_prepared else _NO_NETWORK), _NO_NETWORK_AFTER_PREPARE
    else:
        text, otherwise = (PATH_MISSING if is_prepared else NO_SUCH_FILE), PATH_MISSING
    reason = text.format(name=lookup.name, path=lookup.name)
    if is_prepared_automatically():  # to prepare it once more would generate no more
        return Reason(reason.why, otherwise.format(name=lookup.name, path=lookup.name).remedy)
    return reason
