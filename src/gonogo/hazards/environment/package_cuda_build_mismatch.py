from gonogo.hazards.facts.installed import come_from_one_source, describe_package, package_version_span
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign, log_mentions
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Pattern, Run, translated

_CUDA_TAG_PATTERN = Pattern(r"^cu(\d\d)\d+")
_OTHER_PACKAGES_PATTERN = Pattern(r"(?i)flash[-_ ]?att(?:n|ention)|libbitsandbytes|import bitsandbytes")
"""Packages that load such a library too, but have a hazard of their own."""


class PackageCudaBuildMismatch(LoggedHazard):
    def certainty_for(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """Possible if the log mentions a package with a hazard of its own for such a library."""
        return Certainty.POSSIBLE if log_mentions(log, _OTHER_PACKAGES_PATTERN) else sign.certainty

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A package built for another CUDA than torch, according to its version (``+cu130`` and ``+cu128``)."""
        torch = environment.version("torch")
        mine = _CUDA_TAG_PATTERN.search(torch.local or "") if torch is not None else None
        if torch is None or mine is None:
            return
        for name in environment.packages:
            version = environment.version(name)
            local = version.local if version is not None else None
            named = _CUDA_TAG_PATTERN.search(local or "")
            if name == "torch" or named is None or named.group(1) == mine.group(1):
                continue
            if not come_from_one_source(environment, name, "torch"):
                continue
            yield self.finding(
                translated("{package} is built for CUDA {built}, but {torch} for CUDA {cuda}.").format(
                    package=describe_package(environment, name),
                    built=named.group(1),
                    torch=describe_package(environment, "torch"),
                    cuda=mine.group(1),
                ),
                certainty=Certainty.LIKELY,
                spans=(package_version_span(environment, name), package_version_span(environment, "torch")),
            )
