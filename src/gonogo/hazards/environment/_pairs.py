"""What packages require of each other, by their own metadata and constants, against the versions beside them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from gonogo.evidence.environment.compatibility import KnownBad, Requirement, known_bad, required_by
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.facts.installed import (
    certainty_of_versions,
    describe_package,
    fault_finding,
    known_faults,
    listing,
    span_of,
    together,
    version_fix,
)

if TYPE_CHECKING:
    from gonogo.evidence.environment.environment import Environment
    from gonogo.evidence.run import Run
    from gonogo.hazards.hazard import Hazard

_ASKING = ("transformers", "peft", "trl", "accelerate")
_AT_IMPORT = ("tokenizers", "huggingface-hub", "safetensors")
"""What transformers looks at when it is imported: it then raises."""
_LEFT_OUT = {"transformers": ("accelerate", "deepspeed", "torch"), "trl": ("deepspeed", "peft")}
"""Pairs that hazards of their own tell, and what only an extra requires."""
_REQUIRES = Text("{told} requires {name}{specifier}", "{told} 要求 {name}{specifier}")


def requirement_of(environment: Environment, asking: str) -> tuple[Requirement, ...]:
    """What the told release of a package requires of others."""
    version = environment.version(asking)
    return _requirements(asking, str(version)) if version is not None else ()


@lru_cache(maxsize=256)
def _requirements(asking: str, version: str) -> tuple[Requirement, ...]:
    return required_by(asking, version)


@cache
def faults_at(when: str, package: str, hazard: str) -> tuple[KnownBad, ...]:
    """The known faults of a package that show then (``import``, ``trainer``), of those that a hazard tells."""
    return tuple(row for row in known_bad(package) if row.hazard == hazard and row.when == when)


def mismatched_pairs(hazard: Hazard, environment: Environment, run: Run) -> Iterator[Finding]:
    """A package whose version another surely refuses."""
    for asking in _ASKING:
        for row in requirement_of(environment, asking):
            for name, specifier in row.requires.items():
                if name in _LEFT_OUT.get(asking, ()) or not together(environment, asking, name):
                    continue
                if environment.within(name, specifier) is not False:
                    continue
                if (asking, name) == ("transformers", "peft") and not environment.within("transformers", ">=5"):
                    continue  # before 5 it is asked of load_adapter alone, and an older peft trains
                at_import = asking == "transformers" and name in _AT_IMPORT
                yield pair_finding(hazard, environment, run, asking, name, specifier, at_import)
    for package in _ASKING:
        faults = faults_at("import", package, hazard.name)
        if with_trainer(run) is not False:
            faults += faults_at("trainer", package, hazard.name)
        for fault in known_faults(environment, faults):
            names = (fault.package, *fault.beside)
            told_names = listing(environment, names)
            cause = Text("{told}: {text}.", "{told}：{text}。").format(told=told_names, text=fault.text)
            yield fault_finding(hazard, fault, environment, run, cause)


def pair_finding(
    hazard: Hazard, environment: Environment, run: Run, asking: str, name: str, specifier: str, raises: bool
) -> Finding:
    """``asking`` requires ``specifier`` of ``name``, which is beside it in another version."""
    sure = certainty_of_versions(environment, run, asking, name)
    return hazard.finding(
        Text(
            "{asking} requires {name}{specifier}, and {has} is beside it: {then}.",
            "{asking} 要求 {name}{specifier}，而一同安装的是 {has}：{then}。",
        ).format(
            asking=describe_package(environment, asking),
            name=name,
            specifier=specifier,
            has=describe_package(environment, name),
            then=Text("importing it raises an ImportError", "导入时会抛出 ImportError")
            if raises
            else Text("pip refuses the pair, or one fails in the other", "pip 会拒绝该组合，或一方在调用另一方时失败"),
        ),
        certainty=sure if raises else Certainty.LIKELY,
        severity=Severity.ERROR,
        cure=(
            Text('pip install "{name}{specifier}"', '执行 pip install "{name}{specifier}"').format(
                name=name, specifier=specifier
            ),
            Text("Or take the release of {asking} that goes with {has}", "或改用与 {has} 相配的 {asking} 版本").format(
                asking=asking, has=describe_package(environment, name)
            ),
        ),
        spans=(
            span_of(environment, name),
            span_of(
                environment,
                asking,
                _REQUIRES.format(told=describe_package(environment, asking), name=name, specifier=specifier),
            ),
        ),
        fixes=version_fix(environment, name, specifier),
    )


def refused_by_transformers(
    hazard: Hazard, environment: Environment, run: Run, name: str, effect: Text, *, sure: bool = True
) -> Iterator[Finding]:
    """A package below what the told transformers requires of it; ``effect``: what comes of it."""
    if not together(environment, "transformers", name):
        return
    for row in requirement_of(environment, "transformers"):
        lowest = next((one for one in row.requires.get(name, "").split(",") if one.startswith(">=")), None)
        if lowest is None or environment.within(name, f"<{lowest[2:]}") is not True:
            continue
        certainty = certainty_of_versions(environment, run, "transformers", name)
        yield hazard.finding(
            Text(
                "{asking} requires {name}{lowest}, and {has} is beside it: {effect}.",
                "{asking} 要求 {name}{lowest}，而一同安装的是 {has}：{effect}。",
            ).format(
                asking=describe_package(environment, "transformers"),
                name=name,
                lowest=lowest,
                has=describe_package(environment, name),
                effect=effect,
            ),
            certainty=certainty if sure else Certainty.LIKELY,
            cure=(
                Text('pip install "{name}{lowest}"', '执行 pip install "{name}{lowest}"').format(
                    name=name, lowest=lowest
                ),
                Text(
                    "Or take the release of transformers that goes with {has}",
                    "或改用与 {has} 相配的 transformers 版本",
                ).format(has=describe_package(environment, name)),
            ),
            spans=(
                span_of(environment, name),
                span_of(
                    environment,
                    "transformers",
                    _REQUIRES.format(told=describe_package(environment, "transformers"), name=name, specifier=lowest),
                ),
            ),
            fixes=version_fix(environment, name, lowest),
        )
