"""Models against the transformers that is to load them: types that it doesn't know, code written for another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.environment.compatibility import first_release_with_model, newest_transformers_looked_at
from gonogo.evidence.environment.version_range import parse_version
from gonogo.finding import Certainty, Finding, Severity, Span, Text
from gonogo.hazards.facts.installed import certainty_of_versions, describe_package, span_of, version_fix

if TYPE_CHECKING:
    from gonogo.evidence.environment.environment import Environment
    from gonogo.evidence.run import Run
    from gonogo.hazards.hazard import Hazard

_TOKENIZER_TYPES = ("chatglm", "baichuan")
"""Remote tokenizers that set their own model after ``super().__init__``, which transformers 4.34 began to call back."""


def unknown_model_type(hazard: Hazard, environment: Environment, run: Run, cure: tuple[Text, ...]) -> Iterator[Finding]:
    """A model type that came after the told release, or that the release has dropped."""
    model = run.model
    kind = model.model_type if model is not None else None
    if model is None or kind is None or (model.config or {}).get("auto_map"):
        return
    known = first_release_with_model(kind)
    if known is None:
        return
    if not known.oldest and environment.within("transformers", f"<{known.first}"):
        text = Text(
            "The model's config.json says model_type {kind}, which transformers knows since {first}; the run has "
            "{told}.",
            "模型的 config.json 中 model_type 为 {kind}，transformers 从 {first} 起才支持；该运行使用 {told}。",
        )
        wanted = f">={known.first}"
    elif known.removed is not None and environment.within("transformers", f">={known.removed}"):
        text = Text(
            "The model's config.json says model_type {kind}, which transformers has dropped in {removed}; the run has "
            "{told}.",
            "模型的 config.json 中 model_type 为 {kind}，transformers 从 {removed} 起已移除；该运行使用 {told}。",
        )
        wanted = f">={known.first},<{known.removed}"
    else:
        return
    yield hazard.finding(
        text.format(
            kind=kind,
            first=known.first,
            removed=known.removed or "",
            told=describe_package(environment, "transformers"),
        ),
        certainty=certainty_of_versions(environment, run, "transformers"),
        cure=(
            Text('pip install "transformers{wanted}"', '执行 pip install "transformers{wanted}"').format(wanted=wanted),
            *cure[1:],
        ),
        spans=(span_of(environment, "transformers"), _span_of_model(run, kind)),
        fixes=version_fix(environment, "transformers", wanted),
    )


def broken_remote_code(hazard: Hazard, environment: Environment, run: Run, cure: tuple[Text, ...]) -> Iterator[Finding]:
    """Remote code written for a transformers long before the told one."""
    model = run.model
    config = model.config if model is not None else None
    if model is None or config is None or not config.get("auto_map"):
        return
    written_for = parse_version(str(config.get("transformers_version") or ""))
    if written_for is None or not _is_taken(run, model.model_type):
        return
    kind = model.model_type or "?"
    old = written_for.release[:2] < (4, 34)
    if kind in _TOKENIZER_TYPES and old and environment.within("transformers", ">=4.34"):
        certainty, severity = Certainty.LIKELY, Severity.ERROR
    elif written_for.release[0] < 5 and environment.within("transformers", ">=5"):
        certainty, severity = Certainty.POSSIBLE, Severity.WARNING
    else:
        return
    yield hazard.finding(
        Text(
            "The model brings its own code (auto_map), written for transformers {written}; the run has {told}.",
            "模型自带代码（auto_map），针对 transformers {written} 编写；该运行使用 {told}。",
        ).format(written=written_for, told=describe_package(environment, "transformers")),
        certainty=certainty,
        severity=severity,
        cure=cure,
        spans=(span_of(environment, "transformers"), _span_of_model(run, kind)),
        confirm=(Text("The model's .py files have not been updated since", "此后模型的 .py 文件没有更新过"),),
    )


def _is_taken(run: Run, kind: str | None) -> bool:
    """Whether the model's own code is what is loaded: trusted, or the only code that there is for its type."""
    if run.arguments.get("trust_remote_code").truth is True:
        return True
    for script in run.scripts:
        for call in script.calls("*.from_pretrained"):
            if call.keyword("trust_remote_code").truth:
                return True
    known = first_release_with_model(kind) if kind is not None else None
    return known is None and bool(newest_transformers_looked_at()) and run.framework in ("ms-swift", "llamafactory")


def _span_of_model(run: Run, kind: str) -> Span | None:
    label = Text("model_type {kind}", "model_type 为 {kind}").format(kind=kind)
    return run.arguments.model.span(label)
