"""Sizes in a ZeRO config that DeepSpeed wants as whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.how_it_trains import fix_of, with_trainer
from gonogo.hazards.hazard import Hazard

_PREFETCH = "stage3_prefetch_bucket_size"
_SIZES = (
    *(_PREFETCH, "stage3_param_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance"),
    *("reduce_bucket_size", "allgather_bucket_size", "sub_group_size"),
)
_SINCE = Text("DeepSpeed 0.15 and later take no fraction here", "DeepSpeed 0.15 及以上在此不接受小数")


def fractions_in_config(hazard: Hazard, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
    """A number with a fraction, or an "auto" for which this transformers computes one."""
    checked = run.environment.within("deepspeed", ">=0.15")
    if checked is False:
        return
    for name in _SIZES:
        field = config.raw("zero_optimization", name)
        value = field.value if field.known else None
        if not isinstance(value, float) or not abs(value) < 1e18 or value == int(value):
            continue
        keys = ("zero_optimization", name)
        yield hazard.finding(
            Text(
                en="{name} is {value}: DeepSpeed since 0.15 takes only a whole number.",
                zh="{name} 为 {value}：DeepSpeed 自 0.15 起只接受整数。",
            ).format(name=name, value=value),
            certainty=Certainty.CERTAIN if checked else Certainty.LIKELY,
            cure=(
                Text("Write {whole}, without a fraction", "写成不带小数的 {whole}").format(whole=int(value)),
                Text('Or pip install "deepspeed<0.15"', '或 pip install "deepspeed<0.15"'),
            ),
            spans=(field.span(), run.environment.field("deepspeed").span(_SINCE)),
            fixes=fix_of(
                Text("Round it down to {whole}", "向下取整为 {whole}").format(whole=int(value)),
                lambda keys=keys, value=value: config.replacing(*keys, value=int(value)),  # type: ignore[misc]
            ),
            confirm=(Text("DeepSpeed is 0.15 or later", "DeepSpeed 为 0.15 或以上"),) if not checked else (),
        )
    if checked and config.zero_stage == 3 and with_trainer(run) is not False:
        yield from _computed(hazard, config, run)


def _computed(hazard: Hazard, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
    """transformers before 4.44 computes 0.9 * hidden_size², which is whole only for some sizes."""
    if not config.is_auto("zero_optimization", _PREFETCH) or not run.environment.within("transformers", "<4.44"):
        return
    hidden = run.model.hidden_size if run.model is not None else None
    if hidden is not None and hidden % 10 == 0:
        return
    field = config.raw("zero_optimization", _PREFETCH)
    value = 0.9 * hidden * hidden if hidden is not None else None
    whole = int(value) if value is not None else 15_000_000
    versions = [run.environment.field(name) for name in ("transformers", "deepspeed")]
    yield hazard.finding(
        Text(
            en='transformers {version} fills in "auto" with 0.9 * hidden_size²{value}, and DeepSpeed since '
            "0.15 takes "
            "only a whole number.",
            zh='transformers {version} 用 0.9 * hidden_size² 填充 "auto"{value}，而 DeepSpeed 自 0.15 起只接受整数。',
        ).format(version=versions[0].get("<4.44"), value=f" = {value}" if value is not None else ""),
        certainty=Certainty.CERTAIN if value is not None else Certainty.LIKELY,
        cure=(
            Text("Write a whole number, such as {whole}", "写一个整数，例如 {whole}").format(whole=whole),
            Text(
                'Or upgrade transformers (>=4.44), or pip install "deepspeed<0.15"',
                '或升级 transformers（>=4.44），或 pip install "deepspeed<0.15"',
            ),
        ),
        spans=(field.span(), *(version.span() for version in versions)),
        fixes=fix_of(
            Text("Write {whole}", "写成 {whole}").format(whole=whole),
            lambda: config.replacing("zero_optimization", _PREFETCH, value=whole),
            safe=value is not None,
        ),
    )


def fractions_in_script(hazard: Hazard, script: Script, run: Run) -> Iterator[Finding]:
    """A dict's ``"…stage3_prefetch_bucket_size": 0.9 * hidden * hidden`` without ``int(...)``."""
    checked = run.environment.within("deepspeed", ">=0.15")
    if checked is False or _PREFETCH.encode() not in script.source.data:
        return
    for node in script.nodes(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                continue
            name = key.value.rpartition(".")[2]
            if name not in _SIZES or not _is_fraction(value):
                continue
            yield hazard.finding(
                Text(
                    en="{name} is computed as `{code}`, a float with a fraction for most hidden sizes: DeepSpeed since "
                    "0.15 takes only a whole number.",
                    zh="{name} 由 `{code}` 算出，对多数 hidden size 都是带小数的浮点数：DeepSpeed 自 0.15 起只接受整数"
                    "。",
                ).format(name=name, code=ast.unparse(value)[:80]),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR if checked else Severity.WARNING,
                cure=(Text("Wrap it into int(...)", "用 int(...) 取整"),),
                spans=(script.place(value).span(), run.environment.field("deepspeed").span(_SINCE)),
                fixes=fix_of(
                    Text("Wrap it into int(...)", "用 int(...) 取整"),
                    lambda value=value: script.replacing(  # type: ignore[misc]
                        value, f"int({script.place(value).text})"
                    ),
                ),
                confirm=(
                    Text(
                        "DeepSpeed is 0.15 or later, and the hidden size is no multiple of 10",
                        "DeepSpeed 为 0.15 或以上，且 hidden size 不是 10 的倍数",
                    ),
                ),
            )


def _is_fraction(node: ast.expr) -> bool:
    """``0.9 * a * a`` and the like: a product with a float that is no whole number."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    for side in (node.left, node.right):
        if isinstance(side, ast.Constant) and isinstance(side.value, float) and side.value % 1:
            return True
        if _is_fraction(side):
            return True
    return False
