import ast

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.script.nodes import dotted_name
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, translated

_SCALAR_VIEW_PATTERN = Pattern(r"self\.dim\(\) cannot be 0 to view \w+ as Byte")
_FAULTY_VERSIONS = "==0.19.8"
_SHAPE_TAKING_FUNCTIONS = ("torch.ones", "torch.zeros", "torch.empty", "torch.rand", "torch.randn", "torch.full")


class DeepspeedScalarParameter(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``nn.Parameter`` of a number in a class, with the broken DeepSpeed release."""
        if run.config is None or run.environment.within("deepspeed", _FAULTY_VERSIONS) is not True:
            return
        edit = run.environment.replacing_version("deepspeed", "==0.19.7")
        for call in script.calls("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            if (
                not call.node.args
                or script.enclosing_class(call.node) is None
                or not _creates_scalar_tensor(script, call.node.args[0])
            ):
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(code=ast.unparse(call.node)),
                spans=(call.place.span(), run.environment.field("deepspeed").span(translated("the faulty release"))),
                fixes=self.fix(translated("Pin deepspeed 0.19.7"), edit, safe=False) if edit is not None else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """torch's error when DeepSpeed broadcasts parameters; only likely without frames."""
        raised = False
        for error in log.errors_of("RuntimeError"):
            if _SCALAR_VIEW_PATTERN.search(error.message):
                raised = True
                if error.passes("_broadcast_model", "_zero_init_param"):
                    yield self._build_finding(error, Certainty.CERTAIN)
                elif not error.frames:
                    yield self._build_finding(error, Certainty.LIKELY)
        line = None if raised else log.find(_SCALAR_VIEW_PATTERN)
        if line is not None:
            yield self._build_finding(line, Certainty.LIKELY)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(evidence, self.texts["broadcast_cause"], certainty=certainty)


def _creates_scalar_tensor(script: Script, value: ast.expr) -> bool:
    """Whether an expression creates a 0-dim tensor: from a number, or with an empty shape."""
    if isinstance(value, ast.BinOp):
        return _creates_scalar_tensor(script, value.left) and isinstance(value.right, ast.Constant)
    if not isinstance(value, ast.Call) or not value.args:
        return False
    name = next((call.name for call in script.calls("torch.*") if call.node is value), "")
    first = value.args[0]
    if name in ("torch.tensor", "torch.as_tensor", "torch.scalar_tensor"):
        return _is_number_literal(first)
    return name in _SHAPE_TAKING_FUNCTIONS and isinstance(first, ast.List | ast.Tuple) and not first.elts


def _is_number_literal(node: ast.expr) -> bool:
    """Whether a node is a number literal, with or without a sign or operator; a name may be a list."""
    if isinstance(node, ast.UnaryOp):
        return _is_number_literal(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number_literal(node.left) and _is_number_literal(node.right)
    if isinstance(node, ast.Call):
        return dotted_name(node.func) in ("math.log", "np.log", "numpy.log", "float", "math.sqrt", "math.exp")
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)
