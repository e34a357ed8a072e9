import math

from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.hazards.config._whole_numbers import fractions_in_config, fractions_in_script
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    FailureLog,
    Finding,
    Findings,
    Hazard,
    LoggedError,
    Pattern,
    Run,
    Script,
    Text,
)

_KEY = "stage3_prefetch_bucket_size"
_NOT_INTEGER = "Input should be a valid integer, got a number with a fractional part"
_VALUE = Pattern(r"input_value=(\d{1,15}\.\d{1,12})")
_PROSE = Pattern(rf"{_KEY}.{{0,60}}(?:\bint(?:eger)?\b|float|整数|浮点|小数)")


class DsConfigFloatPrefetchBucket(Hazard):
    """stage3_prefetch_bucket_size reaches DeepSpeed as a number with a fraction.

    ## What happens
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig,
    stage3_prefetch_bucket_size, Input should be a valid integer, got a number with a fractional part
    [type=int_from_float, input_value=15099494.4, input_type=float]".

    ## Why
    For "auto", older transformers write 0.9 x hidden_size² into the config: 15099494.4 for a hidden size of 4096.
    DeepSpeed from 0.15 on checks its config with pydantic 2, which takes no fraction for a whole number.

    ## Cure
    Write a whole number (`"stage3_prefetch_bucket_size": 15099494`) in the JSON that the run really uses, upgrade
    transformers, or install `deepspeed<0.15`.

    ## When it is safe
    With a whole number, or where the framework rounds the computed value.

    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/5252: "auto" with deepspeed 0.15.0
    - https://github.com/hustvl/Senna/issues/14: settled by deepspeed 0.14.0
    - https://github.com/huggingface/accelerate/pull/2814: the setting is made a whole number
    """

    name = "ds-config-float-prefetch-bucket"
    title = Text(en="stage3_prefetch_bucket_size is no whole number", zh="stage3_prefetch_bucket_size 不是整数")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A size with a fraction in the config, or one that an older transformers computes for "auto"."""
        yield from fractions_in_config(self, config, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """A config built in code whose size is ``0.9 * hidden_size * hidden_size``."""
        yield from fractions_in_script(self, script, run)

    log_words = (_KEY, "DeepSpeedZeroConfig", "int_from_float")

    def in_log(self, log: FailureLog) -> Findings:
        """pydantic's refusal of the value; where only a part of it is shown, the value itself tells."""
        evidence = first_match(log, "int_from_float", _NOT_INTEGER)
        if evidence is not None:
            message = matched_text(log, evidence)
            value = _VALUE.search(message)
            named = log.has(_KEY)
            if named or (value and _nine_tenths_of_a_square(float(value.group(1)))):
                yield self._found(evidence, value.group(1) if value else None, Certainty.CERTAIN)
            elif log.has("DeepSpeedZeroConfig") or "deepspeed" in message.lower():
                yield self._found(evidence, value.group(1) if value else None, Certainty.LIKELY)
            return
        if log.has("int_parsing"):  # "auto" that nobody filled in is another fault
            return
        prose = next((line for line in log.lines if _PROSE.search(line.text)), None) if log.has(_KEY) else None
        if prose is not None:
            yield self._found(prose, None, Certainty.LIKELY)
        elif bare := first_match(log, "validation error for DeepSpeedZeroConfig"):
            yield self._found(bare, None, Certainty.LIKELY if _KEY in matched_text(log, bare) else Certainty.POSSIBLE)

    def _found(self, evidence: LoggedError | LogLine, value: str | None, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            Text(
                en="DeepSpeed takes only a whole number for stage3_prefetch_bucket_size{value}; transformers "
                'computed 0.9 * hidden_size² for "auto".',
                zh='DeepSpeed 的 stage3_prefetch_bucket_size 只接受整数{value}；transformers 为 "auto" 算出的是 '
                "0.9 * hidden_size²。",
            ).format(value=Text(f", and was given {value}", f"，却得到 {value}") if value else ""),
            cure=(
                Text(
                    en='Write "stage3_prefetch_bucket_size": {value} in the DeepSpeed JSON that the run really uses',
                    zh='在实际使用的 DeepSpeed JSON 中写 "stage3_prefetch_bucket_size": {value}',
                ).format(value=int(float(value)) if value else 15000000),
                Text(
                    en='Or upgrade transformers, or pip install "deepspeed<0.15"',
                    zh='或升级 transformers，或 pip install "deepspeed<0.15"',
                ),
            ),
            certainty=certainty,
            confirm=(
                Text("The full error names stage3_prefetch_bucket_size", "完整报错中出现 stage3_prefetch_bucket_size"),
            ),
        )


def _nine_tenths_of_a_square(value: float) -> bool:
    """True for 0.9 x hidden_size², the value that transformers computes."""
    side = round(math.sqrt(value / 0.9))
    return side >= 256 and abs(0.9 * side * side - value) < 0.01
