"""Models that are prepared for DeepSpeed without an optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call, Script
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.facts.how_it_trains import trainer_calls
from gonogo.hazards.hazard import Hazard

_EVALUATED = ("ref", "teacher", "reward", "critic_eval", "frozen", "judge")
_PREPARE = "accelerate.Accelerator.prepare"
_STAGE = Text("ZeRO-{stage}, which divides optimizer states", "ZeRO-{stage}，它切分的是优化器状态")
_CURE = (
    Text(
        en='Prepare the model that is only evaluated with "zero_optimization": {"stage": 0} (or 3), or keep it '
        "out of "
        "DeepSpeed",
        zh='用 "zero_optimization": {"stage": 0}（或 3）准备只做评估的模型，或不把它交给 DeepSpeed',
    ),
    Text(
        en="If it is to be trained: give the model and its optimizer to the same prepare() or deepspeed.initialize()",
        zh="若它需要训练：在同一次 prepare() 或 deepspeed.initialize() 中传入模型和优化器",
    ),
)


def prepared_without_optimizer(hazard: Hazard, script: Script, run: Run) -> Iterator[Finding]:
    """``prepare(ref_model)`` or ``deepspeed.initialize(model=...)`` alone, or a Trainer that only evaluates."""
    stage, config = run.zero_stage, run.config
    if config is None or stage not in (1, 2):
        return
    label = _STAGE.format(stage=stage)
    where = config.raw("zero_optimization", "stage").span(label)
    if config.raw("optimizer").absent:
        for call, model in _alone(script):
            named = any(word in model.lower() for word in _EVALUATED)
            yield hazard.finding(
                Text(
                    en="`{model}` is given to DeepSpeed alone, without an optimizer, and ZeRO-{stage} requires one.",
                    zh="`{model}` 单独交给 DeepSpeed，没有优化器，而 ZeRO-{stage} 需要优化器。",
                ).format(model=model, stage=stage),
                certainty=Certainty.CERTAIN if call.name == "deepspeed.initialize" else Certainty.LIKELY,
                cure=_CURE if named else _CURE[::-1],
                spans=(call.place.span(), where),
                confirm=() if call.name == "deepspeed.initialize" else (_CONFIRM,),
            )
    yield from _only_evaluates(hazard, script, run, stage)


_CONFIRM = Text(
    "The accelerator runs with this DeepSpeed config, and the model reaches prepare() without an optimizer",
    "accelerator 使用该 DeepSpeed 配置运行，且模型未与优化器一起传入 prepare()",
)


def _alone(script: Script) -> Iterator[tuple[Call, str]]:
    for call in script.calls("deepspeed.initialize"):
        if call.has_star or call.node.args or not call.has("model") or call.has("config_class"):
            continue
        given = {"optimizer", "model_parameters"} & set(call.keywords)
        own = call.keyword_node("config") or call.keyword_node("config_params")
        named_otherwise = isinstance(own, ast.Name) and any(word in own.id.lower() for word in ("eval", "infer", "ref"))
        model = call.keyword_node("model")
        if not given and not named_otherwise and model is not None and not isinstance(own, ast.Dict):
            yield call, ast.unparse(model)[:60]
    for call in script.calls(_PREPARE):
        if len(call.node.args) != 1 or call.node.keywords:
            continue
        model = call.node.args[0]
        written = ast.unparse(model)
        name = written.rpartition(".")[2].lower()
        if isinstance(model, (ast.Name, ast.Attribute)) and any(name.startswith(word) for word in _EVALUATED):
            yield call, written[:60]


def _only_evaluates(hazard: Hazard, script: Script, run: Run, stage: int) -> Iterator[Finding]:
    """``trainer.evaluate()`` or ``predict`` in a program that never calls ``train``."""
    if next(trainer_calls(run), None) is None or any(b".train(" in one.source.data for one in run.scripts):
        return
    for call in script.calls("*.evaluate", "*.predict"):
        kinds = script.kinds_of(call.receiver) if call.receiver is not None else ()
        if not any(kind.endswith("Trainer") for kind in kinds):
            continue
        assert run.config is not None
        yield hazard.finding(
            Text(
                en="The Trainer evaluates and never trains, so there is no optimizer: under DeepSpeed that works only "
                "with ZeRO-3, and this is ZeRO-{stage}.",
                zh="Trainer 只评估、从不训练，因此没有优化器：在 DeepSpeed 下只有 ZeRO-3 支持，而此处是 ZeRO-{stage}。",
            ).format(stage=stage),
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    "Evaluate without --deepspeed, or with a ZeRO-3 config",
                    "评估时不带 --deepspeed，或使用 ZeRO-3 配置",
                ),
            ),
            spans=(call.place.span(), run.config.raw("zero_optimization", "stage").span(_STAGE.format(stage=stage))),
            confirm=(Text("No other file calls trainer.train()", "没有其他文件调用 trainer.train()"),),
        )
        return
