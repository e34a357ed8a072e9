"""The report of ``gonogo env``: an environment as evidence, and whether it is consistent."""

from __future__ import annotations

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.environment.versions.environment_json import environment_facts
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Report, Skipped, Text, sorted_findings, translated, verdict_of
from gonogo.hazards.index import hazards_at_stages

STACK = ("torch", "deepspeed", "transformers", "accelerate")
_NO_STACK = translated(
    "none of torch, deepspeed, transformers and accelerate is installed: start gonogo with the Python "
    "that you train with, for example: path/to/python -m gonogo env"
)
_NO_GPU = translated("no GPU and no driver on this machine: checks that need them were skipped")
_VERSIONS = translated("whether the installed package versions are compatible")
_DRIVER_CHECK = translated("whether the driver and GPUs are recent enough for torch's CUDA")
_TOOLKIT_CHECK = translated("whether the compilers can build DeepSpeed's ops")


def environment_findings(environment: Environment) -> tuple[Finding, ...]:
    """Findings of the hazards that look at an environment alone, most certain first."""
    run = Run(environment)
    found: list[Finding] = []
    for hazard in hazards_at_stages("environment"):
        found += hazard.in_environment(environment, run)
    return sorted_findings(list(dict.fromkeys(found)))


def environment_report(environment: Environment, extra_notes: tuple[Text, ...] = ()) -> Report:
    """The environment, with a verdict on its own consistency; what could not be determined is listed as such.

    ``extra_notes``: further notes about this machine.
    """
    findings = environment_findings(environment)
    skipped: list[Skipped] = []
    covered: list[Text] = []
    notes: list[Text] = [*environment.sources, *extra_notes]
    if any(environment.has(name) for name in STACK):
        covered.append(_VERSIONS)
    else:
        skipped.append(Skipped(_VERSIONS, _NO_STACK))
    nothing_there = environment.driver.absent and environment.gpus_known and not environment.gpus
    if nothing_there:
        notes.append(_NO_GPU)
    elif environment.driver.known and (environment.cuda.known or environment.cuda.absent):
        covered.append(_DRIVER_CHECK)
    elif environment.driver.unknown and environment.driver.reason is not None:
        skipped.append(Skipped(_DRIVER_CHECK, environment.driver.reason))
    if environment.toolkit.known and environment.cuda.known:
        covered.append(_TOOLKIT_CHECK)
    elif (reason := _unknown_reason(environment.toolkit)) is not None:
        skipped.append(Skipped(_TOOLKIT_CHECK, reason))
    return Report(
        command="env",
        verdict=verdict_of(findings, complete=not skipped),
        findings=findings,
        covered=tuple(covered),
        skipped=tuple(skipped),
        environment=environment_facts(environment),
        notes=tuple(notes),
    )


def _unknown_reason(field: Field) -> Text | None:
    return field.reason if field.unknown else None
