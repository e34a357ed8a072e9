from gonogo.evidence.environment.compatibility import bitsandbytes_cuda_versions
from gonogo.hazards.environment._bitsandbytes import bitsandbytes_request
from gonogo.hazards.environment._surroundings import find_line_or_error, has_other_failure
from gonogo.hazards.facts.installed import come_from_one_source, is_environment_only, package_version_span
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Pattern, Run, Severity, translated

_BITSANDBYTES_PATTERN = Pattern(r"bitsandbytes|cget_col_row|cquantize|str2optimizer")


class BitsandbytesCpuLibrary(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A bitsandbytes without a library for torch's CUDA version, if the run needs it."""
        version, cuda = environment.version("bitsandbytes"), environment.cuda.string
        if version is None or cuda is None or not come_from_one_source(environment, "bitsandbytes", "torch"):
            return
        use = bitsandbytes_request(run)
        if use is None and not is_environment_only(run):
            return
        known = bitsandbytes_cuda_versions(version)
        minor = ".".join(cuda.split(".")[:2])
        if known is None or minor in known[0]:
            return
        yield self.finding(
            self.texts["cause"].format(version=version, built=", ".join(known[0]), cuda=minor),
            severity=Severity.ERROR if use is not None else Severity.WARNING,
            cure=self.cures[:1],
            spans=(
                package_version_span(environment, "bitsandbytes"),
                package_version_span(environment, "torch", translated("CUDA {cuda}").format(cuda=minor)),
                use.span() if use is not None else None,
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A call into the CPU library; a mere sign that it was loaded counts only if nothing else failed."""
        evidence = find_line_or_error(log, self.patterns["library_load_failure"])
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence = find_line_or_error(log, self.patterns["cpu_library_loaded"])
            if evidence is None or has_other_failure(log, _BITSANDBYTES_PATTERN):
                return
            certainty = Certainty.LIKELY
        yield self.log_finding(
            evidence,
            translated("bitsandbytes runs with its CPU library: it found no CUDA library that fits this machine."),
            certainty=certainty,
        )
