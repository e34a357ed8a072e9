"""Where no_sync is entered under ZeRO-2 and ZeRO-3, in loops and by versions of the Trainer."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.field import whole_number
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.hazard import Hazard

_REFUSES = Text("refuses no_sync under ZeRO-2/3", "在 ZeRO-2/3 下拒绝 no_sync")
_ENTERS = Text("enters no_sync between accumulated micro-batches", "在累积的 micro-batch 之间进入 no_sync")
_STAGE = Text("gradients are partitioned", "此处切分梯度")
_UPGRADE = Text(
    'Upgrade: transformers>=4.48 and accelerate>=1.9; or pip install "deepspeed<0.16"',
    '升级：transformers>=4.48 与 accelerate>=1.9；或 pip install "deepspeed<0.16"',
)


def no_sync_of_trainer(hazard: Hazard, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
    """The Trainer of transformers 4.46 and 4.47 enters it; those before let accelerate enter it."""
    if config.zero_stage not in (2, 3) or not with_trainer(run):
        return
    environment = run.environment
    if environment.within("deepspeed", ">=0.16") is not True:
        return
    accumulation = config.get("gradient_accumulation_steps")
    steps = whole_number(accumulation if accumulation.known else run.arguments.get("gradient_accumulation_steps"))
    if steps is None or steps <= 1:
        return
    if environment.within("transformers", ">=4.46,<4.47.1"):
        enters = environment.field("transformers")
        name = "transformers"
    elif environment.within("transformers", "<4.46") and environment.within("accelerate", "<1.9"):
        enters = environment.field("accelerate")
        name = "accelerate"
    else:
        return
    deepspeed = environment.field("deepspeed")
    given = run.arguments.get("gradient_accumulation_steps")
    yield hazard.finding(
        Text(
            en="ZeRO-{stage} with {steps} accumulated micro-batches: {name} {version} enters no_sync between them, "
            "which DeepSpeed {deepspeed} (any since 0.16) refuses where ZeRO partitions the gradients.",
            zh="ZeRO-{stage} 且梯度累积 {steps} 步：{name} {version} 会在其间进入 no_sync，而 DeepSpeed {deepspeed}（自"
            " 0.16 起）在切分梯度时拒绝它。",
        ).format(
            stage=config.zero_stage, steps=steps, name=name, version=enters.get("?"), deepspeed=deepspeed.get(">=0.16")
        ),
        certainty=Certainty.CERTAIN if name == "transformers" else Certainty.LIKELY,
        cure=(_UPGRADE, Text("Or set gradient_accumulation_steps to 1", "或把 gradient_accumulation_steps 设为 1")),
        spans=(
            enters.span(_ENTERS) or config.raw("zero_optimization", "stage").span(_STAGE),
            deepspeed.span(_REFUSES),
            config.raw("zero_optimization", "stage").span(_STAGE) if enters.span() else None,
            given.span(Text("{steps} steps are accumulated", "累积 {steps} 步").format(steps=steps)),
        ),
        confirm=()
        if name == "transformers"
        else (Text("The Trainer accumulates through accelerate", "Trainer 通过 accelerate 做梯度累积"),),
    )


def no_sync_in_script(hazard: Hazard, script: Script, run: Run) -> Iterator[Finding]:
    """``engine.no_sync()``, ``accelerator.no_sync(model)`` or ``accelerator.accumulate(model)``."""
    stage = run.zero_stage
    if stage not in (2, 3) or (b"no_sync" not in script.source.data and b".accumulate(" not in script.source.data):
        return
    environment = run.environment
    refuses = environment.within("deepspeed", ">=0.16")
    if refuses is False:
        return
    deepspeed = environment.field("deepspeed")
    where = run.config.raw("zero_optimization", "stage").span(_STAGE) if run.config is not None else None
    for call in script.calls("*.no_sync", "accelerate.Accelerator.accumulate"):
        by_accelerate = call.name.startswith("accelerate.")
        kinds = script.kinds_of(call.receiver) if call.receiver is not None else ()
        engine = any(kind.startswith("deepspeed.initialize") for kind in kinds)
        if by_accelerate:
            passed = environment.within("accelerate", ">=1.9")
            if passed is not False:
                continue  # newer accelerate does nothing there; nor is it an alarm where its version is not told
            if call.method == "accumulate" and _accumulates(run) is not True:
                continue
        elif not engine:
            continue
        yield hazard.finding(
            Text(
                en="`{code}` enters no_sync under ZeRO-{stage}, which DeepSpeed{version} refuses where ZeRO partitions "
                "the gradients.",
                zh="`{code}` 在 ZeRO-{stage} 下进入 no_sync，而 DeepSpeed{version} 在切分梯度时拒绝它。",
            ).format(
                code=call.place.text.partition("\n")[0][:60],
                stage=stage,
                version=f" {deepspeed.value}" if deepspeed.known else " >= 0.16",
            ),
            certainty=Certainty.CERTAIN if refuses and engine else Certainty.LIKELY,
            cure=(
                Text(
                    "Drop it: the engine accumulates by itself, by gradient_accumulation_steps of its JSON",
                    "去掉它：引擎会按 JSON 中的 gradient_accumulation_steps 自行累积",
                ),
                _UPGRADE,
            ),
            spans=(call.place.span(), where, deepspeed.span(_REFUSES)),
            confirm=() if refuses else (Text("DeepSpeed is 0.16 or later", "DeepSpeed 为 0.16 或以上"),),
        )


def _accumulates(run: Run) -> bool | None:
    """Whether more than one micro-batch is accumulated; None where that can't be told."""
    if run.config is None:
        return None
    steps = run.config.get("gradient_accumulation_steps").number
    return steps > 1 if steps is not None else None
