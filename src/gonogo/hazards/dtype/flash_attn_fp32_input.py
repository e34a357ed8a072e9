from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.match import first_match
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.training_framework import uses_stock_training_arguments
from gonogo.hazards.facts.training_script import is_trainer, run_mentions, trained_pretrained_calls
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, LoggedError, Run, Script, translated

_UNSUPPORTED_DTYPE_MESSAGES = (
    "FlashAttention only support fp16 and bf16",
    "FlashAttention only supports fp16 and bf16",
    "FlashAttention only support fp16, bf16",
    "FlashAttention only supports fp16, bf16",
    "FlashAttention only support half",
    "Flash Attention only support fp16 and bf16",
    "Flash Attention only supports fp16 and bf16",
    "only support fp16 and bf16 data type",
    "only supports fp16 and bf16 data type",
)

# Code that lowers the precision in other ways than by arguments.
_PRECISION_LOWERING_MARKERS = (
    b"autocast",
    b".half()",
    b".bfloat16()",
    b"quantization_config",
    b"load_in_",
    b"set_default_dtype",
    b"peft",
)


class FlashAttnFp32Input(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model with FlashAttention that is loaded in fp32 and trained without autocast or DeepSpeed."""
        if b"flash_attention_2" not in script.source.data or run.uses_deepspeed:
            return
        precision = [run.arguments.get(name) for name in ("bf16", "fp16")]
        if any(field.unknown or field.truth for field in precision) or run_mentions(
            run, script, *_PRECISION_LOWERING_MARKERS
        ):
            return
        for trainer, load in trained_pretrained_calls(script):
            if load.keyword("attn_implementation").value != "flash_attention_2" or load.has_unknown_kwargs:
                continue
            if not is_trainer(trainer) or not trainer.name.startswith("transformers."):
                continue
            given = load.keyword_node("torch_dtype") or load.keyword_node("dtype")
            explicit = given is not None and script.qualified(given) == "torch.float32"
            if given is not None and not explicit:
                continue
            if not explicit and run.environment.within("transformers", "<5") is not True:
                continue  # transformers 5 loads in the checkpoint's own dtype
            keyword = "dtype" if load.passed_keyword("dtype") is not None else "torch_dtype"
            edit = script.setting_keyword(load, keyword, "torch.bfloat16")
            sure = run.uses_deepspeed is False and run.arguments.complete and uses_stock_training_arguments(run)
            place = load.keyword_place("attn_implementation")
            yield self.finding(
                self.texts["cause_in_script"].format(
                    why=translated("from the command", "explicit")
                    if explicit
                    else translated("the default when no torch_dtype is given")
                ),
                certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
                spans=(
                    place.span() if place is not None else load.place.span(),
                    trainer.script.place(trainer.node.func).span(translated("trained here")),
                ),
                fixes=self.fix(translated("Load in bf16"), edit, safe=False)
                if edit is not None and script.imports("torch")
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """flash-attn's error, or the bare assertion of its first versions."""
        evidence = first_match(log, *_UNSUPPORTED_DTYPE_MESSAGES)
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence = next(
                (
                    error
                    for error in log.errors
                    if (
                        error.type == "AssertionError"
                        and error.passes("flash_attn")
                        and error.innermost
                        and self.patterns["dtype_assertion"].search(error.innermost.code)
                    )
                    or self.patterns["dtype_assertion"].search(error.message)
                ),
                None,
            )
            certainty = Certainty.LIKELY
        if evidence is None and not log.errors:
            evidence = _find_cut_in_kernel_call(log)
        if evidence is None:
            return
        yield self.log_finding(evidence, certainty=Certainty.POSSIBLE if _is_inference_server(log) else certainty)


def _find_cut_in_kernel_call(log: FailureLog) -> LoggedError | None:
    """A truncated traceback at the kernel's call, which checks the dtype first."""
    cut = find_truncated_error(
        log, ("flash_attn", "flash_attn_cuda.fwd"), ("flash_attn", "flash_attn_gpu.fwd"), max_frames=1
    )
    return cut or find_truncated_error(
        log, ("flash_attn_interface", "_flash_attn_forward"), ("flash_attn_interface", "_varlen_forward")
    )


def _is_inference_server(log: FailureLog) -> bool:
    """True for an inference server; a script that only generates is treated like training."""
    return is_outside_training(log) and not log.passes("generation/utils.py", "in generate")
