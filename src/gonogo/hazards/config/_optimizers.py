"""Optimizers and schedulers that the scripts bring, beside those of the DeepSpeed config."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call, Script
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.how_it_trains import fix_of, with_trainer
from gonogo.hazards.hazard import Hazard

_CPU_OPTIMIZERS = ("DeepSpeedCPUAdam", "DeepSpeedCPULion", "DeepSpeedCPUAdagrad")
_OPTIMIZERS = ("torch.optim.", "bitsandbytes.optim.", "transformers.optimization.", "deepspeed.ops.")
_NAMED_OPTIMIZERS = ("transformers.AdamW", "transformers.Adafactor")
_SCHEDULERS = ("torch.optim.lr_scheduler.", "transformers.get_", "transformers.optimization.get_")
_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer", "trl.DPOTrainer")

_DEFINE_ONCE = (
    Text(
        en="Remove the block from the DeepSpeed JSON, or use accelerate.utils.DummyOptim / DummyScheduler in the code",
        zh="从 DeepSpeed JSON 中去掉该段，或在代码中使用 accelerate.utils.DummyOptim / DummyScheduler",
    ),
)


def kind_of(script: Script, node: ast.expr) -> str | None:
    """``"optimizer"`` or ``"scheduler"`` where that is what an expression holds for certain."""
    for name in script.kinds_of(node):
        if name.startswith(_SCHEDULERS):
            return "scheduler"
        if name.startswith(_OPTIMIZERS) or name in _NAMED_OPTIMIZERS:
            return "optimizer"
    return None


def optimizers_against_config(hazard: Hazard, script: Script, run: Run) -> Iterator[Finding]:
    """A second optimizer (or scheduler) from the code: accelerate and older Trainers refuse it."""
    if run.config is None or b"DummyOptim" in script.source.data:
        return
    yield from _prepared(hazard, script, run.config)
    for call in script.calls(*_TRAINERS):
        yield from _passed_to_trainer(hazard, call, run)


def _prepared(hazard: Hazard, script: Script, config: DeepSpeedConfig) -> Iterator[Finding]:
    given = {name: place for name in ("optimizer", "scheduler") if (place := config.key_place(name)) is not None}
    if not given:
        return
    for call in script.calls("accelerate.Accelerator.prepare"):
        for argument in call.node.args:
            name = kind_of(script, argument)
            if name not in given:
                continue
            yield hazard.finding(
                Text(
                    en="accelerator.prepare gets {kind} `{argument}` of the code, and the DeepSpeed config has "
                    "a block "
                    '"{name}" too: accelerate takes only one of them.',
                    zh='accelerator.prepare 得到代码中的 {kind} `{argument}`，而 DeepSpeed 配置中也有 "{name}" 段：'
                    "accelerate 只接受其中一个。",
                ).format(kind=script.kind_of(argument) or name, argument=ast.unparse(argument)[:60], name=name),
                cure=_DEFINE_ONCE,
                spans=(given[name].span(), script.place(argument).span(Text("the code's own", "代码自己的"))),
                fixes=fix_of(
                    Text('Remove "{name}" from the config', '从配置中删除 "{name}"').format(name=name),
                    lambda name=name: config.removing(name),  # type: ignore[misc]
                    safe=False,
                ),
            )


def _passed_to_trainer(hazard: Hazard, call: Call, run: Run) -> Iterator[Finding]:
    node = call.keyword_node("optimizers")
    if node is None or not run.deepspeed_on:
        return
    if not isinstance(node, ast.Tuple) or all(isinstance(one, ast.Constant) for one in node.elts):
        return
    version = run.environment.field("transformers")
    refused = run.environment.within("transformers", "<4.46")
    place = call.keyword_place("optimizers")
    spans = (
        place.span() if place else call.place.span(),
        run.config_field.span(Text("DeepSpeed is on", "启用了 DeepSpeed")),
    )
    if refused:
        yield hazard.finding(
            Text(
                en="The Trainer is given optimizers= and runs under DeepSpeed: transformers {version} (any before "
                "4.46) refuses that.",
                zh="Trainer 在 DeepSpeed 下收到 optimizers=：transformers {version}（4.46 之前的版本）会拒绝。",
            ).format(version=version.get("<4.46")),
            cure=(
                Text(
                    "Name the optimizer in the DeepSpeed JSON, or override create_optimizer, or upgrade to "
                    "transformers>=4.46",
                    "在 DeepSpeed JSON 中指定优化器，或覆写 create_optimizer，或升级到 transformers>=4.46",
                ),
            ),
            spans=(*spans, version.span()),
        )
    elif run.config is not None and (block := run.config.key_place("optimizer")) is not None:
        yield hazard.finding(
            Text(
                en='The Trainer is given optimizers=, and the DeepSpeed config has a block "optimizer": the '
                "config's "
                "is used, and the one that is passed is dropped without a word.",
                zh='Trainer 收到 optimizers=，而 DeepSpeed 配置中有 "optimizer" 段：实际使用配置中的，'
                "传入的被悄悄丢弃。",
            ),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    'Remove the block "optimizer" from the DeepSpeed JSON, or the argument optimizers=',
                    '从 DeepSpeed JSON 中去掉 "optimizer" 段，或去掉参数 optimizers=',
                ),
            ),
            spans=(block.span(), *spans),
        )


_OFFLOAD = Text("the optimizer is offloaded here", "此处把优化器卸载到 CPU")


def _offloaded(config: DeepSpeedConfig) -> bool:
    """Whether DeepSpeed updates on the CPU and insists on its own optimizer."""
    forced = config.raw("zero_force_ds_cpu_optimizer")
    return config.offload("optimizer").get() in ("cpu", "nvme") and (forced.absent or forced.truth is True)


def client_optimizer_of_trainer(hazard: Hazard, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
    """The Trainer's own AdamW under offload: before 4.30 it goes to DeepSpeed as it is, without accelerate."""
    if not _offloaded(config) or not config.raw("optimizer").absent or not with_trainer(run):
        return
    versions = run.environment
    if versions.within("transformers", "<4.30") is not True or versions.within("deepspeed", ">=0.9") is not True:
        return
    transformers = versions.field("transformers")
    offload = config.offload("optimizer")
    yield hazard.finding(
        Text(
            en="offload_optimizer is {device}, and the config names no optimizer: the Trainer of transformers "
            "{version} (any before 4.30) hands its own AdamW to DeepSpeed, which refuses it.",
            zh="offload_optimizer 为 {device}，而配置中没有 optimizer：transformers {version}（4.30 之前）的 Trainer 会"
            "把自己的 AdamW 交给 DeepSpeed，而 DeepSpeed 拒绝它。",
        ).format(device=offload.value, version=transformers.get("<4.30")),
        certainty=Certainty.LIKELY,
        cure=(
            Text(
                'Add an "optimizer" block ("type": "AdamW", values "auto") to the DeepSpeed JSON',
                '在 DeepSpeed JSON 中加入 "optimizer" 段（"type": "AdamW"，取值 "auto"）',
            ),
            Text(
                'Or upgrade transformers (>=4.30), or set "zero_force_ds_cpu_optimizer": false (slower)',
                '或升级 transformers（>=4.30），或设置 "zero_force_ds_cpu_optimizer": false（较慢）',
            ),
        ),
        spans=(offload.span(), transformers.span()),
        fixes=fix_of(
            Text('Add an "optimizer" block', '加入 "optimizer" 段'),
            lambda: config.inserting("optimizer", value=_ADAMW),
            safe=False,
        ),
        confirm=(Text("The Trainer is not given its own optimizers=", "没有给 Trainer 传入 optimizers="),),
    )


_ADAMW = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}


def client_optimizer_in_loop(hazard: Hazard, script: Script, run: Run) -> Iterator[Finding]:
    """An optimizer that the script gives to ``deepspeed.initialize``, and that is not one of DeepSpeed's."""
    config = run.config
    if config is None or not _offloaded(config):
        return
    for call in script.calls("deepspeed.initialize"):
        node = call.keyword_node("optimizer")
        kinds = script.kinds_of(node) if node is not None else ()
        if node is None or not kinds or any(name.endswith(_CPU_OPTIMIZERS) for name in kinds):
            continue
        if kind_of(script, node) != "optimizer":
            continue
        offload = config.offload("optimizer")
        yield hazard.finding(
            Text(
                en="offload_optimizer is {device}, and the script hands DeepSpeed {kind}: it takes only its own CPU "
                "optimizer there.",
                zh="offload_optimizer 为 {device}，而脚本交给 DeepSpeed 的是 {kind}：此时它只接受自己的 CPU 优化器。",
            ).format(device=offload.value, kind=kinds[0]),
            cure=(
                Text(
                    "Build deepspeed.ops.adam.DeepSpeedCPUAdam in the script, or name the optimizer in the JSON and "
                    "pass model_parameters=",
                    "在脚本中构建 deepspeed.ops.adam.DeepSpeedCPUAdam，或在 JSON 中指定优化器并传入 model_parameters=",
                ),
                Text(
                    'Or set "zero_force_ds_cpu_optimizer": false (slower), or remove offload_optimizer',
                    '或设置 "zero_force_ds_cpu_optimizer": false（较慢），或去掉 offload_optimizer',
                ),
            ),
            spans=(script.place(node).span(), offload.span(_OFFLOAD)),
        )
