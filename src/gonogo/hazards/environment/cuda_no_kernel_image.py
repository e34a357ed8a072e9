from gonogo.evidence.environment.compatibility import runs_on, torch_build
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.environment._machine import capability_of
from gonogo.hazards.environment._surroundings import fails_otherwise, first, outside_training
from gonogo.hazards.facts.installed import describe_package, span_of
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Text

_NO_IMAGE = Pattern(
    r"(?i:no kernel image (?:is )?available)|NoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU"
    r"|named symbol not found at .*\.cu"
)
_WARNED = Pattern(
    r"with CUDA capability sm_\d+ is not compatible with the current PyTorch|PyTorch no longer supports this GPU"
    r"|cuda capabilit(?:y|ies) supported by this (?:library|version of PyTorch)|which is of (?:cuda|compute) capability"
    r"|CUDA capability \S+ .{0,40}not (?:supported|compatible)"
)
_CUDA_ERROR = Pattern(r"CUDA|cuda|CUBLAS|cuDNN|NCCL|kernel|sm_\d")
_UNSURE = Pattern(
    r"(?:CUDA|HIP) error: (?:invalid device function|device kernel image is invalid)|CUBLAS_STATUS_ARCH_MISMATCH"
    r"|hipErrorNoBinaryForGpu"
)
_CURE = (
    Text(
        "Install a PyTorch whose builds have this GPU's architecture: RTX 50xx and B200 need 2.7 or newer from the "
        "cu128 index; old GPUs (Pascal, Volta) need an older CUDA, such as cu118 or cu126",
        "安装包含该 GPU 架构的 PyTorch：RTX 50 系与 B200 需要 cu128 源的 2.7 及以上；旧 GPU（Pascal、Volta）需要较旧的 "
        "CUDA，如 cu118 或 cu126",
    ),
    Text(
        "If an extension's frame is the last (flash-attn, bitsandbytes, apex, your own kernel): build it for "
        "this GPU, TORCH_CUDA_ARCH_LIST set to its capability",
        "若最后一帧属于某个扩展（flash-attn、bitsandbytes、apex 或自编译的 kernel）：把 TORCH_CUDA_ARCH_LIST 设为该 "
        "GPU 的计算能力后重新编译",
    ),
)


class CudaNoKernelImage(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """The machine's cards against the architectures that this torch was built for."""
        cuda, torch = environment.cuda.string, environment.version("torch")
        build = torch_build(cuda, torch) if cuda is not None and torch is not None else None
        if build is None or not environment.gpus:
            return
        for gpu in environment.gpus:
            capability = capability_of(gpu)
            if capability is None or capability < (3, 0) or runs_on(build, capability):
                continue
            sure = bool(environment.torch) or (torch is not None and torch.local is not None)
            yield self.finding(
                Text(
                    "{gpu} has compute capability {capability}; {torch}, built for CUDA {cuda}, has kernels for "
                    "{built} only.",
                    "{gpu} 的计算能力为 {capability}；{torch}（CUDA {cuda} 版）只含 {built} 的 kernel。",
                ).format(
                    gpu=gpu.name,
                    capability=".".join(map(str, capability)),
                    torch=describe_package(environment, "torch"),
                    cuda=cuda,
                    built=", ".join(build.capabilities),
                ),
                certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
                cure=_CURE[:1],
                spans=span_of(environment, "torch"),
                confirm=()
                if sure
                else (
                    Text(
                        "torch.version.cuda is {cuda} where it runs", "运行环境中 torch.version.cuda 为 {cuda}"
                    ).format(cuda=cuda),
                ),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """CUDA's error, or PyTorch's warning where nothing else explains the failure."""
        outside = outside_training(log)
        if evidence := first(log, _NO_IMAGE):
            warned = log.find(_WARNED)
            yield self.log_finding(
                evidence,
                Text(
                    "The program has no kernels for this GPU: PyTorch, or the extension whose frame is the last, was "
                    "built for other architectures.",
                    "程序没有适用于该 GPU 的 kernel：PyTorch 或最后一帧所属的扩展是为其他架构编译的。",
                ),
                cure=_CURE,
                certainty=Certainty.POSSIBLE if outside else _certainty(log, evidence),
                also=(warned,) if warned else (),
            )
        elif evidence := first(log, _WARNED):
            otherwise = fails_otherwise(log, _CUDA_ERROR)
            yield self.log_finding(
                evidence,
                Text(
                    "PyTorch warns that its build has no kernels for this GPU.",
                    "PyTorch 警告其安装包没有适用于该 GPU 的 kernel。",
                ),
                cure=_CURE,
                certainty=Certainty.POSSIBLE if outside or otherwise else Certainty.LIKELY,
            )
        elif evidence := first(log, _UNSURE):
            yield self.log_finding(
                evidence,
                Text(
                    "A kernel was built for another architecture, or its binary is damaged.",
                    "kernel 是为其他架构编译的，或其二进制已损坏。",
                ),
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                confirm=Text(
                    "torch.cuda.get_arch_list() does not name the GPU's architecture",
                    "torch.cuda.get_arch_list() 不含该 GPU 的架构",
                ),
            )


_LATE = Pattern(r"CUDA (?:kernel )?errors might be asynchronously reported")
_OF_ANOTHER = Pattern(r"NCCL WARN|NCCL error|ncclUnhandledCudaError|undefined symbol|NCCL version mismatch")


def _certainty(log: FailureLog, evidence: LineMatch | LoggedError) -> Certainty:
    """Likely only, where CUDA may have reported late what a library before it had met."""
    at = evidence.raised.at if isinstance(evidence, LoggedError) else evidence.line
    before = {(line.path, line.number) for line in log.lines_before(at, len(log.lines))}
    met = any((found.line.path, found.line.number) in before for found in log.find_all(_OF_ANOTHER))
    return Certainty.LIKELY if met and log.says(_LATE) else Certainty.CERTAIN
