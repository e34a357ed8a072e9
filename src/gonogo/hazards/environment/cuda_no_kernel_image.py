from gonogo.evidence.environment.compatibility import supports_compute_capability, torch_build
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.environment._machine import compute_capability_of
from gonogo.hazards.environment._surroundings import find_line_or_error, has_other_failure, is_outside_training
from gonogo.hazards.facts.installed import describe_package, package_version_span
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, translated

_CUDA_ERROR_PATTERN = Pattern(r"CUDA|cuda|CUBLAS|cuDNN|NCCL|kernel|sm_\d")


class CudaNoKernelImage(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """GPUs of the machine that are not among the architectures this torch was built for."""
        cuda, torch = environment.cuda.string, environment.version("torch")
        build = torch_build(cuda, torch) if cuda is not None and torch is not None else None
        if build is None or not environment.gpus:
            return
        for gpu in environment.gpus:
            capability = compute_capability_of(gpu)
            if capability is None or capability < (3, 0) or supports_compute_capability(build, capability):
                continue
            sure = bool(environment.torch) or (torch is not None and torch.local is not None)
            yield self.finding(
                self.texts["cause_in_environment"].format(
                    gpu=gpu.name,
                    capability=".".join(map(str, capability)),
                    torch=describe_package(environment, "torch"),
                    cuda=cuda,
                    built=", ".join(build.capabilities),
                ),
                certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
                cure=self.cures[:1],
                spans=package_version_span(environment, "torch"),
                confirm=translated("torch.version.cuda is {cuda} where it runs").format(cuda=cuda),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """CUDA's error, or PyTorch's warning if nothing else explains the failure."""
        outside = is_outside_training(log)
        if evidence := find_line_or_error(log, self.patterns["no_kernel_image"]):
            warned = log.find(self.patterns["unsupported_gpu_warning"])
            yield self.log_finding(
                evidence,
                certainty=Certainty.POSSIBLE if outside else _judge_certainty(log, evidence),
                extra_evidence=(warned,) if warned else (),
            )
        elif evidence := find_line_or_error(log, self.patterns["unsupported_gpu_warning"]):
            otherwise = has_other_failure(log, _CUDA_ERROR_PATTERN)
            yield self.log_finding(
                evidence,
                translated("PyTorch warns that its build has no kernels for this GPU."),
                certainty=Certainty.POSSIBLE if outside or otherwise else Certainty.LIKELY,
            )
        elif evidence := find_line_or_error(log, self.patterns["probable"]):
            yield self.log_finding(
                evidence,
                translated("A kernel was built for another architecture, or its binary is damaged."),
                confirm=translated("torch.cuda.get_arch_list() does not name the GPU's architecture"),
            )


_ASYNCHRONOUS_ERROR_PATTERN = Pattern(r"CUDA (?:kernel )?errors might be asynchronously reported")
_OTHER_ERROR_PATTERN = Pattern(r"NCCL WARN|NCCL error|ncclUnhandledCudaError|undefined symbol|NCCL version mismatch")


def _judge_certainty(log: FailureLog, evidence: LineMatch | LoggedError) -> Certainty:
    """Only likely if CUDA may be reporting late an error of an earlier library call."""
    at = evidence.raised.at if isinstance(evidence, LoggedError) else evidence.line
    before = {(line.path, line.number) for line in log.lines_before(at, len(log.lines))}
    met = any((found.line.path, found.line.number) in before for found in log.find_all(_OTHER_ERROR_PATTERN))
    return Certainty.LIKELY if met and log.says(_ASYNCHRONOUS_ERROR_PATTERN) else Certainty.CERTAIN
