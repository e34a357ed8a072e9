from gonogo.hazards.facts.installed import describe_package, package_version_span
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Finding, Findings, Pattern, Run, translated

_NCCL_VERSION_PATTERN = Pattern(r"NCCL version (\d+\.\d+\.\d+\S*)")
_BLACKWELL_PATTERN = Pattern(r"(?i)\b50[5-9]0\b|RTX ?PRO ?[2-6]000|\bG?B[23]00\b|blackwell|sm_?1[02]0|compute_120")
_OTHER_GPU_PATTERN = Pattern(r"\b(?:A100|H100|H200|H20|A800|V100|A10|L40S?|L4|T4|[34]0[6-9]0)\b")
_OLD_NCCL_PATTERN = Pattern(r"NCCL version 2\.(?:1\d|2[0-5])\.|NCCL version 2\.26\.2\+cuda12\.[0-7]")
_NEW_NCCL_PATTERN = Pattern(r"NCCL version 2\.(?:26\.[5-9]|2[7-9]|[3-9]\d)")
_NCCL_FAILURE_PATTERN = Pattern(
    r"(?:enqueue|group|init|transport)\w*\.cc:\d+ NCCL WARN (?:Cuda failure|CUDA error)|NCCL WARN Cuda failure 700"
    r"|an illegal memory access was encountered|unhandled cuda error"
)
_GROUP_CALL_FAILED_PATTERN = Pattern(r"NCCL INFO group\.cc:\d+ -> [123]\b")


class NcclTooOldForBlackwell(LoggedHazard):
    signs = (
        Sign(says=Pattern(r"ncclMaxSharedMem \d+ exceeds device/fn maxSharedMem"), beside=_OLD_NCCL_PATTERN),
        Sign(says=_NCCL_FAILURE_PATTERN, beside=_BLACKWELL_PATTERN, unless=_NEW_NCCL_PATTERN),
        Sign(
            says=_NCCL_FAILURE_PATTERN,
            beside=Pattern(r"NCCL version 2\.2(?:5\.\d|6\.2)\+cuda12\.[0-7]"),
            unless=_OTHER_GPU_PATTERN,
        ),
        Sign(says=_GROUP_CALL_FAILED_PATTERN, beside=_BLACKWELL_PATTERN, unless=_NEW_NCCL_PATTERN),
        Sign(
            says=Pattern(
                r"NCCL WARN Cuda failure (?:700|1|98)? ?'(?:an illegal memory access was encountered|invalid (?:a"
                r"rgument|device function))'"
            ),
            unless=_OTHER_GPU_PATTERN,
            certainty=Certainty.POSSIBLE,
        ),
    )

    def finding_of_sign(self, log: FailureLog, evidence: Evidence, sign: Sign, certainty: Certainty) -> Finding:
        """The finding, with NCCL's version if the log shows it."""
        version = log.find(_NCCL_VERSION_PATTERN)
        told_version = version.match.group(1) if version is not None else translated("installed here")
        return self.log_finding(
            evidence,
            self.cause.format(version=told_version),
            certainty=certainty,
            extra_evidence=(version,) if version is not None else (),
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Several Blackwell GPUs, several processes, and an NCCL that is too old for them."""
        cards = [gpu.name for gpu in environment.gpus if _BLACKWELL_PATTERN.search(gpu.name)]
        if len(cards) < 2 or run.launch is None or run.world_size == 1:
            return
        if not environment.within("nvidia-nccl-cu12", "<2.26.5") or environment.within(
            "nvidia-nccl-cu12", "==2.26.2.post1"
        ):
            return
        yield self.finding(
            translated("{count} x {card} with {nccl}: collectives of that NCCL version fail on Blackwell.").format(
                count=len(cards), card=cards[0], nccl=describe_package(environment, "nvidia-nccl-cu12")
            ),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=(package_version_span(environment, "nvidia-nccl-cu12"), run.launch.place.span()),
        )
