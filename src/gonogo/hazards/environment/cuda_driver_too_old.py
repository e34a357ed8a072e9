from gonogo.evidence.environment.compatibility import minimum_driver
from gonogo.evidence.environment.version_range import parse_version
from gonogo.hazards.environment._gpu_refusals import find_bf16_or_tf32_refusal
from gonogo.hazards.environment._surroundings import evidence_text, find_line_or_error, is_outside_training
from gonogo.hazards.facts.installed import package_version_span
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Pattern, Run, translated

_FOUND_VERSION_PATTERN = Pattern(r"found version (\d{4,5})")


class CudaDriverTooOld(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A driver on the machine that is too old for the CUDA version of torch."""
        driver, cuda = environment.driver.string, environment.cuda.string
        oldest = minimum_driver(cuda) if cuda is not None else None
        if driver is None or cuda is None or oldest is None:
            return
        has, needs = parse_version(driver), parse_version(oldest.driver)
        if has is None or needs is None or has >= needs:
            return
        path = environment.variable("LD_LIBRARY_PATH")
        bridged = "compat" in str(path.get(""))  # libraries of the forward compatibility package for data centre GPUs
        sure = not path.unknown and not bridged
        yield self.finding(
            translated("The driver is {driver}; torch was built for CUDA {cuda}, which needs {needs} or newer.").format(
                driver=driver, cuda=cuda, needs=oldest.driver
            ),
            certainty=Certainty.CERTAIN if sure else Certainty.POSSIBLE if bridged else Certainty.LIKELY,
            spans=(package_version_span(environment, "torch"), environment.driver.span()),
            confirm=self.texts["confirm_in_environment"],
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The driver's own error, or, less certain, a compatibility error between driver and runtime."""
        if evidence := find_line_or_error(log, self.patterns["driver_too_old"]):
            number = _FOUND_VERSION_PATTERN.search(evidence_text(evidence))
            served = int(number.group(1)) if number else 0
            yield self.log_finding(
                evidence,
                translated("The driver supports CUDA {cuda}, but this PyTorch was built with a newer one.").format(
                    cuda=f"{served // 1000}.{served % 1000 // 10}"
                )
                if served
                else translated("The driver is older than the CUDA runtime that the program uses."),
                certainty=Certainty.POSSIBLE if is_outside_training(log) else Certainty.CERTAIN,
            )
        elif evidence := find_line_or_error(log, self.patterns["probable_driver_error"]):
            yield self.log_finding(
                evidence,
                certainty=Certainty.POSSIBLE
                if is_outside_training(log) or find_bf16_or_tf32_refusal(log)
                else Certainty.LIKELY,
                confirm=self.texts["confirm_in_log"],
            )
