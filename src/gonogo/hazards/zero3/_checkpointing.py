"""Gradient checkpointing as a run's files set it, and losses that run the model more than once."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call, Script
from gonogo.finding import Certainty, Finding, Fix, Span, Text, translated
from gonogo.hazards.facts.zero_usage import is_engine, source_text, stage_span
from gonogo.hazards.hazard import Hazard

_TRAINER_CLASSES = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.*Trainer")
_ENABLE_METHOD = "*.gradient_checkpointing_enable"
_CHECKPOINTING_OPTION = "gradient_checkpointing_kwargs"


class ActiveCheckpointing(msgspec.Struct, frozen=True, eq=False):
    """Gradient checkpointing that is certainly on. ``reentrant`` is None if neither files nor versions tell."""

    reentrant: bool | None
    on: Span | None
    """Where it is switched on."""
    set_at: Span | None
    """Where the files set ``use_reentrant``, or the version of transformers whose default applies."""
    call: Call | None = None
    """The script's own call of ``gradient_checkpointing_enable``."""


def active_checkpointing(run: Run) -> ActiveCheckpointing | None:
    """The run's gradient checkpointing; None if it is off or unknown."""
    argument = run.arguments.get("gradient_checkpointing")
    call = next((call for script in run.scripts for call in script.calls(_ENABLE_METHOD)), None)
    if argument.truth is not True and call is None:
        return None
    on = (
        argument.span(_CHECKPOINTING_ENABLED)
        if argument.truth
        else call.place.span(_CHECKPOINTING_ENABLED)
        if call is not None
        else None
    )
    settings = run.arguments.get(_CHECKPOINTING_OPTION)
    if not run.arguments.has(_CHECKPOINTING_OPTION) and call is not None:
        settings = _kwargs_field(call)
    reentrant = _use_reentrant_value(settings)
    if reentrant is not None:
        return ActiveCheckpointing(reentrant, on, settings.span(), call)
    if settings.unknown and (run.arguments.has(_CHECKPOINTING_OPTION) or call is not None):
        return ActiveCheckpointing(None, on, None, call)
    before = run.environment.within("transformers", "<5")
    version = run.environment.field("transformers")
    return ActiveCheckpointing(before, on, version.span(_BY_DEFAULT) if before else None, call)


_CHECKPOINTING_ENABLED = translated("gradient checkpointing is on")
_BY_DEFAULT = translated("this release uses reentrant checkpointing by default")


def _kwargs_field(call: Call) -> Field:
    """The kwargs that the call passes; of a dict literal, only ``use_reentrant`` has to be constant."""
    node = call.keyword_node(_CHECKPOINTING_OPTION) or (call.node.args[0] if call.node.args else None)
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "use_reentrant" and isinstance(value, ast.Constant):
                return Field.of({"use_reentrant": value.value}, call.script.place(node))
    return call.keyword(_CHECKPOINTING_OPTION) if node is None else Field.not_known(call.script.place(node))


def _use_reentrant_value(settings: Field) -> bool | None:
    value: Any = settings.value if settings.known else None
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value.replace("'", '"').replace("False", "false").replace("True", "true"))
        except (msgspec.DecodeError, UnicodeError):
            return None
    found = value.get("use_reentrant") if isinstance(value, dict) else None
    return found if isinstance(found, bool) else None


def repeated_forward_calls(script: Script) -> Iterator[tuple[Call, Call]]:
    """Two calls of the model for one loss: in a Trainer's ``compute_loss``, or in a loop that trains an engine."""
    for info in script.subclasses(*_TRAINER_CLASSES):
        method = info.methods.get("compute_loss")
        if method is None or len(method.args.args) < 2:
            continue
        name = method.args.args[1].arg
        yield from _first_pair_of_calls(
            script, [script.call_at(node) for node in script.cached_result(_calls_by_function).get((method, name), ())]
        )
    if b"deepspeed.initialize" in script.source.data:
        groups: dict[tuple[int, str], list[Call]] = defaultdict(list)
        for call in script.calls():
            func = call.node.func
            if isinstance(func, ast.Name) and (loop := script.enclosing_loop(call.node)) and is_engine(script, func):
                groups[id(loop), func.id].append(call)
        backwards = Counter(id(script.enclosing_loop(call.node)) for call in script.calls("*.backward"))
        for (loop_id, _), calls in groups.items():
            if backwards[loop_id] == 1:
                yield from _first_pair_of_calls(script, calls)


def _calls_by_function(script: Script) -> dict[tuple[ast.AST | None, str], list[ast.Call]]:
    """The calls of plain names, by the function that they are in and the name."""
    found: dict[tuple[ast.AST | None, str], list[ast.Call]] = defaultdict(list)
    for name, calls in script.index.calls_by_name.items():
        for call in calls:
            found[script.enclosing_function(call), name].append(call)
    return found


def _first_pair_of_calls(script: Script, calls: list[Call]) -> Iterator[tuple[Call, Call]]:
    """The first two calls that run under the same conditions and outside of ``no_grad``."""
    alike: dict[frozenset[str], list[Call]] = defaultdict(list)
    for call in calls:
        if not any("no_grad" in name for name in script.with_contexts(call.node)):
            alike[frozenset(map(ast.dump, script.guarded_by(call.node)))].append(call)
    pairs = [(each[0], each[1]) for each in alike.values() if len(each) > 1]
    yield from pairs[:1]


def double_recomputation_findings(
    hazard: Hazard, script: Script, run: Run, message: str, cure: tuple[Text, ...]
) -> Iterator[Finding]:
    """Reentrant checkpointing of a model that runs twice for one loss."""
    pair = next(repeated_forward_calls(script), None)
    if pair is None:
        return
    how = active_checkpointing(run)
    if how is None or how.reentrant is False:
        return
    first, second = pair
    fixes: tuple[Fix, ...] = ()
    if how.reentrant and how.call is not None and how.call.script.editable:
        edit = how.call.script.setting_keyword(how.call, _CHECKPOINTING_OPTION, '{"use_reentrant": False}')
        if edit is not None and not how.call.node.args:
            fixes = (hazard.fix(translated("Use non-reentrant checkpointing"), edit, safe=False),)
    yield hazard.finding(
        translated(
            "`{first}` and `{second}` run the model twice for one loss, and gradient checkpointing {how} "
            "reentrant: each checkpointed call has its own backward, so ZeRO-{stage} gets the same gradient "
            "twice and fails with “{message}”."
        ).format(
            first=source_text(script, first.node, 50),
            second=source_text(script, second.node, 50),
            how=Text("is", "是") if how.reentrant else Text("may be", "可能是"),
            stage=run.zero_stage,
            message=message,
        ),
        certainty=Certainty.CERTAIN if how.reentrant else Certainty.POSSIBLE,
        cure=cure,
        spans=(
            how.on,
            first.place.span(translated("the first forward")),
            second.place.span(translated("the second forward")),
            how.set_at,
            stage_span(run),
        ),
        fixes=fixes,
        confirm=translated("transformers is older than 5"),
    )
