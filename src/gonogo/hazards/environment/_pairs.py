"""What a package requires of others, by its own metadata and constants, and a finding where it is not met."""

from functools import lru_cache

from gonogo.evidence.environment.compatibility import Requirement, required_by
from gonogo.hazards.facts.installed import describe_package, pip_install, span_of, version_fix
from gonogo.hazards.rule import Certainty, Environment, Finding, Hazard, Text


def requirement_of(environment: Environment, asking: str) -> tuple[Requirement, ...]:
    """What the environment's release of a package requires of others."""
    version = environment.version(asking)
    return _requirements(asking, str(version)) if version is not None else ()


@lru_cache(maxsize=256)
def _requirements(asking: str, version: str) -> tuple[Requirement, ...]:
    return required_by(asking, version)


def pair_finding(
    hazard: Hazard, environment: Environment, pair: tuple[str, str, str], effect: Text, certainty: Certainty
) -> Finding:
    """``pair``: a package, another that is beside it in a wrong version, and the specifier that the first requires."""
    asking, package, specifier = pair
    words = {
        "name": asking,
        "asking": describe_package(environment, asking),
        "package": package,
        "specifier": specifier,
        "has": describe_package(environment, package),
        "effect": effect,
    }
    requires = Text("{asking} requires {package}{specifier}", "{asking} 要求 {package}{specifier}")
    return hazard.finding(
        Text(
            "{asking} requires {package}{specifier}, and {has} is beside it: {effect}.",
            "{asking} 要求 {package}{specifier}，而一同安装的是 {has}：{effect}。",
        ).format(**words),
        certainty=certainty,
        cure=(
            pip_install(package, specifier),
            Text("Or take the release of {name} that goes with {has}", "或改用与 {has} 相配的 {name} 版本").format(
                **words
            ),
        ),
        spans=(span_of(environment, package), span_of(environment, asking, requires.format(**words))),
        fixes=version_fix(environment, package, specifier),
    )
