from gonogo.hazards.facts.installed import come_from_one_source, describe_package, package_version_span
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign, match_in_evidence
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Pattern, Run, translated

_TORCH_BUILD_PATTERN = Pattern(r"(?:torch|pt)\.?(\d+)\.?(\d+)")
_PACKAGES_OF_OTHER_HAZARDS = ("flash-attn", "torchvision", "torchaudio", "xformers", "triton")


class CompiledExtensionTorchMismatch(LoggedHazard):
    def certainty_for(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """None for torch's own libraries and for those with hazards of their own."""
        match = match_in_evidence(sign.says, evidence)
        return None if match is None or self.patterns["other_libraries"].search(match.group(0)) else sign.certainty

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A wheel built for another torch than the installed one (``2.2.4+cu12torch2.5cxx11abiFALSE``)."""
        torch = environment.version("torch")
        if torch is None:
            return
        for name in environment.packages:
            version = environment.version(name)
            if (
                name in _PACKAGES_OF_OTHER_HAZARDS
                or version is None
                or version.local is None
                or not come_from_one_source(environment, name, "torch")
            ):
                continue
            named = _TORCH_BUILD_PATTERN.search(version.local)
            if named is None or named.groups() == tuple(map(str, torch.release[:2])):
                continue
            yield self.finding(
                translated("{package} was built for torch {built}, but is used with {torch}.").format(
                    package=describe_package(environment, name),
                    built=".".join(map(str, named.groups())),
                    torch=describe_package(environment, "torch"),
                ),
                certainty=Certainty.LIKELY,
                spans=(package_version_span(environment, name), package_version_span(environment, "torch")),
            )
