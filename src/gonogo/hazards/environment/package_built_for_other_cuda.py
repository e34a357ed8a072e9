from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.installed import describe_package, span_of, together
from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign, told

_LIBRARY = r"lib(?P<library>cudart|nvrtc|cublas|cublasLt|cusparse|cufft|cusolver|nvJitLink|nccl)\.so\.(?P<major>\d+)"
_CUDA = Pattern(r"^cu(\d\d)\d+")
_OF_OTHERS = Pattern(r"(?i)flash[-_ ]?att(?:n|ention)|libbitsandbytes|import bitsandbytes")
"""What loads such a library too, and has a hazard of its own."""


class PackageBuiltForOtherCuda(LoggedHazard):
    """A compiled package needs the libraries of another CUDA release than the environment has.
    ## What happens
    "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory" from vllm, or
    "libnvrtc.so.12: cannot open shared object file", as sgl_kernel shows it under "Could not load any common_ops
    library!".
    ## Why
    A wheel is built against CUDA 12 or 13 and asks for that release's libraries by their number. torch brings those of
    its own CUDA (`nvidia-…-cu12`, or `nvidia-…` without a number for CUDA 13). A package of the other release
    beside it finds none: the default wheel of an engine moved to CUDA 13, or torch did.
    ## Example
    ```sh
    pip install vllm && pip install torch --index-url https://download.pytorch.org/whl/cu126    # wrong: vllm is for
    CUDA 13 pip install vllm --extra-index-url https://download.pytorch.org/whl/cu130                   # right: one
    CUDA for all
    ```
    ## Cure
    One CUDA for all: the package's wheel for torch's CUDA (`python -c "import torch; print(torch.version.cuda)"`), or
    the torch that the package was built beside.
    ## When it is safe
    Where the package's name or release notes say the CUDA that torch.version.cuda shows.
    ## Sources
    - https://github.com/vllm-project/vllm/issues/52300: vllm asks for CUDA 13 in an environment of CUDA 12.6
    - https://github.com/sgl-project/sglang/issues/29646: sgl_kernel of CUDA 12 beside CUDA 13
    - https://github.com/sgl-project/sglang/issues/13198: the same on a DGX Spark
    - https://github.com/kvcache-ai/ktransformers/issues/1960: a maintainer names the cause
    """

    name = "package-built-for-other-cuda"
    title = Text("A compiled package needs another CUDA release", "某个编译过的包需要另一版本的 CUDA")
    yields_to = ("flash-attn-undefined-symbol",)
    log_words = ("cannot open shared object",)
    anywhere = True
    signs = (
        Sign(Pattern(_LIBRARY + r"[.\d]*: cannot open shared object file")),
        Sign(Pattern(r"\[sgl_kernel\] CRITICAL: Could not load any common_ops"), Certainty.POSSIBLE),
    )
    cause = Text(
        "A compiled package asks for lib{library}.so.{major}, the library of CUDA {major}, and the environment has "
        "another release of CUDA.",
        "某个编译过的包需要 CUDA {major} 的 lib{library}.so.{major}，而环境中是另一版本的 CUDA。",
    )
    cures = (
        Text(
            "Install the package's wheel for torch's CUDA (python -c 'import torch; print(torch.version.cuda)'), or "
            "the torch of the CUDA that the package was built for",
            "安装该包针对 torch 的 CUDA 的 wheel（python -c 'import torch; print(torch.version.cuda)'），或安装与该包 "
            "CUDA 一致的 torch",
        ),
    )
    confirm = Text(
        "pip list | grep nvidia shows packages of the other release only (nvidia-cuda-runtime-cu12, or "
        "nvidia-cuda-runtime 13)",
        "pip list | grep nvidia 只显示另一版本的包（nvidia-cuda-runtime-cu12，或 nvidia-cuda-runtime 13）",
    )

    def sureness(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """Possible where the log speaks of a package whose own hazard tells of such a library."""
        return Certainty.POSSIBLE if told(log, _OF_OTHERS) else sign.certainty

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A package whose version names another CUDA than torch's does (``+cu130`` beside ``+cu128``)."""
        torch = environment.version("torch")
        mine = _CUDA.search(torch.local or "") if torch is not None else None
        if torch is None or mine is None:
            return
        for name in environment.packages:
            version = environment.version(name)
            local = version.local if version is not None else None
            named = _CUDA.search(local or "")
            if name == "torch" or named is None or named.group(1) == mine.group(1):
                continue
            if not together(environment, name, "torch"):
                continue
            yield self.finding(
                Text(
                    "{package} is built for CUDA {built}, and {torch} for CUDA {cuda}.",
                    "{package} 针对 CUDA {built} 构建，而 {torch} 针对 CUDA {cuda}。",
                ).format(
                    package=describe_package(environment, name),
                    built=named.group(1),
                    torch=describe_package(environment, "torch"),
                    cuda=mine.group(1),
                ),
                certainty=Certainty.LIKELY,
                cure=self.cures,
                spans=(span_of(environment, name), span_of(environment, "torch")),
                confirm=self.confirm,
            )
