from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.installed import describe_package, span_of
from gonogo.hazards.rule import Certainty, Environment, Finding, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign

_VERSION = Pattern(r"NCCL version (\d+\.\d+\.\d+\S*)")
_BLACKWELL = Pattern(r"(?i)\b50[5-9]0\b|RTX ?PRO ?[2-6]000|\bG?B[23]00\b|blackwell|sm_?1[02]0|compute_120")
_OTHER_GPU = Pattern(r"\b(?:A100|H100|H200|H20|A800|V100|A10|L40S?|L4|T4|[34]0[6-9]0)\b")
_OLD_NCCL = Pattern(r"NCCL version 2\.(?:1\d|2[0-5])\.|NCCL version 2\.26\.2\+cuda12\.[0-7]")
_NEW_NCCL = Pattern(r"NCCL version 2\.(?:26\.[5-9]|2[7-9]|[3-9]\d)")
_FAILED = Pattern(
    r"(?:enqueue|group|init|transport)\w*\.cc:\d+ NCCL WARN (?:Cuda failure|CUDA error)|NCCL WARN Cuda failure 700"
    r"|an illegal memory access was encountered|unhandled cuda error"
)
_ENDED = Pattern(r"NCCL INFO group\.cc:\d+ -> [123]\b")


class NcclTooOldForBlackwell(LoggedHazard):
    """RTX 50, RTX PRO 6000 Blackwell or B200 and an NCCL before 2.26.5.
    ## What happens
    `enqueue.cc:1556 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'`, `ncclMaxSharedMem 82240
    exceeds device/fn maxSharedMem 79856`, `unhandled cuda error` or a hang at the first larger collective, in DDP,
    FSDP, DeepSpeed and DataParallel alike; each GPU alone works.
    ## Why
    These GPUs have less shared memory a block than NCCL 2.25 and 2.26.2 (built for CUDA 12.2) reckon with.
    2.26.2.post1, 2.26.5 and later are built with CUDA 12.8 and know them.
    ## Example
    ```sh
    pip install torch==2.7.0           # wrong on 2 x RTX 5090: it brings NCCL 2.26.2
    pip install -U nvidia-nccl-cu12    # right, after it
    ```
    ## Cure
    pip install -U nvidia-nccl-cu12 (2.26.5 or newer; with CUDA 13: nvidia-nccl-cu13), or a newer torch. Until then:
    one GPU, or NCCL_P2P_DISABLE=1, which helps some.
    ## When it is safe
    On one GPU, or with NCCL 2.26.5 and newer.
    ## Sources
    - https://github.com/NVIDIA/nccl/issues/1637: two RTX 5090; fixed in 2.26
    - https://github.com/pytorch/pytorch/issues/150734: DDP, FSDP and DeepSpeed on four
    - https://github.com/ultralytics/ultralytics/issues/19987: the illegal access, and the upgrade that cures it
    - https://github.com/NVIDIA/nccl/issues/2418: RTX PRO 6000: 2.26.2 fails, 2.31.2 does not
    """

    name = "nccl-too-old-for-blackwell"
    title = Text(
        "The NCCL that torch brings is too old for Blackwell with several GPUs",
        "torch 自带的 NCCL 对多卡 Blackwell 来说太旧",
    )
    log_words = ("enqueue.cc", "ncclMaxSharedMem", "NCCL INFO group.cc", "NCCL version 2.2")
    ends_at = (
        ("torch/nn/parallel/replicate.py", "_broadcast_coalesced"),
        ("torch/nn/parallel/_functions.py", "comm.broadcast_coalesced"),
        ("torch/nn/parallel/comm.py", "_broadcast_coalesced"),
    )
    traces = ("ncclUnhandledCudaError: Call to CUDA function failed", "tensor_copies = Broadcast")
    signs = (
        Sign(says=Pattern(r"ncclMaxSharedMem \d+ exceeds device/fn maxSharedMem"), beside=_OLD_NCCL),
        Sign(says=_FAILED, beside=_BLACKWELL, unless=_NEW_NCCL),
        Sign(says=_FAILED, beside=Pattern(r"NCCL version 2\.2(?:5\.\d|6\.2)\+cuda12\.[0-7]"), unless=_OTHER_GPU),
        Sign(says=_ENDED, beside=_BLACKWELL, unless=_NEW_NCCL),
        Sign(
            says=Pattern(
                r"NCCL WARN Cuda failure (?:700|1|98)? ?'(?:an illegal memory access was encountered|invalid (?:a"
                r"rgument|device function))'"
            ),
            unless=_OTHER_GPU,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "NCCL {version} fails in a kernel or at launch on these GPUs (Blackwell), which it was not built for.",
        "NCCL {version} 在这些 GPU（Blackwell）上的内核或启动失败：它不是为其构建的。",
    )
    cures = (
        Text(
            "pip install -U nvidia-nccl-cu12 (2.26.5 or newer; with CUDA 13: nvidia-nccl-cu13), or a newer torch",
            "执行 pip install -U nvidia-nccl-cu12（2.26.5 或更新；CUDA 13：nvidia-nccl-cu13），或使用更新的 torch",
        ),
        Text(
            "Until then: one GPU, or NCCL_P2P_DISABLE=1, which helps some",
            "在此之前：单卡，或设 NCCL_P2P_DISABLE=1（对部分机器有效）",
        ),
    )
    confirm = Text(
        'python -c "import torch; print(torch.cuda.nccl.version())" is below 2.26.5 on RTX 50 or B200',
        '在 RTX 50 或 B200 上 python -c "import torch; print(torch.cuda.nccl.version())" 低于 2.26.5',
    )

    def shown(self, log: FailureLog, evidence: Evidence, sign: Sign, certainty: Certainty) -> Finding:
        """The finding, with the version of NCCL where the log tells it."""
        version = log.find(_VERSION)
        told_version = version.match.group(1) if version is not None else Text("here", "（此处）")
        return self.log_finding(
            evidence,
            self.cause.format(version=told_version),
            cure=self.cures,
            certainty=certainty,
            also=(version,) if version is not None else (),
            confirm=self.confirm,
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Several such GPUs, several processes, and an older NCCL."""
        cards = [gpu.name for gpu in environment.gpus if _BLACKWELL.search(gpu.name)]
        if len(cards) < 2 or run.launch is None or run.world_size == 1:
            return
        if not environment.within("nvidia-nccl-cu12", "<2.26.5") or environment.within(
            "nvidia-nccl-cu12", "==2.26.2.post1"
        ):
            return
        yield self.finding(
            Text(
                "{count} x {card} with {nccl}: collectives of that NCCL fail on Blackwell.",
                "{count} 张 {card}，搭配 {nccl}：该 NCCL 的集合通信在 Blackwell 上会失败。",
            ).format(count=len(cards), card=cards[0], nccl=describe_package(environment, "nvidia-nccl-cu12")),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=(span_of(environment, "nvidia-nccl-cu12"), run.launch.place.span()),
        )
