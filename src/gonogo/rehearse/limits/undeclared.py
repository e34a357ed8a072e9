"""Failures in the API of a package of which no file says the release that the run has.

gonogo installed one because the program imports it. What another release has or takes may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from gonogo.evidence.environment.reading import read_environment
from gonogo.evidence.rehearsal.chain import ChainedException, exception_chain, package_of_file
from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError, translated
from gonogo.finding.remedy import Purpose, Reason, rehearse_again
from gonogo.prepare.environment_mismatch import API_ERROR_PATTERN, DISTRIBUTION_BY_MODULE

_RELEASE_NOT_DECLARED = Reason(
    translated(
        "no file of the project says which release of {package} the run has, and this failure depends on it ({version} "
        "was installed here): rehearse with that release, --with {package}==VERSION"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)


def undeclared_packages(with_packages: tuple[str, ...], environment: Path | None) -> list[str]:
    """The packages that were installed in whatever release, by canonical name: no file and no option states one."""
    names = [canonicalize_name(one) for one in with_packages if "=" not in one]
    try:
        listed = read_environment(SourceFile.read(environment)).packages if environment is not None else {}
    except UserError:
        listed = {}
    stated = {name for name, one in listed.items() if one.specifier and not one.is_added_by_gonogo}
    added = [name for name, one in listed.items() if one.is_added_by_gonogo and not one.specifier]
    return [name for name in dict.fromkeys([*names, *added]) if name not in stated]


def explain_undeclared_release(rank: RankRecord, record: RehearsalRecord) -> Reason | None:
    """The package whose undeclared release the failure depends on; None if there is none."""
    if rank.failure is None or not record.undeclared:
        return None
    for exception in exception_chain(rank.failure):
        if API_ERROR_PATTERN.search(f"{exception.type}: {exception.message}") is None:
            continue
        named = set(_packages_in(exception))
        for name in record.undeclared:
            if name in named:
                version = record.laid_over.get(name) or rank.imported.get(name, "")
                return _RELEASE_NOT_DECLARED.format(package=name, version=f"{name} {version}".strip())
    return None


def _packages_in(exception: ChainedException) -> Iterator[str]:
    """The packages that an error names, in whose code it was raised, or that its statement calls."""
    line = exception.frames[-1].text if exception.frames else ""
    for module in re.findall(r"'([A-Za-z_]\w*)(?:\.[\w.]+)?'", exception.message) + re.findall(
        r"\b([A-Za-z_]\w*)\b", line
    ):
        yield canonicalize_name(DISTRIBUTION_BY_MODULE.get(module, module))
    if exception.frames:
        yield package_of_file(exception.frames[-1].path) or ""
