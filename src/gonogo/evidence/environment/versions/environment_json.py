"""An environment as JSON, as written by ``gonogo env --format json``, and read back without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo.evidence.environment.environment import Environment, Gpu, field_names
from gonogo.evidence.environment.versions.listing import PackageListing
from gonogo.evidence.field import Field
from gonogo.finding import Text
from gonogo.finding.environment import Card, EnvironmentFacts


def environment_facts(environment: Environment) -> EnvironmentFacts:
    """The environment in the form of a report; its ``to_json`` can be read by :func:`read_environment_json`."""
    machine: dict[str, str | int | float | Text | None] = {}
    for name in field_names():
        value: Field = getattr(environment, name)
        if not value.unknown:
            machine[name] = value.value if value.known else None
        elif value.reason is not None:
            machine[name] = value.reason
    variables = {name: value.value for name, value in sorted(environment.variables.items()) if value.known}
    gpus = tuple(Card(gpu.name, gpu.memory, gpu.capability) for gpu in environment.gpus)
    return EnvironmentFacts(
        packages={
            name: package.version_text or package.specifier for name, package in sorted(environment.packages.items())
        },
        complete=environment.complete,
        machine=machine,
        torch=dict(environment.torch) or None,
        gpus=gpus if environment.gpus_known or environment.gpus else None,
        variables=variables if environment.variables_known or environment.variables else None,
    )


def read_environment_json(listing: PackageListing, content: Mapping[str, Any]) -> None:
    """Read everything but the packages from the JSON that ``gonogo env`` prints."""
    listing.complete = content.get("complete") is True
    for name in field_names():
        if name in content:
            value = content[name]
            if value is None:
                listing.facts[name] = Field.missing()
            elif isinstance(value, (str, int, float)):
                listing.facts[name] = Field(value)
    unknown = content.get("unknown")
    for name, reason in unknown.items() if isinstance(unknown, Mapping) else ():
        if name in field_names() and isinstance(reason, Mapping) and name not in listing.facts:
            texts = [reason.get(language) for language in ("en", "zh")]
            if isinstance(texts[0], str) and isinstance(texts[1], str):
                listing.facts[name] = Field.not_known(reason=Text(texts[0], texts[1]))
    torch = content.get("torch")
    if isinstance(torch, Mapping):
        listing.torch.update({str(k): v for k, v in torch.items() if v is None or isinstance(v, (str, bool))})
    gpus = content.get("gpus")
    if isinstance(gpus, list):
        listing.gpus_known = True
        listing.gpus += [
            _parse_gpu(one) for one in gpus if isinstance(one, Mapping) and isinstance(one.get("name"), str)
        ]
    variables = content.get("variables")
    if isinstance(variables, Mapping):
        listing.variables_known = True
        listing.variables.update({str(k): Field(v) for k, v in variables.items() if isinstance(v, str)})


def _parse_gpu(entry: Mapping[str, Any]) -> Gpu:
    memory, capability = entry.get("memory_bytes"), entry.get("compute_capability")
    pair = (
        (int(capability[0]), int(capability[1]))
        if isinstance(capability, list) and len(capability) == 2 and all(type(one) is int for one in capability)
        else None
    )
    return Gpu(entry["name"], memory if type(memory) is int else None, pair)
