from gonogo.hazards.facts.installed import describe_package, package_version_span
from gonogo.hazards.rule import Certainty, Environment, Field, Findings, LoggedHazard, Pattern, Run, Sign

_ILLEGAL_ACCESS_PATTERN = Pattern(r"(?:CUDA error: |^|: )an illegal memory access was encountered|^illegal memory")
_MROPE_MODEL_PATTERN = Pattern(r"(?i)qwen[-_]?3[._]?[5-8]\b|qwen3_5|qwen3\.[5-8]-")
_NCCL_PATTERN = Pattern(r"NCCL WARN|enqueue\.cc|ncclUnhandledCudaError|RTX ?(?:50\d0|PRO 6000)")
_UNRELATED_CAUSE_PATTERN = Pattern(
    r"Triton Error|NCCL WARN|RTX ?50\d0|offload|wake_up|bitsandbytes|xformers|causal_conv1d"
)


class FlashAttnMropePositionIdsTakenForPacked(LoggedHazard):
    signs = (
        Sign(says=_ILLEGAL_ACCESS_PATTERN, beside=_MROPE_MODEL_PATTERN, unless=_NCCL_PATTERN),
        Sign(says=_ILLEGAL_ACCESS_PATTERN, beside=Pattern(r"transformers==5\.[23]\b"), unless=_NCCL_PATTERN),
        Sign(
            says=_ILLEGAL_ACCESS_PATTERN,
            frames=(("flash_attn", "flash_attention"),),
            unless=_NCCL_PATTERN,
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            says=_ILLEGAL_ACCESS_PATTERN,
            outside=("vllm", "sglang"),
            beside=Pattern(r"AcceleratorError|cudaErrorIllegalAddress|transformers==5\."),
            unless=_UNRELATED_CAUSE_PATTERN,
            certainty=Certainty.POSSIBLE,
        ),
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An affected model with FlashAttention, and one of the two transformers releases."""
        model, requested = run.model, _flash_attention_request(run)
        if model is None or requested is None or not environment.within("transformers", ">=5.2,<5.4"):
            return
        if not any(_MROPE_MODEL_PATTERN.search(name) for name in (model.name, *model.architectures)):
            return
        yield self.finding(
            self.texts["cause"].format(transformers=describe_package(environment, "transformers"), model=model.name),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=(requested.span(), package_version_span(environment, "transformers")),
        )


def _flash_attention_request(run: Run) -> Field | None:
    """The setting that requests FlashAttention."""
    for name in ("attn_implementation", "attn_impl", "flash_attn"):
        field = run.arguments.get(name)
        if str(field.get("")) in ("flash_attention_2", "flash_attn", "fa2"):
            return field
    return None
