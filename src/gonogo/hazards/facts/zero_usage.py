"""Finds how a run uses ZeRO: the stage and where it is set, and the code that it affects."""

import ast
from collections.abc import Iterator

from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import contains_words, has_option, identifiers_in, last_name
from gonogo.evidence.script.nodes import dotted_name
from gonogo.evidence.script.script import Call, Script
from gonogo.finding import Span, translated
from gonogo.hazards.facts.rank_tests import contains_rank_name

_STAGE_LABELS = {
    1: translated("ZeRO-1 partitions the optimizer states among the ranks"),
    2: translated("ZeRO-2 partitions optimizer states and gradients among the ranks"),
    3: translated("ZeRO-3 partitions each parameter among the ranks"),
}
_ZERO_WORDS = ("zero_3", "zero_stage", "z_3", "stage_2", "stage_3", "deepspeed")
TRAINERS = (
    *("transformers.Trainer", "transformers.Seq2SeqTrainer", "*.SFTTrainer", "*.DPOTrainer", "*.GRPOTrainer"),
    *("*.PPOTrainer", "*.RLOOTrainer", "*.KTOTrainer", "*.ORPOTrainer", "*.CPOTrainer", "*.RewardTrainer"),
    *("*.OnlineDPOTrainer", "*.GKDTrainer"),
)
"""Trainers that pass the model to DeepSpeed themselves; a project's subclasses count too."""


def stage_span(run: Run) -> Span | None:
    """The place that sets ZeRO's stage or names a preset for it, labelled with what that stage partitions."""
    if run.config is None:
        return None
    label = _STAGE_LABELS.get(run.zero_stage) if run.zero_stage is not None else None
    return run.config.raw("zero_optimization", "stage").span(label) or run.config_field.span(label)


def has_peft(run: Run) -> bool:
    """Whether adapters may be trained, whose parameters may be too small to be partitioned."""
    words = (b"peft", b"LoraConfig", b"lora")
    if run.arguments.has("use_peft") or any("lora" in name for name in run.arguments.names()):
        return True
    return any(word in script.source.data for script in run.scripts for word in words)


def is_under_zero_condition(script: Script, node: ast.AST) -> bool:
    """Whether code is under a test of the stage or of DeepSpeed, so that its author has considered ZeRO."""
    return any(map(_mentions_zero, script.guarded_by(node)))


def _mentions_zero(test: ast.expr) -> bool:
    parts = list(ast.walk(test))
    texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if any(contains_words(text, *_ZERO_WORDS) for text in (*identifiers_in(test), *texts)):
        return True
    # A stage compared with a string (`stage == "sft"`) is a training stage.
    of_training = {id(inner) for each in parts if _compares_with_string(each) for inner in ast.walk(each)}
    others = [each for each in parts if id(each) not in of_training]
    names = [last_name(each) for each in others if isinstance(each, (ast.Name, ast.Attribute))]
    names += [each.value for each in others if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(contains_words(name, "stage") for name in names)


def _compares_with_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and not each.value.isdecimal()
        for each in node.comparators
    )


def is_behind_option(script: Script, node: ast.AST) -> bool:
    """Whether an option of the run decides if a node runs, so that it may not run at all."""
    return any(has_option(test) and not contains_rank_name(test) for test in script.guarded_by(node))


def is_in_gathered_parameters(script: Script, node: ast.AST) -> bool:
    """Whether a node is inside ``deepspeed.zero.GatheredParameters``, or a context named after it."""
    return any("gather" in name.rpartition(".")[2].lower() for name in script.with_contexts(node))


def engine_calls(run: Run) -> Iterator[Call]:
    """The calls by which the run's scripts create a DeepSpeed engine themselves."""
    for script in run.scripts:
        yield from script.calls("deepspeed.initialize")


def is_engine(script: Script, node: ast.expr | None) -> bool:
    """Whether an expression is the engine returned by ``deepspeed.initialize``."""
    return node is not None and any(
        kind == "deepspeed.initialize" or kind == "deepspeed.initialize[0]" for kind in script.kinds_of(node)
    )


_MODULE_CLASSES = (
    "torch.nn.Module",
    "*PreTrainedModel",
    "transformers.*Model",
    "transformers.*For*",
    "*LightningModule",
)


def is_inside_module_class(script: Script, node: ast.AST) -> bool:
    """Whether a node is inside a module class: there DeepSpeed gathers a weight when it is accessed."""
    info = script.enclosing_class(node)
    return info is not None and info.is_subclass(*_MODULE_CLASSES)


_TRAINED_ATTRIBUTES = frozenset(
    ("trainer.model", "self.model", "self.model_wrapped", "self.engine", "self.model_engine")
)


def is_trained(script: Script, name: str) -> bool:
    """Whether a variable holds the engine, or the model passed to DeepSpeed or a Trainer."""
    return name in _TRAINED_ATTRIBUTES or name in script.cached_result(_trained_names)


def _trained_names(script: Script) -> frozenset[str]:
    """The names of what is passed to be trained; "" for what has no name."""
    calls = script.calls("deepspeed.initialize", "accelerate.Accelerator.prepare", *TRAINERS)
    return frozenset(
        dotted_name_or_empty(one)
        for call in calls
        for one in (*call.node.args, *(each.value for each in call.node.keywords if each.arg in (None, "model")))
    )


def is_before_deepspeed_initialize(script: Script, node: ast.AST) -> bool:
    """Whether the engine is created only after a node, in the same function."""
    function = script.enclosing_function(node)
    if script.enclosing_loop(node) is not None:
        return False
    return any(
        script.enclosing_function(call.node) is function and call.line > getattr(node, "lineno", 0)
        for call in script.calls("deepspeed.initialize", "accelerate.Accelerator.prepare")
    )


def root_of(node: ast.expr) -> ast.expr:
    """``model`` for ``model.lm_head.weight``; ``self.model`` for expressions that begin with it."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        inner = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Attribute) and isinstance(inner, ast.Name) and inner.id in ("self", "trainer"):
            return node
        node = inner
    return node


def find_module_of_parameters(script: Script, node: ast.expr) -> ast.expr | None:
    """The module whose parameters an expression iterates over; None for anything else.

    ``m`` of ``m.parameters()``, of ``list(m.parameters())``, of ``[p for p in m.parameters() if p.requires_grad]``,
    and of a name that holds one of them.
    """
    node = script.bound_to(node)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) == 1:
        taken = node.generators[0]
        names = {each.id for each in ast.walk(taken.target) if isinstance(each, ast.Name)}
        of_all = isinstance(node.elt, ast.Name) and node.elt.id in names
        return find_module_of_parameters(script, taken.iter) if of_all else None
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in ("parameters", "named_parameters") else None
    filters = isinstance(node.func, ast.Name) and node.func.id == "filter"
    return find_module_of_parameters(script, node.args[-1 if filters else 0]) if node.args else None


def source_text(script: Script, node: ast.AST, length: int = 70) -> str:
    """The source of an expression on one line, shortened to ``length``."""
    text = " ".join(script.place(node).text.split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def mentions_self(node: ast.AST) -> bool:
    """Whether an expression uses the object itself: ``self.layers``."""
    return any(isinstance(each, ast.Name) and each.id == "self" for each in ast.walk(node))


def dotted_name_or_empty(node: ast.AST | None) -> str:
    """``a.b.c`` of a name or attribute, else empty."""
    return dotted_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
