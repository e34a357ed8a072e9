from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Finding,
    Findings,
    Hazard,
    Pattern,
    Run,
    Script,
    Span,
    Text,
    translated,
)
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, find_error_or_line, is_under_zero3

_INTEGERS_PATTERN = Pattern(r"[Oo]nly Tensors of floating point and complex dtype can require gradients")
_NOT_INITIALISED_PATTERN = Pattern(r"Model was not initialized with `?Zero-?3`? despite being configured")
_QUANTIZATION_FRAMES = (
    "bitsandbytes/",
    "auto_gptq/",
    "gptqmodel/",
    "awq/",
    "quantizers/",
    "peft/tuners/lora/bnb.py",
    "bnb.py",
)
_ZERO_FRAMES = (
    "partition_parameters.py",
    "partitioned_param_coordinator.py",
    "all_gather_coalesced",
    "parameter_offload.py",
)

_PACKED_QUANTIZATION_METHODS = ("gptq", "awq", "aqlm", "hqq", "bitsandbytes", "bnb")


class Zero3QuantizedModel(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """LLaMA-Factory's own checks; otherwise a model that its config.json or name shows to be quantized."""
        if config.zero_stage != 3 or run.launch is None:
            return
        named = run.arguments.model
        quantized = run.model.quantization if run.model is not None else None
        bits = run.arguments.get("quantization_bit")
        if run.framework == "llamafactory" and bits.number is not None and bits.number != 4:
            yield self._file_finding(
                run,
                translated("quantization_bit is {bits} under ZeRO-3: LLaMA-Factory supports only 4 there.").format(
                    bits=bits.number
                ),
                Certainty.CERTAIN,
                bits.span(),
            )
        elif quantized in _PACKED_QUANTIZATION_METHODS and run.model is not None:
            refuses = run.framework == "llamafactory"
            yield self._file_finding(
                run,
                self.texts["quantized_checkpoint_cause"].format(
                    model=run.model.name,
                    method=quantized,
                    refusal=translated("; LLaMA-Factory rejects it") if refuses else "",
                ),
                Certainty.CERTAIN if refuses and run.model.config is not None else Certainty.LIKELY,
                named.span(),
            )

    def in_script(self, script: Script, run: Run) -> Findings:
        """bitsandbytes in 8 bits, or in 4 bits without ``bnb_4bit_quant_storage``."""
        if run.zero_stage != 3 or not any(word in script.source.data for word in (b"load_in_8bit", b"load_in_4bit")):
            return
        for call in script.calls("transformers.BitsAndBytesConfig", "*.from_pretrained"):
            bits = 8 if call.keyword("load_in_8bit").truth else 4 if call.keyword("load_in_4bit").truth else 0
            if script.guarded_by(call.node):
                continue  # the condition may exclude it
            if not bits or (bits == 4 and (call.has_unknown_kwargs or call.has("bnb_4bit_quant_storage"))):
                continue
            yield self._file_finding(
                run,
                self.texts["loaded_in_bits_cause"].format(bits=bits),
                Certainty.LIKELY,
                (call.keyword_place(f"load_in_{bits}bit") or call.place).span(),
            )

    def _file_finding(self, run: Run, cause: Text, certainty: Certainty, span: Span | None) -> Finding:
        return self.finding(
            cause,
            certainty=certainty,
            spans=(span or stage_span(run), stage_span(run) if span else None),
            confirm=(self.texts["storage_dtype_confirm"],),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A framework's error, or a collective or a load that fails only with quantized weights."""
        on = is_under_zero3(log)
        quantized = (
            log.passes(*_QUANTIZATION_FRAMES)
            or bool(log.find(self.patterns["quantization"]))
            or log.setup.mentions(self.patterns["quantization"].text)
        )
        if evidence := find_error_or_line(log, self.patterns["zero3_incompatible"]):
            yield self._build_finding(evidence, Certainty.CERTAIN)
            return
        if evidence := find_error_or_line(log, self.patterns["several_dtypes"], "RuntimeError"):
            yield self._build_finding(evidence, Certainty.CERTAIN if quantized else Certainty.LIKELY)
            return
        if cut := find_cut_traceback(log, "deepspeed/runtime/", "get_only_unique_item"):
            yield self._build_finding(cut, Certainty.CERTAIN if quantized else Certainty.LIKELY)
            return
        if on is False:
            return
        for text, alone in (
            (_INTEGERS_PATTERN, False),
            (_NOT_INITIALISED_PATTERN, True),
            (self.patterns["collective_dtype"], False),
        ):
            evidence = find_error_or_line(log, text, "RuntimeError", "ValueError", "TypeError")
            if evidence is None:
                continue
            in_zero = isinstance(evidence, LoggedError) and evidence.passes(*_ZERO_FRAMES)
            if quantized and (on or in_zero or alone):
                yield self._build_finding(evidence, Certainty.LIKELY)
            elif alone or in_zero or (on and text is _INTEGERS_PATTERN):
                yield self._build_finding(evidence, Certainty.POSSIBLE)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(evidence, certainty=certainty, confirm=self.texts["quantization_confirm"])
