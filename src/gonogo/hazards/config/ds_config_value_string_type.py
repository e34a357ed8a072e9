from functools import partial

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.hazards.config._mismatch_lines import MismatchLine, mismatch_lines_in_log, mismatch_lines_in_message
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json, uses_accelerate, uses_trainer
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Field,
    Findings,
    Hazard,
    RehearsalRecord,
    Run,
    Severity,
    Text,
    translated,
)

_NUMBER_READING_PATHS = ("deepspeed/runtime/", "deepspeed/utils/", "deepspeed/ops/")
# DeepSpeed computes with these unconverted (runtime/config.py, _batch_assertion).
_BATCH_KEYS = (("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",))
# transformers compares these with TrainingArguments, and no string equals a number.
_NUMERIC_KEYS = (
    ("gradient_clipping",),
    ("optimizer", "params", "lr"),
    ("optimizer", "params", "eps"),
    ("optimizer", "params", "weight_decay"),
    ("scheduler", "params", "warmup_max_lr"),
    ("scheduler", "params", "total_num_steps"),
    ("scheduler", "params", "warmup_num_steps"),
)
_FLAGS = (("fp16", "enabled"), ("bf16", "enabled"))
_STAGE_KEYS = ("zero_optimization", "stage")


class DsConfigValueStringType(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A line of transformers' list with equal values."""
        for failed in failed_ranks(record):
            alike = [line for line in mismatch_lines_in_message(failed.failure.message) if line.has_equal_values]
            if not alike:
                continue
            yield self.finding(
                self._format_cause(alike),
                cure=_choose_cure(alike),
                spans=failure_places(failed.failure),
                ranks=failed.ranks,
            )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Quoted numbers under keys that are compared or computed with."""
        trainer = uses_trainer(run)
        wrong: list[tuple[tuple[str, ...], Field, object]] = [
            (keys, field, number)
            for keys in (*_BATCH_KEYS, *_NUMERIC_KEYS)
            if (number := _number_from_string(field := config.raw(*keys))) is not None
        ]
        if trainer:
            wrong += [
                (keys, field, flag)
                for keys in _FLAGS
                if (flag := _boolean_from_string(field := config.raw(*keys))) is not None
            ]
        if wrong:
            certain = trainer or any(keys in _BATCH_KEYS for keys, _, _ in wrong)
            listed = ", ".join(f"{'.'.join(keys)} = {format_json(field.value)}" for keys, field, _ in wrong)
            yield self.finding(
                translated("{count} value(s) are strings where only a number or a boolean will do: {listed}.").format(
                    count=len(wrong), listed=listed
                ),
                certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
                cure=tuple(
                    translated('Write "{key}": {value} without quotes').format(key=keys[-1], value=format_json(value))
                    for keys, _, value in wrong
                ),
                spans=tuple(field.span() for _, field, _ in wrong),
                fixes=fix_with_edits(
                    translated("Remove the quotes"),
                    *(partial(config.replacing, *keys, value=value) for keys, _, value in wrong),
                ),
            )
        stage = config.raw(*_STAGE_KEYS)
        if stage.known and stage.value == "3" and uses_accelerate(run) is not False:
            yield self.finding(
                self.texts["cause_in_config"],
                severity=Severity.WARNING,
                certainty=Certainty.LIKELY,
                cure=translated('Write "stage": 3, without quotes'),
                spans=stage.span(),
                fixes=fix_with_edits(translated("Remove the quotes"), lambda: config.replacing(*_STAGE_KEYS, value=3)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A line of transformers' list with equivalent values."""
        found = mismatch_lines_in_log(log)
        alike = [line for line in found[1] if line.has_equal_values] if found else []
        if found and alike:
            yield self.log_finding(found[0], self._format_cause(alike), cure=_choose_cure(alike))
            return
        for error in log.errors_of("TypeError", says=self.patterns["comparison_error"]):
            if error.innermost and any(part in _innermost_frame_text(error) for part in _NUMBER_READING_PATHS):
                yield self.log_finding(
                    error,
                    cure=(
                        self.texts["cure"].format(code=error.innermost.code.strip() or error.innermost.function),
                        translated('"auto" works only where the Trainer or accelerate.prepare fills it in'),
                    ),
                    certainty=Certainty.LIKELY,
                )
                return

    def _format_cause(self, string_mismatches: list[MismatchLine]) -> Text:
        return self.texts["equal_looking_cause"].format(
            listed=", ".join(f'{line.ds_key} = "{line.ds_value}"' for line in string_mismatches)
        )


def _innermost_frame_text(error: LoggedError) -> str:
    """The innermost frame's path and code."""
    frame = error.innermost
    return f"{frame.path} {frame.code}".replace("\\", "/") if frame else ""


def _choose_cure(string_mismatches: list[MismatchLine]) -> tuple[Text, ...]:
    return tuple(
        translated('Write "{key}": {value} without quotes, or "auto"').format(
            key=line.ds_key.rpartition(".")[2], value=line.ds_value
        )
        for line in string_mismatches
    )


def _number_from_string(field: Field) -> int | float | None:
    if not (field.known and isinstance(field.value, str)):
        return None
    number = field.number
    return number if number is not None and number == number and abs(number) != float("inf") else None


def _boolean_from_string(field: Field) -> bool | None:
    return field.truth if field.known and isinstance(field.value, str) else None
