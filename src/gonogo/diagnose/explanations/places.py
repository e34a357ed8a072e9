"""Where to look, and which releases have to fit, if nothing says what to change."""

from __future__ import annotations

from gonogo.evidence.failure.api_mismatch import FORWARDING_FUNCTIONS
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, FailureFacts, RaisedException

REQUIREMENT_PATTERN = lazy_compile(
    r"(?i)((?:[^.\n]|\.(?=\S)){3,200}?(?: must (?:be|not|have|match)| should (?:be|not|match)| (?:is|are) required"
    r"| requires? | needs? to be"
    r"| only (?:support|work|implemented)| not supported| (?:cannot|can't) be used)(?:[^.\n]|\.(?=\S)){0,200})"
)
_SETTING_NAME_PATTERN = lazy_compile(r"(?<![\w/])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/(])")


def required_settings(raised: RaisedException) -> tuple[str, ...]:
    """The names of settings in a requirement of the message, which says by itself what to change."""
    if raised.type not in ("ValueError", "AssertionError"):
        return ()
    found = REQUIREMENT_PATTERN.search(raised.message.text[:4000])
    return tuple(dict.fromkeys(_SETTING_NAME_PATTERN.findall(found.group(1))))[:3] if found is not None else ()


def _calling_package(frames: tuple[CodePlace, ...]) -> CodePlace | None:
    """The frame of another package that called the package that raised, if no frame of the user's is in between."""
    if not frames or frames[-1].package in ("", "torch"):
        return None
    for frame in reversed(frames):
        if (
            frame.package != frames[-1].package
            and frame.function not in FORWARDING_FUNCTIONS
            and frame.owner != "python"
        ):
            return frame if frame.package and frame.package not in _LAUNCHING_PACKAGES else None
    return None


_LOG_LINE_PATTERN = lazy_compile(r"\bpid=\d|\bERROR\b")
"""Text that shows a line to be from the log, in a traceback without the line of code."""
_LAUNCHING_PACKAGES = ("torch", "ray", "hydra-core", "hydra", "fire", "click", "typer")
"""Packages that call arbitrary user programs."""


def _function_name(place: CodePlace) -> str:
    return f"{place.function}, " if place.function and not place.function.startswith("<") else ""


def matching_releases_advice(facts: FailureFacts) -> Text | None:
    """Advice that one package called another, so that their releases have to match; None if it doesn't apply."""
    frames = facts.chain[-1].frames
    if facts.at is not None and (caller := _calling_package(frames)) is not None:
        code = " ".join(caller.code[:200].split())
        code = "" if _LOG_LINE_PATTERN.search(code) else code
        return translated(
            "{asks} calls {lacks} here ({place}{code}): check whether one of your settings causes this call; "
            "if not, use matching releases of {asks} and {lacks}"
        ).format(
            asks=name_and_version(caller.package, caller.release),
            lacks=name_and_version(frames[-1].package, frames[-1].release),
            place=f"{_function_name(caller)}{caller.path.replace(chr(92), '/').rpartition('/')[2]}:{caller.line}",
            code=Text(f", `{code}`", f"，`{code}`") if code else "",
        )
    return None


def place_to_look(facts: FailureFacts) -> Text | None:
    """Where to look for the cause: the user's own line, the settings of a requirement, or the raising line."""
    at, yours = facts.at, facts.your_line
    if yours is not None:
        place = f"{yours.path}:{yours.line}"
        return Text(f"look at your line {place}", f"请看你自己的 {place}")
    if at is not None and at.package and (named := required_settings(facts.chain[-1])):
        return translated(
            "adjust {names} until the condition holds; a later or earlier release of {package} may not require it"
        ).format(names=", ".join(named), package=at.package)
    if at is not None and at.package:
        where = f"{at.module}.{at.function}" if at.module else at.function
        release = name_and_version(at.package, at.release)
        return Text(
            f"read {where} of {release} at line {at.line}, where it is raised; a later or earlier release of "
            f"{at.package} may "
            "differ",
            f"请看 {release} 中抛出它的 {where}（第 {at.line} 行）；{at.package} 的其他版本可能不同",
        )
    return None


def name_and_version(package: str, version: str) -> str:
    """A package with its version, if that is known."""
    return f"{package} {version}".strip()
