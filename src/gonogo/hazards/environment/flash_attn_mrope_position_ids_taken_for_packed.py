from gonogo.hazards.facts.installed import describe_package, span_of
from gonogo.hazards.rule import Certainty, Environment, Field, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_ILLEGAL = Pattern(r"(?:CUDA error: |^|: )an illegal memory access was encountered|^illegal memory")
_MROPE_MODEL = Pattern(r"(?i)qwen[-_]?3[._]?[5-8]\b|qwen3_5|qwen3\.[5-8]-")
_NCCL = Pattern(r"NCCL WARN|enqueue\.cc|ncclUnhandledCudaError|RTX ?(?:50\d0|PRO 6000)")
_ELSEWHERE = Pattern(r"Triton Error|NCCL WARN|RTX ?50\d0|offload|wake_up|bitsandbytes|xformers|causal_conv1d")


class FlashAttnMropePositionIdsTakenForPacked(LoggedHazard):
    """Qwen3.5's mrope position_ids [3, batch, seq] are taken for a packed batch.
    ## What happens
    `CUDA error: an illegal memory access was encountered` at the first steps with Qwen3.5 (or another model with
    mrope) and `attn_implementation="flash_attention_2"`; with sdpa it trains.
    ## Why
    `_is_packed_sequence` of transformers 5.2 and 5.3 looks for position_ids that begin anew. Those of mrope have
    three rows, for time, height and width: `cu_seqlens` gets three times the tokens, and the kernel reads beyond
    the batch.
    ## Example
    ```python
    # wrong with transformers 5.2
    AutoModelForImageTextToText.from_pretrained("Qwen/Qwen3.5-9B", attn_implementation="flash_attention_2")
    # right, until transformers is upgraded
    AutoModelForImageTextToText.from_pretrained("Qwen/Qwen3.5-9B", attn_implementation="sdpa")
    ```
    ## Cure
    attn_implementation: sdpa (LLaMA-Factory: flash_attn: sdpa), or a transformers with pull 44911. To find another
    kernel at fault: CUDA_LAUNCH_BLOCKING=1 names the call.
    ## When it is safe
    With a transformers that has pull 44911, or with sdpa.
    ## Sources
    - https://github.com/QwenLM/Qwen3.8/issues/104: the cause
    - https://github.com/huggingface/transformers/pull/44911: the fix
    - https://github.com/hiyouga/LlamaFactory/issues/10440: Qwen3.5 with fa2 in LLaMA-Factory
    - https://github.com/OpenRLHF/OpenRLHF/issues/1194: the same in OpenRLHF
    """

    name = "flash-attn-mrope-position-ids-taken-for-packed"
    title = Text(
        "transformers takes three-dimensional position_ids for packing, and flash-attn reads out of bounds",
        "transformers 把三维 position_ids 误认为打包，flash-attn 越界读取",
    )
    log_words = ("illegal memory",)
    signs = (
        Sign(says=_ILLEGAL, beside=_MROPE_MODEL, unless=_NCCL),
        Sign(says=_ILLEGAL, beside=Pattern(r"transformers==5\.[23]\b"), unless=_NCCL),
        Sign(says=_ILLEGAL, frames=(("flash_attn", "flash_attention"),), unless=_NCCL, certainty=Certainty.POSSIBLE),
        Sign(
            says=_ILLEGAL,
            outside=("vllm", "sglang"),
            beside=Pattern(r"AcceleratorError|cudaErrorIllegalAddress|transformers==5\."),
            unless=_ELSEWHERE,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "A kernel read out of bounds. With Qwen3.5 and flash-attention, transformers 5.2 and 5.3 hand it "
        "lengths that are three times too long.",
        "某个内核越界读取。Qwen3.5 与 flash-attention 同用时，transformers 5.2 与 5.3 传给它的长度是实际的三倍。",
    )
    cures = (
        Text(
            "attn_implementation: sdpa (LLaMA-Factory: flash_attn: sdpa), or a transformers with pull 44911",
            "attn_implementation: sdpa（LLaMA-Factory：flash_attn: sdpa），或包含 pull 44911 的 transformers",
        ),
        Text(
            "To find another kernel at fault: CUDA_LAUNCH_BLOCKING=1 names the call",
            "若是其他内核的问题：CUDA_LAUNCH_BLOCKING=1 会指出所在调用",
        ),
    )
    confirm = Text('It trains with attn_implementation="sdpa"', '使用 attn_implementation="sdpa" 后可以训练')

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Such a model, flash-attention asked for, and a transformers of the two releases."""
        model, asked = run.model, _flash(run)
        if model is None or asked is None or not environment.within("transformers", ">=5.2,<5.4"):
            return
        if not any(_MROPE_MODEL.search(name) for name in (model.name, *model.architectures)):
            return
        yield self.finding(
            Text(
                "{transformers} takes the position_ids of {model} for a packed batch, and flash-attention reads out of "
                "bounds.",
                "{transformers} 把 {model} 的 position_ids 当作打包的 batch，flash-attention 会越界读取。",
            ).format(transformers=describe_package(environment, "transformers"), model=model.name),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=(asked.span(), span_of(environment, "transformers")),
        )


def _flash(run: Run) -> Field | None:
    """Where flash-attention is asked for."""
    for name in ("attn_implementation", "attn_impl", "flash_attn"):
        field = run.arguments.get(name)
        if str(field.get("")) in ("flash_attention_2", "flash_attn", "fa2"):
            return field
    return None
