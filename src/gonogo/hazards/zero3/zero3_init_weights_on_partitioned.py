import ast

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.traceback import LogFrame
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.zero_usage import (
    is_in_gathered_parameters,
    is_inside_module_class,
    is_under_zero_condition,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, Severity, translated
from gonogo.hazards.zero3._empty_parameter_uses import AUXILIARY, INIT_FUNCTIONS, RESIZE_FUNCTIONS
from gonogo.hazards.zero3._loading import is_zero3_configured_at
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, find_error_or_line, is_under_zero3

_INDEX_OUT_OF_BOUNDS_PATTERN = Pattern(r"index \d+ is out of bounds for dimension 0 with size [01]\b")
_WRAPPER_PATHS = ("torch/utils/_device.py", "torch/overrides.py", "torch/_dynamo/")
"""Wrappers that torch puts between a caller and an operator: their frames don't tell who called it."""
_ZEROES_ROW_PATTERN = Pattern(r"\[[\w.]*padding_idx\]")
_WEIGHT_INIT_PATTERN = Pattern(r"padding_idx|_init_weights|initialize_weights|init_weights")

_REFUSALS = {
    "xavier": "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions",
    "orthogonal": "Only tensors with 2 or more dimensions are supported",
    "dirac": "Only tensors with 3, 4, or 5 dimensions are supported",
    "eye": "Only tensors with 2 dimensions are supported",
    "sparse": "Only tensors with 2 dimensions are supported",
}
"""What ``torch.nn.init`` raises for a tensor of shape [0], by the beginning of the function's name. All others leave it
as it is; ``kaiming_*`` do so with the warning “Initializing zero-element tensors is a no-op”."""


class Zero3InitWeightsOnPartitioned(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``nn.init`` on a layer's weight, in a constructor under ``zero.Init`` or after ``from_pretrained``."""
        if run.zero_stage != 3 or b"init." not in script.source.data:
            return
        for call in script.calls("torch.nn.init.*"):
            weight = call.node.args[0] if call.node.args else None
            if (
                weight is None
                or is_in_gathered_parameters(script, call.node)
                or is_under_zero_condition(script, call.node)
            ):
                continue
            where = _find_partitioning_node(script, run, weight)
            if where is None:
                continue
            raised = next((text for name, text in _REFUSALS.items() if call.method.startswith(name)), None)
            yield self.finding(
                translated("`{code}` is applied to a weight that ZeRO-3 has already partitioned: {then}.").format(
                    code=source_text(script, call.node),
                    then=translated("it is an empty tensor, and “{message}” is raised").format(message=raised)
                    if raised
                    else translated("nothing is written, and the weight keeps its previous values"),
                ),
                severity=Severity.ERROR if raised else Severity.WARNING,
                cure=self.texts["cure"],
                spans=(
                    call.place.span(),
                    script.place(where).span(translated("ZeRO-3 partitions the weights from here on")),
                    stage_span(run),
                ),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An empty weight in code that initializes weights; without frames, an index error under ZeRO-3."""
        on = is_under_zero3(log)
        if on is False:
            return
        for error in log.errors_of("IndexError", "RuntimeError", "AssertionError", "ValueError"):
            if not error.passes(*INIT_FUNCTIONS) or error.passes(*RESIZE_FUNCTIONS, *AUXILIARY):
                continue
            if self.patterns["empty_weight_error"].search(error.message):
                # torch's own constructors reject a vocabulary of 0 with the same message, whatever made it 0
                of_torch = error.innermost is not None and "torch/nn/modules/" in error.innermost.path
                likely = Certainty.LIKELY if _INDEX_OUT_OF_BOUNDS_PATTERN.search(error.message) else Certainty.POSSIBLE
                if on or not of_torch:
                    yield self._build_finding(error, Certainty.CERTAIN if on else likely)
        cut = find_cut_traceback(log, "transformers/", "init_weights", "initialize_weights", code=_ZEROES_ROW_PATTERN)
        if cut and not log.errors:
            yield self._build_finding(cut, Certainty.LIKELY)
        elif not log.errors and (on or not log.setup.launch) and (cut := _find_cut_initialization(log)):
            yield self._build_finding(cut, Certainty.POSSIBLE)
        bare = find_error_or_line(log, _INDEX_OUT_OF_BOUNDS_PATTERN, "IndexError")
        if bare is None or (isinstance(bare, LoggedError) and any(map(_is_not_wrapper_frame, bare.frames))):
            return
        if on or log.find(_WEIGHT_INIT_PATTERN):
            yield self._build_finding(bare, Certainty.LIKELY)
        elif isinstance(bare, LoggedError):
            yield self._build_finding(bare, Certainty.POSSIBLE)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(evidence, certainty=certainty)


def _is_not_wrapper_frame(frame: LogFrame) -> bool:
    """Whether a frame shows who called the operator."""
    return not any(part in frame.path for part in _WRAPPER_PATHS)


def _find_partitioning_node(script: Script, run: Run, weight: ast.expr) -> ast.AST | None:
    """What partitioned a layer's weight before its initialization; None if it isn't partitioned or unknown."""
    if not isinstance(weight, ast.Attribute) or not isinstance(weight.value, ast.Attribute):
        return None
    function, info = script.enclosing_function(weight), script.enclosing_class(weight)
    root: ast.expr = weight
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name):
        return None
    if info is not None and is_inside_module_class(script, weight):
        if function is None or function.name != "__init__" or root.id != "self":
            return None
        for other in run.scripts:
            for call in other.calls(info.name, f"*.{info.name}"):
                if any(name.endswith("zero.Init") for name in other.with_contexts(call.node)) and other is script:
                    return call.node
        return None
    made = script.bound_to(root)
    name = script.call_at(made).name if isinstance(made, ast.Call) else ""
    loaded = name.startswith("transformers.") and name.endswith(".from_pretrained")
    return made if loaded and is_zero3_configured_at(script, made) else None


def _find_cut_initialization(log: FailureLog) -> LoggedError | None:
    """A traceback that ends where transformers initializes weights: the frames below that are missing."""
    return find_truncated_error(
        log, ("modeling_utils.py", "initialize_weights"), ("modeling_utils.py", "_initialize_missing")
    )
