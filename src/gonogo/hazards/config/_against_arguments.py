"""The DeepSpeed config against TrainingArguments, key by key, as transformers compares them."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.config.deepspeed_auto import TRANSFORMERS_DEFAULTS, Correspondence, hf_correspondences
from gonogo.evidence.config.training_arguments import Arguments
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Fix, Span, Text
from gonogo.hazards.facts.how_it_trains import as_json, fix_of, from_accelerate_yaml, with_plain_arguments, with_trainer
from gonogo.hazards.hazard import Hazard


def mismatches_in_config(hazard: Hazard, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
    """One finding that lists all the keys whose values differ."""
    if not with_trainer(run) or run.launch is None:
        return
    differing = [found for found in _compared(config, run) if found is not None]
    sure = [pair for pair in differing if _is_sure(pair[0], run)]
    # trl's classes have defaults of their own, which change from release to release.
    told = sure or ([] if any(script.imports("trl") for script in run.scripts) else differing)
    if not told:
        return
    by_yaml = from_accelerate_yaml(run)
    said = "; ".join(
        f"{'.'.join(pair.keys)}={as_json(field.value)} / {pair.argument}={as_json(pair.expected.value)}"
        for pair, field in told
    )
    yield hazard.finding(
        Text(
            en="{count} setting(s) differ (DeepSpeed config / TrainingArguments): {said}.",
            zh="有 {count} 项设置不同（DeepSpeed 配置 / TrainingArguments）：{said}。",
        ).format(count=len(told), said=said),
        certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
        cure=_YAML_CURE if by_yaml else _cure(told),
        spans=tuple(_spans(told, run.arguments)),
        fixes=_fixes_of_yaml(told, run)
        if by_yaml
        else fix_of(
            Text('Set these keys to "auto"', '把这些键设为 "auto"'),
            *(lambda keys=pair.keys: config.replacing(*keys, value="auto") for pair, _ in told),
        ),
        confirm=() if sure else (_CONFIRM,),
    )


_CONFIRM = Text(
    "The script takes transformers' TrainingArguments with its own defaults",
    "脚本使用 transformers 的 TrainingArguments 及其默认值",
)


_YAML_CURE = (
    Text(
        "Give accelerate's YAML and TrainingArguments the same values: accelerate makes the DeepSpeed config of its "
        "YAML, where mixed_precision stands for fp16.enabled and bf16.enabled",
        "让 accelerate 的 YAML 与 TrainingArguments 取值相同：accelerate 由 YAML 生成 DeepSpeed 配置，其中 "
        "mixed_precision 对应 fp16.enabled 与 bf16.enabled",
    ),
)
_YAML_KEYS = {("gradient_accumulation_steps",), ("gradient_clipping",)}


def _fixes_of_yaml(told: list[tuple[Correspondence, Field]], run: Run) -> tuple[Fix, ...]:
    """The arguments' values, written into the YAML; none where more than its own two numbers differ."""
    yaml = run.accelerate
    if yaml is None or not all(pair.keys in _YAML_KEYS for pair, _ in told):
        return ()
    return fix_of(
        Text("Write the arguments' values into the YAML", "把参数的值写入 YAML"),
        *(
            lambda pair=pair: yaml.replacing("deepspeed_config", *pair.keys, value=pair.expected.value)
            for pair, _ in told
        ),
    )


def _compared(config: DeepSpeedConfig, run: Run) -> Iterator[tuple[Correspondence, Field] | None]:
    # An argument that asks for a 16-bit type goes before mixed_precision of accelerate's YAML.
    asked = [run.arguments.get(name) for name in ("fp16", "bf16")]
    decided = from_accelerate_yaml(run) and any(field.truth is True or field.unknown for field in asked)
    # Both types on is another hazard's (ds-fp16-and-bf16-enabled).
    decided = decided or all(config.raw(name, "enabled").truth is True for name in ("fp16", "bf16"))
    world = run.launch.world_size if run.launch is not None else None
    framework = run.framework or (run.launch.framework if run.launch is not None else None)
    for pair in hf_correspondences(run.arguments, world_size=world, framework=framework):
        written = config.raw(*pair.keys)
        if not written.known or _means_the_same(written.value, pair.expected):
            continue
        if decided and pair.keys[0] in ("fp16", "bf16"):
            continue
        if pair.conflicts(written):
            yield pair, written
        elif pair.argument == "warmup_steps" and _warms_up_by_config_alone(written, run):
            yield Correspondence(pair.keys, pair.argument, pair.names, Field(0)), written


def _means_the_same(value: object, expected: Field) -> bool:
    """``"8"`` for 8: a number in quotes is another hazard's (ds-config-value-string-type)."""
    if not isinstance(value, str) or not expected.known:
        return False
    try:
        return float(value) == float(expected.value)
    except (TypeError, ValueError):
        return value.lower() == str(expected.value).lower()


def _warms_up_by_config_alone(written: Field, run: Run) -> bool:
    """A number of warm-up steps in the config, and none asked for in the arguments."""
    if not isinstance(written.value, int) or written.value < 2:
        return False
    return all(run.arguments.get(name).absent for name in ("warmup_steps", "warmup_ratio"))


def _is_sure(pair: Correspondence, run: Run) -> bool:
    """Whether the arguments' side is surely that value: given, or transformers' own default."""
    absent = [name for name in pair.names if run.arguments.get(name).absent and name in TRANSFORMERS_DEFAULTS]
    if not absent:
        return True
    if with_plain_arguments(run):
        return True
    # One of two that is given settles it where the other can't undo it: fp16 beside fp16_full_eval.
    return bool(pair.expected.value is True and len(absent) < len(pair.names))


def _cure(differing: list[tuple[Correspondence, Field]]) -> tuple[Text, ...]:
    keys = ", ".join(".".join(pair.keys) for pair, _ in differing)
    steps = [
        Text(
            en='Set {keys} to "auto" in the DeepSpeed config: TrainingArguments then decides',
            zh='在 DeepSpeed 配置中把 {keys} 设为 "auto"，由 TrainingArguments 决定',
        ).format(keys=keys)
    ]
    if any(pair.keys == ("train_batch_size",) for pair, _ in differing):
        steps.append(
            Text(
                en="train_batch_size is compared with per_device_train_batch_size * gradient_accumulation_steps * "
                "processes: check the number of processes too",
                zh="train_batch_size 与 per_device_train_batch_size * gradient_accumulation_steps * 进程数比较：也请核"
                "对进程数",
            )
        )
    return tuple(steps)


def _spans(differing: list[tuple[Correspondence, Field]], arguments: Arguments) -> Iterator[Span | None]:
    for _, field in differing:
        yield field.span()
    for name in dict.fromkeys(name for pair, _ in differing for name in pair.names):
        if arguments.has(name):
            label = Text("TrainingArguments: {name}", "TrainingArguments 的 {name}").format(name=name)
            yield arguments.get(name).span(label)
