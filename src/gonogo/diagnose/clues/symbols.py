"""Names that one package asks for and the installed release of another has not; symbols of another build."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.diagnose.kinds_of_attributes import of_wrapper, own_attribute
from gonogo.evidence.environment.compatibility import required_by
from gonogo.evidence.environment.version_range import parse_version, versions_in
from gonogo.evidence.failure.misfit import Misfit, library_package, misfit_in
from gonogo.evidence.failure.native import readable, string_abi
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import compiled_when_used
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace


def of_symbols(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Whose release lacks what; requirements of packages that are not met; the build that a symbol is of."""
    versions = log.setup.version_texts
    misfit = misfit_in(facts, versions)
    if misfit is not None and facts.chain:
        place = CluePlace(facts.chain[-1].log, facts.chain[-1].line)
        if own_attribute(misfit):
            yield _of_itself(misfit, place)
        elif misfit.form != "undefined_symbol":
            yield from _of_releases(misfit, place)
        yield from _of_requirements(log, misfit, place)
    yield from _of_cuda(log, facts)
    for symbol in facts.native:
        if symbol.library and symbol.symbol.startswith("_Z"):
            yield _of_build(log, symbol.library, symbol.symbol, CluePlace(symbol.log, symbol.line))
            return


def _of_itself(misfit: Misfit, place: CluePlace) -> Clue:
    """An attribute that a package's own code reads of the object itself: no second package is in it."""
    return Clue(
        translated("{subject} and the code that reads its {name} are both of {package}").format(
            subject=misfit.subject,
            name=misfit.names[0],
            package=f"{misfit.at.package} {misfit.at.release}".strip() if misfit.at else "",
        ),
        (place,),
        secondary=("python-package-version-mismatch",),
    )


def _of_releases(misfit: Misfit, place: CluePlace) -> Iterator[Clue]:
    if of_wrapper(misfit):
        yield Clue(
            translated("{name} comes with a way of sharding (FSDP1 or FSDP2), not with a release").format(
                name=misfit.names[0]
            ),
            (place,),
            against=("python-package-version-mismatch",),
        )
        return
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


_CUDA_ASKED = compiled_when_used(
    r"(?i)\bCUDA (?:toolkit |runtime |version )*(?:>=|≥|at least|newer than|or later than) ?v?(\d{1,2})\.(\d{1,2})"
)
_CUDA_BUILT = compiled_when_used(r"\+cu(\d{2,3})(\d)$")


def _of_cuda(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """The CUDA that a message asks for, against the one that the installed torch is built for."""
    torch = log.setup.version_texts.get("torch", "")
    built = _CUDA_BUILT.search(torch)
    for raised in facts.chain[-1:]:
        asked = _CUDA_ASKED.search(raised.message.text[:2000])
        if built is None or asked is None:
            return
        there, wanted = tuple(map(int, built.groups())), tuple(map(int, asked.groups()))
        if there < wanted:
            yield Clue(
                translated(
                    "torch {torch} is built for CUDA {there}, and {wanted} or newer is asked for. Install a build of "
                    "torch "
                    "(and of what was compiled for it) for CUDA {wanted} or newer, or use a container that has it"
                ).format(torch=torch, there=".".join(map(str, there)), wanted=".".join(map(str, wanted))),
                (CluePlace(raised.log, raised.line),),
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
