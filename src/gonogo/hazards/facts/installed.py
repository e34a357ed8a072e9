"""Package versions from files and machines, as findings print them, and whether they belong together."""

from collections.abc import Iterable, Iterator

from gonogo.evidence.environment.compatibility import KnownBug
from gonogo.evidence.environment.environment import Environment, Package
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Fix, Span, Text, translated
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.hazard import Hazard

_INSTALL_VERSION = translated("Install {name}{specifier}")


def describe_package(environment: Environment, name: str) -> str:
    """A package and what is known of its version: ``deepspeed 0.14.2``, ``deepspeed>=0.14``, or its name alone."""
    package = environment.packages.get(canonical_package_name(name))
    if package is None:
        return name
    exact = package.version_text
    return f"{name} {exact}" if exact else f"{name}{package.specifier}"


def package_version_span(environment: Environment, name: str, label: Text | None = None) -> Span | None:
    """The place of a package's version; None if no file has it."""
    place = environment.place(name)
    return place.span(label) if place is not None else None


def come_from_one_source(environment: Environment, *names: str) -> bool:
    """Whether those packages come from one kind of source: all from files, or all from the Python that runs gonogo.

    A version pinned by a file says nothing about packages installed in this Python.
    """
    packages = [environment.packages.get(canonical_package_name(name)) for name in names]
    return (
        None not in packages
        and len({_is_declared_in_file(package) for package in packages if package is not None}) == 1
    )


def are_declared_in_files(environment: Environment, *names: str) -> bool:
    """Whether files specify all those packages."""
    packages = [environment.packages.get(canonical_package_name(name)) for name in names]
    return all(package is not None and _is_declared_in_file(package) for package in packages)


def _is_declared_in_file(package: Package) -> bool:
    from gonogo.evidence.environment.this_machine import interpreter_description

    return package.place is not None or package.source != interpreter_description()


def is_complete_training_environment(environment: Environment) -> bool:
    """Whether the packages are a complete training environment: torch and something built on it."""
    names = ("transformers", "accelerate", "deepspeed", "lightning", "ms-swift", "trl")
    return environment.complete and environment.has("torch") is True and any(map(environment.has, names))


def is_environment_only(run: Run) -> bool:
    """Whether an environment is checked by itself, without a run."""
    return run.launch is None and run.config is None and not run.scripts


def certainty_of_package_versions(environment: Environment, run: Run, *names: str) -> Certainty:
    """How certain it is that a run will have these packages: certain if a file of the project specifies them.

    This Python's packages are certain if it is itself being checked (``gonogo env``); otherwise the run may use
    another Python.
    """
    asked_about = is_environment_only(run) and not any(map(_is_declared_in_file, environment.packages.values()))
    packages = (environment.packages.get(canonical_package_name(name)) for name in names)
    if any(package is not None and package.is_added_by_gonogo for package in packages):
        return Certainty.LIKELY
    return Certainty.CERTAIN if asked_about or are_declared_in_files(environment, *names) else Certainty.LIKELY


def pip_install(name: str, specifier: str) -> Text:
    """The cure that installs those versions of a package."""
    return Text(f'pip install "{name}{specifier}"', f'执行 pip install "{name}{specifier}"')


def version_fixes(environment: Environment, name: str, specifier: str) -> tuple[Fix, ...]:
    """The fix that changes a package's version in the file that pins it; none if that can't be done."""
    edit = environment.replacing_version(name, specifier)
    if edit is None:
        return ()
    return (Hazard.fix(_INSTALL_VERSION.format(name=name, specifier=specifier), edit, safe=False),)


def known_bad_version_findings(
    hazard: Hazard, rows: Iterable[KnownBug], environment: Environment, run: Run
) -> Iterator[Finding]:
    """One finding per known defect whose package, and all packages it depends on, are certainly present."""
    for row in rows:
        names = (row.package, *row.beside)
        if not come_from_one_source(environment, *names) or environment.within(row.package, row.versions) is not True:
            continue
        if not all(environment.within(name, versions) for name, versions in row.beside.items()):
            continue
        sure = row.when == "import" or uses_trainer(run)
        cure = next(iter(row.cure.items()))
        others = [describe_package(environment, name) for name in row.beside]
        yield hazard.finding(
            translated("{package} is not compatible with {others}: {text}.").format(
                package=describe_package(environment, row.package),
                others=Text(" and ".join(others), "、".join(others)),
                text=row.effect_text,
            ),
            certainty=certainty_of_package_versions(environment, run, *names) if sure else Certainty.LIKELY,
            cure=pip_install(*cure),
            spans=tuple(
                package_version_span(environment, name) for name in sorted(names, key=lambda name: name != cure[0])
            ),
            fixes=version_fixes(environment, *cure),
        )
