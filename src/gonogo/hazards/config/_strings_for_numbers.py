"""Numbers that a DeepSpeed config has in quotes, under keys where only a number will do."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.how_it_trains import as_json, fix_of, with_accelerate, with_trainer
from gonogo.hazards.hazard import Hazard

# DeepSpeed reckons with these as they are (runtime/config.py, _batch_assertion).
_RECKONED = (("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",))
# transformers compares these with TrainingArguments, and no string equals a number.
_COMPARED = (
    ("gradient_clipping",),
    ("optimizer", "params", "lr"),
    ("optimizer", "params", "eps"),
    ("optimizer", "params", "weight_decay"),
    ("scheduler", "params", "warmup_max_lr"),
    ("scheduler", "params", "total_num_steps"),
    ("scheduler", "params", "warmup_num_steps"),
)
_FLAGS = (("fp16", "enabled"), ("bf16", "enabled"))
_STAGE = ("zero_optimization", "stage")


def strings_in_config(hazard: Hazard, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
    """One finding for all the numbers that are strings, and one for a stage that is."""
    trainer = with_trainer(run)
    wrong: list[tuple[tuple[str, ...], Field, object]] = [
        (keys, field, number)
        for keys in (*_RECKONED, *_COMPARED)
        if (number := _number(field := config.raw(*keys))) is not None
    ]
    if trainer:
        wrong += [(keys, field, flag) for keys in _FLAGS if (flag := _flag(field := config.raw(*keys))) is not None]
    if wrong:
        certain = trainer or any(keys in _RECKONED for keys, _, _ in wrong)
        said = ", ".join(f"{'.'.join(keys)} = {as_json(field.value)}" for keys, field, _ in wrong)
        yield hazard.finding(
            Text(
                en="{count} value(s) are strings where only a number or a boolean will do: {said}.",
                zh="有 {count} 个值写成了字符串，而此处只能是数字或布尔值：{said}。",
            ).format(count=len(wrong), said=said),
            certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
            cure=tuple(
                Text('Write "{key}": {value} without quotes', '写成不带引号的 "{key}": {value}').format(
                    key=keys[-1], value=as_json(value)
                )
                for keys, _, value in wrong
            ),
            spans=tuple(field.span() for _, field, _ in wrong),
            fixes=fix_of(
                Text("Take the quotes off", "去掉引号"),
                *(lambda keys=keys, value=value: config.replacing(*keys, value=value) for keys, _, value in wrong),
            ),
        )
    stage = config.raw(*_STAGE)
    if stage.known and stage.value == "3" and with_accelerate(run) is not False:
        yield hazard.finding(
            Text(
                en='The stage is the string "3": DeepSpeed takes it, but transformers and accelerate compare it with '
                "the number 3, so from_pretrained does not partition, and each rank holds the whole model.",
                zh='stage 是字符串 "3"：DeepSpeed 能接受，但 transformers 与 accelerate 拿它和数字 3 比较，于是 '
                "from_pretrained 不做分片，每个 rank 都持有完整模型。",
            ),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=(Text('Write "stage": 3 without quotes', '写成不带引号的 "stage": 3'),),
            spans=(stage.span(),),
            fixes=fix_of(Text("Take the quotes off", "去掉引号"), lambda: config.replacing(*_STAGE, value=3)),
        )


def _number(field: Field) -> int | float | None:
    if not (field.known and isinstance(field.value, str)):
        return None
    number = field.number
    return number if number is not None and number == number and abs(number) != float("inf") else None


def _flag(field: Field) -> bool | None:
    return field.truth if field.known and isinstance(field.value, str) else None
