"""The Hazard base class, and how hazards are found: by walking ``gonogo.hazards``, with no register."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import ClassVar

from gonogo.evidence.rehearsal import RehearsalRecord
from gonogo.finding import Certainty, Finding, Severity, Span, Text, best_first

HEADINGS = (
    Text("What happens", "现象"),
    Text("Why", "原因"),
    Text("Cure", "解决办法"),
    Text("When it is safe", "何时安全"),
    Text("Sources", "来源"),
)
"""The headings of a hazard's page, in order; each stands on a line of its own as ``## heading``."""


class Hazard:
    """One known way in which a distributed fine-tune fails; one subclass a file.

    The subclass's docstring is its English page and :attr:`page_zh` its Chinese one, under the same fixed
    headings. A subclass overrides only the handlers (``in_…``) that apply to it.
    """

    name: ClassVar[str]
    title: ClassVar[Text]
    sources: ClassVar[tuple[str, ...]]
    page_zh: ClassVar[str]
    fallback: ClassVar[bool] = False
    """A fallback is asked only where no other hazard has explained a failed rank."""
    explains_failure: ClassVar[bool] = True
    """False where the hazard's errors are found beside the exception that ended a rank, and do not explain it."""

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
        """Findings in a rehearsal's record."""
        yield from ()

    def finding(
        self,
        cause: Text,
        *,
        title: Text | None = None,
        certainty: Certainty = Certainty.CERTAIN,
        severity: Severity = Severity.ERROR,
        cure: tuple[Text, ...] = (),
        spans: tuple[Span, ...] = (),
        ranks: tuple[int, ...] = (),
        module: str | None = None,
        parameter: str | None = None,
    ) -> Finding:
        """A finding of this hazard, with its name, its sources and, unless another is given, its title."""
        return Finding(
            hazard=self.name,
            certainty=certainty,
            severity=severity,
            title=title or self.title,
            cause=cause,
            cure=cure,
            spans=spans,
            ranks=ranks,
            module=module,
            parameter=parameter,
            sources=self.sources,
        )


@cache
def all_hazards() -> tuple[Hazard, ...]:
    """Every hazard of the package ``gonogo.hazards``, by name. Raises ValueError where two share a name."""
    package = importlib.import_module("gonogo.hazards")
    found: dict[str, Hazard] = {}
    for module_info in pkgutil.walk_packages(package.__path__, "gonogo.hazards."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Hazard) and value.__module__ == module.__name__:
                if value.name in found:
                    raise ValueError(f"two hazards are named {value.name!r}")
                found[value.name] = value()
    return tuple(found[name] for name in sorted(found))


def findings_in_rehearsal(record: RehearsalRecord) -> tuple[Finding, ...]:
    """What all hazards find in a rehearsal, best first; fallbacks speak only for ranks that nothing else explains."""
    hazards = all_hazards()
    findings: list[Finding] = []
    explained: set[int] = set()
    for hazard in hazards:
        if not hazard.fallback:
            found = list(hazard.in_rehearsal(record))
            findings += found
            if hazard.explains_failure:
                explained |= {rank for f in found if f.severity is Severity.ERROR for rank in f.ranks}
    for hazard in hazards:
        if hazard.fallback:
            for finding in hazard.in_rehearsal(record):
                if not set(finding.ranks) <= explained:
                    findings.append(finding)
                    explained |= set(finding.ranks)
    return best_first(findings)
