"""The settings that ``--set`` and ``--also`` can change: their names, and where the run's files define them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from gonogo.evidence.field import whole_number
from gonogo.finding import UserError, translated
from gonogo.trials.cure.batch import ACCUMULATION, MICRO_BATCH, read_size_setting
from gonogo.trials.cure.setting_edits import set_argument, set_zero
from gonogo.trials.plan.from_command import LENGTHS

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.finding import Edit

Settings = dict[str, str]
"""Values by name, as typed: ``{"micro-batch": "4"}``."""
_OFFLOAD_DEVICES = ("none", "cpu", "nvme")
_VALUES: dict[str, tuple[str, ...]] = {
    "micro-batch": (),
    "seq-len": (),
    "accumulation": (),
    "stage": ("0", "1", "2", "3"),
    "offload-optimizer": _OFFLOAD_DEVICES,
    "offload-parameters": _OFFLOAD_DEVICES,
}
"""The allowed values of each setting; empty if any positive integer is allowed."""
_MAX_DIGITS = 12
_MALFORMED = translated("{option} {text!r}: write NAME=VALUE, for example {option} micro-batch=4")
_UNKNOWN_SETTING = translated("{option} {text!r}: there is no setting {name!r}; the settings are {names}")
_UNKNOWN_NEAR = translated("{option} {text!r}: there is no setting {name!r}; did you mean {near}?")
_NOT_A_NUMBER = translated("{option} {text!r}: {name} is a whole number, at least 1")
_NOT_A_CHOICE = translated("{option} {text!r}: {name} is one of {values}")
_GIVEN_TWICE = translated("{option}: {name} is given twice")
_ALREADY_SET = translated("{name}={value}: the run already uses this value")
_NO_PLACE_TO_SET = translated(
    "{name}={value}: no place was found in the run's files where it is set ({where}): change it there yourself, and "
    "rehearse that"
)


def read_settings(texts: Sequence[str], option: str) -> Settings:
    """Parse ``NAME=VALUE`` words, separated by commas or given one by one. Raises UserError."""
    found: Settings = {}
    for text in (part.strip() for one in texts for part in one.split(",")):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise UserError(_MALFORMED.format(option=option, text=text))
        if name not in _VALUES:
            near = get_close_matches(name.replace("_", "-"), _VALUES, n=1)
            sentence = _UNKNOWN_NEAR if near else _UNKNOWN_SETTING
            raise UserError(
                sentence.format(option=option, text=text, name=name, near="".join(near), names=", ".join(_VALUES))
            )
        if _VALUES[name] and value not in _VALUES[name]:
            raise UserError(_NOT_A_CHOICE.format(option=option, text=text, name=name, values=", ".join(_VALUES[name])))
        if not _VALUES[name] and not (value.isascii() and value.isdecimal() and int(value[:_MAX_DIGITS]) > 0):
            raise UserError(_NOT_A_NUMBER.format(option=option, text=text, name=name))
        if name in found:
            raise UserError(_GIVEN_TWICE.format(option=option, name=name))
        found[name] = value
    return found


def format_settings(settings: Settings) -> str:
    """Format settings as ``--set`` accepts them: ``micro-batch=4,stage=2``."""
    return ",".join(f"{name}={value}" for name, value in settings.items())


def edits_for(run: Run, name: str, value: str) -> list[Edit]:
    """The edits that change a setting. Raises UserError if the files don't define it, or already have the value."""
    edits = _EDITS[name](run, value)
    if edits is None:
        raise UserError(_NO_PLACE_TO_SET.format(name=name, value=value, where=_WHERE[name]))
    if not edits:
        raise UserError(_ALREADY_SET.format(name=name, value=value))
    return edits


def _size_edits(argument: str) -> Callable[[Run, str], list[Edit] | None]:
    def size_edits(run: Run, value: str) -> list[Edit] | None:
        if read_size_setting(run, argument) == int(value):
            return []
        changed = set_argument(run, argument, int(value))
        if not changed:
            return None
        return [
            *changed,
            *_launcher_option_edits(run, argument, value),
            *_train_batch_size_edits(run, argument, int(value)),
        ]

    return size_edits


def _launcher_option_edits(run: Run, argument: str, value: str) -> Iterator[Edit]:
    """Edit the launcher's own option of that name (such as accelerate's), which must match the program's."""
    options = run.launch.launcher_options if run.launch is not None else None
    if options is not None and argument in options and options.can_edit(argument):
        yield options.replacing(argument, value)


def _train_batch_size_edits(run: Run, argument: str, value: int) -> Iterator[Edit]:
    """Update ``train_batch_size``, the product of the others: DeepSpeed rejects inconsistent values."""
    sizes = [value if name == argument else read_size_setting(run, name) or 1 for name in (MICRO_BATCH, ACCUMULATION)]
    written = run.config.raw("train_batch_size") if run.config is not None else None
    if run.config is not None and written is not None and whole_number(written) is not None and run.world_size:
        yield run.config.replacing("train_batch_size", value=sizes[0] * sizes[1] * run.world_size)


def _length_edits(run: Run, value: str) -> list[Edit] | None:
    """Edit those arguments for the maximum sample length that the run sets."""
    given = [name for name in LENGTHS if run.arguments.get(name).number is not None]
    if given and all(run.arguments.get(name).number == int(value) for name in given):
        return []
    changed = [set_argument(run, name, int(value)) for name in given if run.arguments.get(name).number != int(value)]
    return [edit for edits in changed if edits is not None for edit in edits] or None


def _stage_edits(run: Run, value: str) -> list[Edit] | None:
    return [] if run.zero_stage == int(value) else set_zero(run, {"stage": int(value)})


def _offload_edits(key: str, what: str) -> Callable[[Run, str], list[Edit] | None]:
    def offload_edits(run: Run, value: str) -> list[Edit] | None:
        if run.config is not None and (run.config.offload_target(what).get() or "none") == value:
            return []
        device: dict[str, Any] = {"device": value}
        return set_zero(run, {key: device}) or None

    return offload_edits


_EDITS: dict[str, Callable[[Run, str], list[Edit] | None]] = {
    "micro-batch": _size_edits(MICRO_BATCH),
    "seq-len": _length_edits,
    "accumulation": _size_edits(ACCUMULATION),
    "stage": _stage_edits,
    "offload-optimizer": _offload_edits("offload_optimizer", "optimizer"),
    "offload-parameters": _offload_edits("offload_param", "param"),
}
_WHERE = {
    "micro-batch": f"{MICRO_BATCH}, train_micro_batch_size_per_gpu",
    "seq-len": ", ".join(LENGTHS[:4]) + ", …",
    "accumulation": ACCUMULATION,
    "stage": "zero_optimization.stage",
    "offload-optimizer": "zero_optimization.offload_optimizer",
    "offload-parameters": "zero_optimization.offload_param",
}
