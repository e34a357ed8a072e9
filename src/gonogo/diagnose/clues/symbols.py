"""Names that one package asks for and the installed release of another has not; symbols of another build."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.compatibility import required_by
from gonogo.evidence.environment.version_range import parse_version, versions_in
from gonogo.evidence.failure.misfit import Misfit, library_package, misfit_in
from gonogo.evidence.failure.native import readable, string_abi
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace


def of_symbols(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Whose release lacks what; requirements of packages that are not met; the build that a symbol is of."""
    versions = log.setup.version_texts
    misfit = misfit_in(facts, versions)
    if misfit is not None and facts.chain:
        place = CluePlace(facts.chain[-1].log, facts.chain[-1].line)
        if misfit.form != "undefined_symbol":
            yield from _of_releases(misfit, place)
        yield from _of_requirements(log, misfit, place)
    for symbol in facts.native:
        if symbol.library and symbol.symbol.startswith("_Z"):
            yield _of_build(log, symbol.library, symbol.symbol, CluePlace(symbol.log, symbol.line))
            return


def _of_releases(misfit: Misfit, place: CluePlace) -> Iterator[Clue]:
    if not misfit.lacks or (not misfit.asks and not misfit.lacks_version):
        return
    lacks = f"{misfit.lacks} {misfit.lacks_version}".strip()
    asks = f"{misfit.asks} {misfit.asks_version}".strip()
    if asks:
        yield Clue(
            translated("{asks} asks for it, {lacks} does not have it: the two are of different times").format(
                asks=asks, lacks=lacks
            ),
            (place,),
        )
    elif misfit.lacks_version:
        yield Clue(translated("the run has {lacks}").format(lacks=lacks), (place,))


def _of_requirements(log: FailureLog, misfit: Misfit, place: CluePlace) -> Iterator[Clue]:
    """What the asking package requires of others by its own metadata, against the versions that are told."""
    versions = log.setup.version_texts
    for package in dict.fromkeys((misfit.asks, misfit.lacks)):
        version = versions.get(package, "")
        for requirement in required_by(package, version) if package and version else ():
            for name, specifier in requirement.requires.items():
                there, allowed = parse_version(versions.get(name, "")), versions_in(specifier)
                if there is not None and allowed is not None and allowed.has(there) is False:
                    yield Clue(
                        translated("{package} {version} requires {name}{specifier}, but {there} is installed").format(
                            package=package, version=version, name=name, specifier=specifier, there=there
                        ),
                        (place,),
                    )


def _of_build(log: FailureLog, library: str, symbol: str, place: CluePlace) -> Clue:
    name = readable(symbol)
    package = library_package(library)
    of_torch = name.startswith(("c10", "at::", "torch"))
    torch = log.setup.version_texts.get("torch", "")
    abi = string_abi(symbol)
    return Clue(
        translated(
            "{library} ({package}) looks for {name}, which the loaded {where} does not export: it was compiled "
            "against a different build{abi}. Reinstall or rebuild {package} for exactly this {where}"
        ).format(
            library=library.rpartition("/")[2],
            package=package,
            name=name,
            where=f"torch {torch}".strip() if of_torch else "library",
            abi=Text(
                f" (with the {'new' if abi == 'new' else 'old'} C++ ABI, "
                f"_GLIBCXX_USE_CXX11_ABI={'1' if abi == 'new' else '0'})",
                f"（{'新' if abi == 'new' else '旧'} C++ ABI，_GLIBCXX_USE_CXX11_ABI={'1' if abi == 'new' else '0'}）",
            )
            if abi
            else "",
        ),
        (place,),
    )
