from functools import partial

from gonogo.hazards.facts.deepspeed_settings import config_span, dotted_key
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated

_SHORT_DTYPE_NAMES = ("fp16", "bf16", "fp32")
_SHORT_NAMES_BY_DTYPE = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32"}
_TORCH_DTYPE_NAMES = frozenset(
    {*_SHORT_NAMES_BY_DTYPE, *(f"torch.{name}" for name in _SHORT_NAMES_BY_DTYPE), "int8", "torch.int8"}
)


class DsConfigUnknownDtype(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Dtype names that are not among the allowed values of their key."""
        for keys in (
            ("communication_data_type",),
            ("seq_parallel_communication_data_type",),
            ("data_types", "grad_accum_dtype"),
        ):
            field = config.raw(*keys)
            if not field.known or field.value in (None, "auto"):
                continue
            written = str(field.value).lower()
            if written in _SHORT_DTYPE_NAMES or (keys[0] == "data_types" and str(field.value) in _TORCH_DTYPE_NAMES):
                continue
            short = _SHORT_NAMES_BY_DTYPE.get(written.removeprefix("torch."))
            yield self.finding(
                translated('"{key}" is {value}; DeepSpeed accepts only {known} there, and stops.').format(
                    key=dotted_key(keys), value=format_json(field.value), known=", ".join(_SHORT_DTYPE_NAMES)
                ),
                cure=(
                    translated('Use "{short}" instead').format(short=short)
                    if short
                    else translated("Use one of {known} instead").format(known=", ".join(_SHORT_DTYPE_NAMES))
                ),
                spans=config_span(config, *keys),
                fixes=fix_with_edits(
                    translated("use {short} instead").format(short=short), partial(config.replacing, *keys, value=short)
                )
                if short
                else (),
            )
