import ast

from gonogo.evidence.script.identifiers import uses_name
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, translated, whole_number

_ACCUMULATION_NAMES = ("accumulation", "accum_steps", "accum_iter", "grad_accum", "grad_acc", "accumulate_steps", "gas")


class AccumulationAppliedTwice(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``engine.step()`` under a modulo, or a loss that is divided before ``engine.backward``."""
        if run.config is None:
            return
        steps = run.config.get("gradient_accumulation_steps")
        count = whole_number(steps)
        if count is None or count <= 1:
            return
        label = translated("the engine accumulates {count} steps").format(count=count)
        for call in script.calls("*.step", "*.backward"):
            if not _is_engine_call(call, script):
                continue
            if call.method == "step" and (test := _find_modulo_test(script, call)) is not None:
                yield self.finding(
                    self.texts["conditional_step_cause"].format(test=ast.unparse(test)[:80], count=count),
                    spans=(call.place.span(), steps.span(label)),
                )
            elif call.method == "backward" and (divided := _find_loss_division(script, call)) is not None:
                yield self.finding(
                    self.texts["loss_divided_twice_cause"].format(code=ast.unparse(divided)[:80], count=count),
                    cure=translated("Don't divide the loss: engine.backward divides it (or pass scale_wrt_gas=False)"),
                    spans=(script.place(divided).span(), steps.span(label)),
                )


def _is_engine_call(call: Call, script: Script) -> bool:
    kinds = script.kinds_of(call.receiver) if call.receiver is not None else ()
    return any(kind == "deepspeed.initialize" for kind in kinds)


def _find_modulo_test(script: Script, call: Call) -> ast.expr | None:
    """The test around the call that is true once every few batches."""
    for test in script.guarded_by(call.node):
        for node in ast.walk(test):
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Mod)
                and uses_name(node.right, *_ACCUMULATION_NAMES)
            ):
                return test
    return None


def _find_loss_division(script: Script, call: Call) -> ast.AST | None:
    """``loss / accumulation``, in the call itself or assigned to the same name earlier in the loop."""
    if not call.node.args or call.has("scale_wrt_gas"):
        return None
    argument = call.node.args[0]
    if isinstance(argument, ast.BinOp):
        return (
            argument if isinstance(argument.op, ast.Div) and uses_name(argument.right, *_ACCUMULATION_NAMES) else None
        )
    loop = script.enclosing_loop(call.node)
    if not isinstance(argument, ast.Name) or loop is None:
        return None
    divided = script.cached_result(_first_divisions).get((loop, argument.id))
    return divided if divided is not None and divided.lineno <= call.node.lineno else None


def _first_divisions(script: Script) -> dict[tuple[ast.AST | None, str], ast.Assign | ast.AugAssign]:
    """The first statement that divides a name by a count of accumulation steps, by its loop and the name."""
    found: dict[tuple[ast.AST | None, str], ast.Assign | ast.AugAssign] = {}
    nodes: list[ast.Assign | ast.AugAssign] = [*script.nodes(ast.Assign), *script.nodes(ast.AugAssign)]
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name):
            continue
        if isinstance(node, ast.AugAssign):
            divides, by = isinstance(node.op, ast.Div), node.value
        elif isinstance(node.value, ast.BinOp):
            divides, by = isinstance(node.value.op, ast.Div), node.value.right
        else:
            continue
        if divides and uses_name(by, *_ACCUMULATION_NAMES):
            key = (script.enclosing_loop(node), target.id)
            if key not in found or node.lineno < found[key].lineno:
                found[key] = node
    return found
