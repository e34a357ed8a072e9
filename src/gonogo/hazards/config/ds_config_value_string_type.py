from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.hazards.config._mismatch_lines import Mismatch, mismatches, mismatches_in_log
from gonogo.hazards.config._strings_for_numbers import strings_in_config
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    FailureLog,
    Findings,
    Hazard,
    LoggedError,
    Pattern,
    RehearsalRecord,
    Run,
    Text,
)

_READS_NUMBERS = ("deepspeed/runtime/", "deepspeed/utils/", "deepspeed/ops/")
_COMPARED = Pattern(
    r"'?[<>]=?'? ?not supported between instances of "
    r"['\"](?:str['\"] and ['\"](?:int|float)|(?:int|float)['\"] and ['\"]str)\b"
)


class DsConfigValueStringType(Hazard):
    """A number in the DeepSpeed JSON is written as a string.

    ## What happens
    The Trainer says that two values mismatch, and prints the same value twice: "- ds gradient_accumulation_steps=8 vs
    hf gradient_accumulation_steps=8".

    ## Why
    The JSON has `"gradient_accumulation_steps": "8"`. The string "8" is not the number 8, and both print alike.

    ## Cure
    Take the quotes off (`8`), or write "auto".

    ## When it is safe
    "auto" is the one string that stands for a number.

    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/1116: the quoted 8, and its cure
    """

    name = "ds-config-value-string-type"
    title = Text(en="A number in the DeepSpeed JSON is a string", zh="DeepSpeed JSON 中的数字写成了字符串")

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A line of transformers' list whose two values read the same."""
        for failed in failed_ranks(record):
            alike = [line for line in mismatches(failed.failure.message) if line.alike]
            if not alike:
                continue
            yield self.finding(
                _cause(alike), cure=_cure(alike), spans=failure_places(failed.failure), ranks=failed.ranks
            )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Numbers in quotes under keys that are compared or reckoned with."""
        yield from strings_in_config(self, config, run)

    log_words = (" vs hf ", " vs arg ", "DeepSpeed config values that mismatch", "between instances of")

    def in_log(self, log: FailureLog) -> Findings:
        """A line of transformers' list whose two values mean the same."""
        found = mismatches_in_log(log)
        alike = [line for line in found[1] if line.alike] if found else []
        if found and alike:
            yield self.log_finding(found[0], _cause(alike), cure=_cure(alike))
            return
        for error in log.errors_of("TypeError", says=_COMPARED):
            if error.innermost and any(part in _place(error) for part in _READS_NUMBERS):
                yield self.log_finding(
                    error,
                    Text(
                        en="DeepSpeed compares a setting with a number, and the setting is a string: a number in "
                        'quotes, or "auto" where nothing fills it in.',
                        zh='DeepSpeed 拿某项设置与数字比较，而该设置是字符串：数字带了引号，或写了 "auto" 却无人填写。',
                    ),
                    cure=(
                        Text(
                            en="Write the number without quotes in the DeepSpeed JSON: {code}",
                            zh="在 DeepSpeed JSON 中写不带引号的数字：{code}",
                        ).format(code=error.innermost.code.strip() or error.innermost.function),
                        Text(
                            en='"auto" works only where the Trainer or accelerate.prepare fills it in',
                            zh='"auto" 仅在 Trainer 或 accelerate.prepare 会填写时可用',
                        ),
                    ),
                    certainty=Certainty.LIKELY,
                )
                return


def _place(error: LoggedError) -> str:
    """The innermost frame's path and code."""
    frame = error.innermost
    return f"{frame.path} {frame.code}".replace("\\", "/") if frame else ""


def _cause(alike: list[Mismatch]) -> Text:
    return Text(
        en="Both sides read the same and are not equal: in the DeepSpeed JSON the value is a string: {said}.",
        zh="两边的值看上去相同却不相等：DeepSpeed JSON 中的值是字符串：{said}。",
    ).format(said=", ".join(f'{line.ds_key} = "{line.ds_value}"' for line in alike))


def _cure(alike: list[Mismatch]) -> tuple[Text, ...]:
    return tuple(
        Text(
            en='Write "{key}": {value} without quotes, or "auto"', zh='写成不带引号的 "{key}": {value}，或 "auto"'
        ).format(key=line.ds_key.rpartition(".")[2], value=line.ds_value)
        for line in alike
    )
