from gonogo.evidence.source_file import SourceFile
from gonogo.hazards.environment._machine import cpu_adam_needs_cuda, first_compiled_op
from gonogo.hazards.environment._surroundings import evidence_text, find_line_or_error, truncated_tracebacks
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Pattern, Run, Span, translated

_NVCC_CALL_PATTERN = Pattern(r"\binstalled_cuda_version\(|subprocess\.check_output\(\[cuda_home \+ [\"']/bin/nvcc")
"""The code in which DeepSpeed's builder looks for the toolkit; it fails there only without one."""


class CudaHomeMissing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A CUDA operator that has to be compiled without nvcc: a runtime image, or a machine without a toolkit."""
        built = first_compiled_op(run, "fused_adam", "cpu_adam") if environment.toolkit.absent else None
        if built is None or (built.name == "cpu_adam" and not cpu_adam_needs_cuda(environment)):
            return
        if environment.driver.absent and environment.gpus_known and not environment.gpus:
            return  # not a machine for training
        if any(word in source.data for source in _package_list_files(environment) for word in _NVCC_PACKAGE_MARKERS):
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(name=built.name),
            cure=(*self.cures, self.texts["cure"]),
            spans=(built.span, environment.toolkit.span(), _base_image(environment)),
            confirm=translated(
                "ds_report shows the operator as not installed: DeepSpeed was installed without DS_BUILD_OPS"
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's error, or PyTorch's when building an extension that training needs."""
        evidence = find_line_or_error(log, self.patterns["cuda_home_error"])
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence = find_line_or_error(log, self.patterns["cuda_not_found"])
            used = evidence is not None and (
                log.find(self.patterns["cuda_build"]) is not None
                or self.patterns["cuda_build"].search(evidence_text(evidence)) is not None
            )
            certainty = Certainty.LIKELY if used else Certainty.POSSIBLE
        if evidence is None:
            evidence = next(
                (error for error, code in truncated_tracebacks(log) if _NVCC_CALL_PATTERN.search(code)), None
            )
            certainty = Certainty.LIKELY
        if evidence is None:
            return
        yield self.log_finding(evidence, certainty=certainty, confirm=translated("nvcc --version fails"))


def _base_image(environment: Environment) -> Span | None:
    """The Dockerfile's base image, which determines torch and shows that there is no compiler."""
    place = environment.place("torch")
    if place is None or "runtime" not in place.text:
        return None
    return place.span(translated("an image without nvcc"))


_NVCC_PACKAGE_MARKERS = (b"cuda-nvcc", b"cuda-toolkit", b"cuda-compiler", b"cuda_12", b"DS_BUILD_")
"""What a Dockerfile may install in addition: the compiler, or a DeepSpeed with prebuilt operators."""


def _package_list_files(environment: Environment) -> tuple[SourceFile, ...]:
    """The files that list the packages."""
    places = (package.place for package in environment.packages.values())
    return tuple({place.source.path: place.source for place in places if place is not None}.values())
