from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.hazards.rule import Environment, Findings, Hazard, Run, translated


class RequirementPinnedTwice(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Two lines of one requirements file that pin different exact versions without markers."""
        sources: dict[str, SourceFile] = {}
        for package in environment.packages.values():
            if package.place is not None and package.written == "requirement":
                sources.setdefault(package.place.source.path, package.place.source)
        for source in sources.values():
            if source.path.endswith((".txt", ".in")):
                yield from self._pinned_twice_findings(source)

    def _pinned_twice_findings(self, source: SourceFile) -> Findings:
        pinned: dict[str, list[tuple[str, Place]]] = {}
        for match in _PINNED_PATTERN.finditer(source.data.decode("latin-1")):
            place = source.place(match.start(1), match.end(2))
            pinned.setdefault(canonical_package_name(match[1]), []).append((match[2], place))
        for name, found in pinned.items():
            versions = list(dict.fromkeys(version for version, _ in found))
            if len(versions) < 2:
                continue
            yield self.finding(
                translated("{name} is pinned to {versions} in one file: pip refuses to install it.").format(
                    name=name, versions=", ".join(versions)
                ),
                cure=translated("Keep one of the lines, such as {name}=={last}").format(name=name, last=versions[-1]),
                spans=tuple(place.span() for _, place in reversed(found)),
            )


_PINNED_PATTERN = lazy_compile(
    r"(?m)^[ \t]*([A-Za-z0-9][\w.-]*[A-Za-z0-9])(?:\[[^\]\n]*\])?[ \t]*==[ \t]*([\w.!+-]+)[ \t]*(?:#[^\n]*)?\r?$"
)
