from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_UNKNOWN = Pattern(r"ptxas\S* fatal\s*: Value '(?P<arch>sm_\w+)' is not defined for option")


class TritonPtxasTooOldForGpu(LoggedHazard):
    """A new GPU (GB10, Thor, B300) and a triton whose assembler is older.
    ## What happens
    `ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'`, in a `PTXASError` or below
    torch.compile, although torch itself runs on the GPU.
    ## Why
    triton compiles with the ptxas in its own wheel, whatever CUDA toolkit is installed. It names the architecture
    of the GPU, which that ptxas was not taught yet.
    ## Example
    ```sh
    python train.py                                               # wrong on a DGX Spark with triton 3.5
    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas python train.py   # right, with CUDA 13
    ```
    ## Cure
    export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas of a CUDA toolkit that knows the GPU (13.0 or newer for
    sm_11x and sm_12x). Or a newer torch with its triton.
    ## When it is safe
    With a triton of the same time as the GPU, or TRITON_PTXAS_PATH.
    ## Sources
    - https://github.com/triton-lang/triton/issues/8539: sm_121a on DGX Spark, and TRITON_PTXAS_PATH
    - https://github.com/gpustack/gpustack/issues/4372: GB10
    - https://github.com/triton-inference-server/server/issues/8632: sm_110a on Jetson Thor, below torch.compile
    - https://github.com/triton-lang/triton/issues/8096: Thor
    """

    name = "triton-ptxas-too-old-for-gpu"
    title = Text("The ptxas that triton brings does not know this GPU", "triton 自带的 ptxas 不认识这张 GPU")
    log_words = ("is not defined for option 'gpu-name'", "PTXASError", "PTXAS error")
    traces = ("nvidia/bin/ptxas -lineinfo",)
    anywhere = True
    signs = (
        Sign(
            says=_UNKNOWN,
            beside=Pattern(r"PTXASError|PTXAS error|ptxas-blackwell|triton/backends|_inductor"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=_UNKNOWN, unless=Pattern(r"\bnvcc\b|ninja|cpp_extension|\.cu\b|cicc")),
        Sign(
            says=Pattern(r"(?:PTXAS error|PTXASError)"),
            beside=Pattern(r"--gpu-name=sm_1[0-3]\d|GB10|Thor|B300"),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text("triton's own ptxas does not know the architecture {arch}.", "triton 自带的 ptxas 不认识架构 {arch}。")
    cures = (
        Text(
            "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas of a CUDA toolkit that knows the GPU (13.0 "
            "or newer for sm_11x and sm_12x)",
            "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas，取自认识该 GPU 的 CUDA 工具包（sm_11x、"
            "sm_12x 需要 13.0 或更新）",
        ),
        Text("Or a newer torch with its triton", "或使用更新的 torch 及其 triton"),
    )
    confirm = Text(
        "ptxas --list-gpu-arch of triton's own does not name it", "triton 自带 ptxas 的 --list-gpu-arch 中没有该架构"
    )

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the architecture that is named."""
        named = match.groupdict().get("arch") if match is not None else None
        return self.cause.format(arch=named or Text("of this GPU", "（该 GPU）"))
