"""Names that one package uses and the installed release of another lacks; symbols from another build."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.diagnose.explanations.attributes import is_unset_own_attribute, is_wrapper_attribute
from gonogo.evidence.environment.compatibility import requirements_of_release
from gonogo.evidence.environment.version_range import parse_specifier, parse_version
from gonogo.evidence.failure.api_mismatch import ApiMismatch, find_api_mismatch, library_package
from gonogo.evidence.failure.native import cxx11_string_abi, demangled_name, is_own_symbol
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace


def version_mismatch_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Signs that packages don't fit together: a release lacks a name, requirements are unmet, a symbol is missing."""
    versions = log.setup.version_texts
    misfit = find_api_mismatch(facts, versions)
    if misfit is not None and facts.chain:
        place = CluePlace(facts.chain[-1].log, facts.chain[-1].line)
        if is_unset_own_attribute(misfit):
            yield _unset_attribute_clue(misfit, place)
        elif misfit.form != "undefined_symbol":
            yield from _package_release_clues(misfit, place)
        yield from _requirement_clues(log, misfit, place)
    yield from _cuda_version_clues(log, facts)
    for symbol in facts.native:
        if symbol.library and symbol.symbol.startswith("_Z"):
            yield _missing_symbol_clue(log, symbol.library, symbol.symbol, CluePlace(symbol.log, symbol.line))
            return


def _unset_attribute_clue(misfit: ApiMismatch, place: CluePlace) -> Clue:
    """An attribute that a package reads from its own object, so that no second package is involved."""
    return Clue(
        translated("{subject} and the code that reads its {name} both belong to {package}").format(
            subject=misfit.subject,
            name=misfit.names[0],
            package=f"{misfit.at.package} {misfit.at.release}".strip() if misfit.at else "",
        ),
        (place,),
        secondary=("python-package-version-mismatch",),
    )


def _package_release_clues(api_mismatch: ApiMismatch, place: CluePlace) -> Iterator[Clue]:
    """The releases of the two packages of which one lacks a name that the other uses."""
    if is_wrapper_attribute(api_mismatch):
        yield Clue(
            translated("{name} depends on how the model is sharded (FSDP1 or FSDP2), not on the release").format(
                name=api_mismatch.names[0]
            ),
            (place,),
            against=("python-package-version-mismatch",),
        )
        return
    if not api_mismatch.lacks or (not api_mismatch.asks and not api_mismatch.lacks_version):
        return
    lacks = f"{api_mismatch.lacks} {api_mismatch.lacks_version}".strip()
    requires = f"{api_mismatch.asks} {api_mismatch.asks_version}".strip()
    if requires:
        yield Clue(
            translated(
                "{asks} uses a name that {lacks} does not have: the two come from releases that do not fit together"
            ).format(asks=requires, lacks=lacks),
            (place,),
        )
    elif api_mismatch.lacks_version:
        yield Clue(translated("the run has {lacks} installed").format(lacks=lacks), (place,))


def _requirement_clues(log: FailureLog, api_mismatch: ApiMismatch, place: CluePlace) -> Iterator[Clue]:
    """Requirements of the calling package, by its own metadata, that the logged versions don't meet."""
    versions = log.setup.version_texts
    for package in dict.fromkeys((api_mismatch.asks, api_mismatch.lacks)):
        version = versions.get(package, "")
        for requirement in requirements_of_release(package, version) if package and version else ():
            for name, specifier in requirement.requires.items():
                there, allowed = parse_version(versions.get(name, "")), parse_specifier(specifier)
                if there is not None and allowed is not None and allowed.contains(there) is False:
                    yield Clue(
                        translated("{package} {version} requires {name}{specifier}, but {there} is installed").format(
                            package=package, version=version, name=name, specifier=specifier, there=there
                        ),
                        (place,),
                    )


_REQUIRED_CUDA_PATTERN = lazy_compile(
    r"(?i)\bCUDA (?:toolkit |runtime |version )*(?:>=|≥|at least|newer than|or later than) ?v?(\d{1,2})\.(\d{1,2})"
)
_BUILD_CUDA_PATTERN = lazy_compile(r"\+cu(\d{2,3})(\d)$")


def _cuda_version_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """The CUDA version that a message requires, compared with the one that torch is built for."""
    torch = log.setup.version_texts.get("torch", "")
    built = _BUILD_CUDA_PATTERN.search(torch)
    for raised in facts.chain[-1:]:
        requested = _REQUIRED_CUDA_PATTERN.search(raised.message.text[:2000])
        if built is None or requested is None:
            return
        there, wanted = tuple(map(int, built.groups())), tuple(map(int, requested.groups()))
        if there < wanted:
            yield Clue(
                translated(
                    "torch {torch} is built for CUDA {there}, but {wanted} or newer is required. Install a "
                    "build of torch (and of what was compiled against it) for CUDA {wanted} or newer, or use "
                    "a container that has it"
                ).format(torch=torch, there=".".join(map(str, there)), wanted=".".join(map(str, wanted))),
                (CluePlace(raised.log, raised.line),),
            )


def _missing_symbol_clue(log: FailureLog, library: str, symbol: str, place: CluePlace) -> Clue:
    """The package whose compiled library looks for a symbol that the installed torch doesn't export."""
    name = demangled_name(symbol)
    package = library_package(library)
    of_torch = name.startswith(("c10", "at::", "torch"))
    torch = log.setup.version_texts.get("torch", "")
    abi = cxx11_string_abi(symbol)
    if is_own_symbol(library, symbol):
        return Clue(
            translated(
                "{library} lacks {name}, which is one of its own functions, not torch's: it was built without the "
                "source file that defines it, or from files of two releases. Delete the built library and "
                "rebuild it; if that gives the same, it is a defect of this release of the package (its build for this "
                "device): use a later release of it, or do without what needs {library}"
            ).format(library=library.rpartition("/")[2], name=name),
            (place,),
        )
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
