from gonogo.hazards.environment._machine import cpu_adam_needs_cuda, environment_variable, first_compiled_op
from gonogo.hazards.environment._op_build import COMPILE_ERROR_PATTERN, find_cuda_version_mismatch
from gonogo.hazards.environment._surroundings import evidence_text, find_line_or_error
from gonogo.hazards.facts.installed import package_version_span
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Pattern, Run, translated

_TOO_OLD_PATTERN = Pattern(
    r"(?:FlashAttention|flash-attn|FlashAttention-3) is only supported on CUDA (\d[\d.]*\d) and above"
)


class CudaTorchVersionMismatch(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """nvcc of another major version than torch's CUDA, if DeepSpeed compiles an operator."""
        toolkit, cuda = environment.toolkit.string, environment.cuda.string
        if toolkit is None or cuda is None or toolkit.split(".")[0] == cuda.split(".")[0]:
            return
        built = first_compiled_op(run, "cpu_adam", "fused_adam")
        if built is None or str(environment_variable(environment, run, "DS_SKIP_CUDA_CHECK").get("0")) == "1":
            return
        # CPUAdam is checked at JIT compilation; other operators only when they are prebuilt.
        checked = cpu_adam_needs_cuda(environment) if built.name == "cpu_adam" else None
        if checked is False:
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(toolkit=toolkit, cuda=cuda, name=built.name),
            certainty=Certainty.LIKELY if checked else Certainty.POSSIBLE,
            spans=(built.span, package_version_span(environment, "torch"), environment.toolkit.span()),
            confirm=translated("ds_report shows {name} as not installed, so it is compiled when the run starts").format(
                name=built.name
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The error; only possible if there is also a compiler error."""
        evidence = find_cuda_version_mismatch(log) or find_line_or_error(log, self.patterns["other_mismatch"])
        if evidence is None:
            yield from self._findings_in_flash_attn_build(log)
            return
        found = self.patterns["cuda_versions"].search(evidence_text(evidence))
        two = [group for group in found.groups() if group] if found else []
        compiled = find_line_or_error(log, COMPILE_ERROR_PATTERN) is not None
        yield self.log_finding(
            evidence,
            self.texts["toolkit_cause"].format(toolkit=two[0], torch=two[1])
            if len(two) == 2
            else self.texts["rebuilt_extension_cause"],
            certainty=Certainty.POSSIBLE if compiled else Certainty.CERTAIN,
            confirm=self.texts["confirm_in_log"],
        )

    def _findings_in_flash_attn_build(self, log: FailureLog) -> Findings:
        """flash-attn's build, which asks nvcc for its version: often a distribution's old one is first in PATH."""
        if (evidence := find_line_or_error(log, _TOO_OLD_PATTERN)) and (
            found := _TOO_OLD_PATTERN.search(evidence_text(evidence))
        ):
            yield self.log_finding(
                evidence,
                self.texts["flash_attn_cause"].format(floor=str(found.group(1))),
                cure=self.cures[:1],
                confirm=self.texts["flash_attn_confirm"],
            )
