"""Changes proposed by a model or a person: applied to the copy and rehearsed.

A proposal is data: which setting gets which value. None of it is run as a command, and whatever can't be expressed
that way is refused with a reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gonogo.finding import Edit, Finding, Text, Verdict, translated
from gonogo.finding.second_opinion.model_reading import Proof
from gonogo.finding.text import join_texts
from gonogo.prepare.packages.installed import installed_version
from gonogo.prepare.packages.names import STACK, can_overlay
from gonogo.rehearse.progress import OnProgress
from gonogo.trials.cure.candidate import Candidate
from gonogo.trials.cure.copy import WorkingCopy
from gonogo.trials.cure.proposed_code import rejection_reason
from gonogo.trials.cure.request import CureRequest
from gonogo.trials.cure.search import CureSearch
from gonogo.trials.cure.setting_edits import set_argument
from gonogo.trials.cure.trial import Rehearse, Trial, TrialRunner

if TYPE_CHECKING:
    from gonogo.evidence.run import Run

_OPTION_NAME_PATTERN = re.compile(r"-{0,2}[A-Za-z][\w-]{0,60}")
_UNQUOTED_VALUE_PATTERN = re.compile(r"[\w.,:/+=@][\w.,:/+=@-]{0,200}")
_CONFIG_KEY_PATTERN = re.compile(r"[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}){0,5}")
_ALLOWED_VARIABLE_PATTERN = re.compile(
    r"(?:NCCL|TORCH|PYTORCH|CUDA|OMP|MKL|HCCL|ASCEND|GLOO|TOKENIZERS|VLLM|DS|ACCELERATE|FSDP|HF|TRANSFORMERS)_[A-Z0-9_]{1,60}"
)
_SENSITIVE_VARIABLE_PATTERN = re.compile(
    r"PATH|HOME|DIR|FILE|LIB|PLUGIN|CMD|EXEC|HOOK|CACHE|TOKEN|KEY|URL|ENDPOINT|LAUNCHER|MODULE"
)
_MAX_TEXT_LENGTH = 4000

_NO_CHANGEABLE_RUN = translated("the command launches no run that gonogo can change")
_NO_PLACE_TO_SET = translated("the run's files have no place where {name} can be set")
_NOT_A_SETTING = translated("{name} is not a setting that may be tried")
_NOT_A_PLAIN_VALUE = translated("the value for {name} is not a plain value")
_NO_PACKAGE = translated("the run does not use {name}")
_COMPILED = translated("another release of {name} can't be overlaid: it is compiled")
_NOT_A_RUN_FILE = translated("{name} is not one of the run's Python files")
_NOT_FOUND_EXACTLY_ONCE = translated("the text to be replaced does not occur exactly once in {name}")
_OUTSIDE = translated("the proposal would change a file outside the project")
_CHANGES_NOTHING = translated("the proposal changes nothing")
_GO_WITHOUT_CHANGE = translated(
    "the run rehearses as GO even without the change: its failure does not show up in a rehearsal, so "
    "nothing can be proven"
)
_REHEARSED_WITH_CHANGE = translated("rehearsed as GO with the change; without it the run fails")
_FURTHER = translated("with the change, the run gets further but is not GO: {what}")
_TITLE = translated("the proposed change")


class Proposal(msgspec.Struct, frozen=True):
    """One setting and its value; the fields match those of a model's ``ProposedChange``."""

    kind: str
    name: str = ""
    value: Any = None
    file: str = ""
    before: str = ""
    after: str = ""


class ProposalRejected(Exception):
    """A proposal that is rejected; ``why`` is the sentence for the user."""

    def __init__(self, reason: Text) -> None:
        super().__init__(reason.en)
        self.why = reason


def prove_proposals(
    proposals: Sequence[Proposal],
    request: CureRequest,
    scratch: Path,
    rehearse: Rehearse,
    on_progress: OnProgress | None = None,
) -> Proof:
    """Rehearse a request's command without and with the proposals, in a copy; the user's files are not changed.

    Raises UserError for a command that can't be rehearsed at all.
    """
    copy = WorkingCopy(scratch, Path.cwd(), request.rehearsal.command)
    search = CureSearch(request, TrialRunner(copy, request.rehearsal, rehearse, on_progress))
    before = search.rehearse_baseline()
    if before.cured:
        return Proof(False, _GO_WITHOUT_CHANGE)
    try:
        with copy.as_working_directory():
            candidate = candidate_from_proposals(proposals, before.now)
        if not copy.contains_edited_files(candidate.edits):
            raise ProposalRejected(_OUTSIDE)
        outcome = search.judge_candidate(before, candidate)
    except ProposalRejected as error:
        return Proof(False, error.why)
    except ValueError:  # conflicting edits
        return Proof(False, _CHANGES_NOTHING)
    if isinstance(outcome, Text):
        return Proof(False, outcome, copy.patch(), candidate.pins)
    if outcome.verdict is Verdict.GO:
        return Proof(True, _REHEARSED_WITH_CHANGE, copy.patch(), candidate.pins)
    left = join_texts([finding.title for finding in outcome.blocking_findings[:2]])
    return Proof(False, _FURTHER.format(what=left), copy.patch(), candidate.pins)


def candidate_from_proposals(proposals: Sequence[Proposal], trial: Trial) -> Candidate:
    """Translate proposals into edits of the copy, whose folder is the current one. Raises Refused."""
    run = trial.run
    if run is None:
        raise ProposalRejected(_NO_CHANGEABLE_RUN)
    edits: list[Edit] = []
    pins: list[str] = []
    for one in proposals:
        if one.kind == "release":
            edit, pin = _release_edit(one, run)
            edits += [edit] if edit is not None else []
            pins += [pin] if pin else []
        elif one.kind == "argument":
            edits += _edits_for_argument(one, run)
        elif one.kind == "deepspeed":
            edits += _deepspeed_config_edits(one, run)
        elif one.kind == "variable":
            edits.append(_variable_edit(one, run))
        elif one.kind == "python":
            edits.append(_python_edit(one, trial))
        else:
            raise ProposalRejected(_NOT_A_SETTING.format(name=one.kind[:40] or "?"))
    edits = [edit for edit in edits if edit.before != edit.after]
    if not edits and not pins:
        raise ProposalRejected(_CHANGES_NOTHING)
    return Candidate(_first_blocking_finding(trial), _TITLE, tuple(edits), tuple(pins))


def _first_blocking_finding(trial: Trial) -> Finding:
    """The finding that the change is to cure: the first blocking one."""
    first = next(iter(trial.blocking_findings), None)
    if first is None:
        raise ProposalRejected(_GO_WITHOUT_CHANGE)
    return first


def _parse_scalar(proposal: Proposal) -> Any:
    """A number, a boolean, or a plain word. Raises Refused."""
    value = proposal.value
    if isinstance(value, str):
        text = value.strip()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = {"True": True, "False": False, "None": None}.get(text, text)
        if isinstance(value, (dict, list)):
            raise ProposalRejected(_NOT_A_PLAIN_VALUE.format(name=proposal.name[:60]))
        if isinstance(value, str):
            value = text if value != text and not text.startswith('"') else value
    if isinstance(value, float) and not math.isfinite(value):
        raise ProposalRejected(_NOT_A_PLAIN_VALUE.format(name=proposal.name[:60]))
    if isinstance(value, str) and not _UNQUOTED_VALUE_PATTERN.fullmatch(value):
        raise ProposalRejected(_NOT_A_PLAIN_VALUE.format(name=proposal.name[:60]))
    if not isinstance(value, (str, int, float, bool)):
        raise ProposalRejected(_NOT_A_PLAIN_VALUE.format(name=proposal.name[:60]))
    return value


def _edits_for_argument(proposal: Proposal, run: Run) -> list[Edit]:
    if not _OPTION_NAME_PATTERN.fullmatch(proposal.name):
        raise ProposalRejected(_NOT_A_SETTING.format(name=repr(proposal.name)[:60]))
    name, value = proposal.name.lstrip("-"), _parse_scalar(proposal)
    launch = run.launch
    if launch is not None and name in launch.options and launch.options.can_edit(name):
        return [launch.options.replacing(name, str(value))]
    edits = set_argument(run, name.replace("-", "_"), value)
    if not edits:
        raise ProposalRejected(_NO_PLACE_TO_SET.format(name=name))
    return edits


def _deepspeed_config_edits(proposal: Proposal, run: Run) -> list[Edit]:
    if not _CONFIG_KEY_PATTERN.fullmatch(proposal.name):
        raise ProposalRejected(_NOT_A_SETTING.format(name=repr(proposal.name)[:60]))
    if run.config is None:
        raise ProposalRejected(_NO_PLACE_TO_SET.format(name=proposal.name))
    keys, value = proposal.name.split("."), _parse_scalar(proposal)
    try:
        return [run.config.inserting(*keys, value=value)]
    except KeyError:
        raise ProposalRejected(_NO_PLACE_TO_SET.format(name=proposal.name)) from None


def _variable_edit(proposal: Proposal, run: Run) -> Edit:
    if not _ALLOWED_VARIABLE_PATTERN.fullmatch(proposal.name) or _SENSITIVE_VARIABLE_PATTERN.search(proposal.name):
        raise ProposalRejected(_NOT_A_SETTING.format(name=repr(proposal.name)[:60]))
    if run.launch is None:
        raise ProposalRejected(_NO_CHANGEABLE_RUN)
    value = _parse_scalar(proposal)
    return run.launch.setting_variable(proposal.name, str(int(value)) if isinstance(value, bool) else str(value))


def _release_edit(proposal: Proposal, run: Run) -> tuple[Edit | None, str]:
    name = canonicalize_name(proposal.name.strip())
    shown = repr(proposal.name)[:60]
    used = run.environment.has(name) or installed_version(name) is not None
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", name) or not used or name not in STACK:
        raise ProposalRejected(_NO_PACKAGE.format(name=shown))
    if not can_overlay(name):
        raise ProposalRejected(_COMPILED.format(name=name))
    try:
        version = Version(str(proposal.value).strip().lstrip("=v"))
    except InvalidVersion:
        raise ProposalRejected(_NOT_A_PLAIN_VALUE.format(name=name)) from None
    edit = run.environment.replacing_version(name, f"=={version}")
    return edit, "" if edit is not None else f"{name}=={version}"


def _python_edit(proposal: Proposal, trial: Trial) -> Edit:
    sources = trial.checked.gathered.files.sources
    named = proposal.file.strip().removeprefix("./")
    found = [
        (path, source)
        for path, source in sources.items()
        if named.endswith(".py") and (path == named or path.endswith(f"/{named}") or named.endswith(f"/{path}"))
    ]
    if len(found) != 1 or not found[0][1].writable:
        raise ProposalRejected(_NOT_A_RUN_FILE.format(name=repr(proposal.file)[:60]))
    path, source = found[0]
    before, after = proposal.before.encode(), proposal.after.encode()
    if (
        not before
        or len(proposal.before) > _MAX_TEXT_LENGTH
        or len(proposal.after) > _MAX_TEXT_LENGTH
        or source.data.count(before) != 1
    ):
        raise ProposalRejected(_NOT_FOUND_EXACTLY_ONCE.format(name=path))
    start = source.data.index(before)
    changed = source.data[:start] + after + source.data[start + len(before) :]
    refused = rejection_reason(source.text, changed.decode("utf-8", "replace"))
    if refused is not None:
        raise ProposalRejected(refused)
    return Edit(path, start, start + len(before), before, after)
