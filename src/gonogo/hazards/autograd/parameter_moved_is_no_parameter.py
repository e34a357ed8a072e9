import ast

from gonogo.hazards.facts.training_script import first_argument
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, translated


class ParameterMovedIsNoParameter(Hazard):
    """``nn.Parameter(…).cuda()`` is a plain tensor: the module doesn't register it, and nothing trains it."""

    def in_script(self, script: Script, run: Run) -> Findings:
        """``self.x = nn.Parameter(…).cuda()`` in a module."""
        if b"Parameter(" not in script.source.data:
            return
        for made in script.calls("torch.nn.Parameter"):
            method = script.parent(made.node)
            move = script.parent(method) if isinstance(method, ast.Attribute) else None
            statement = script.statement(made.node)
            if not isinstance(method, ast.Attribute) or not isinstance(move, ast.Call) or move.func is not method:
                continue
            if (
                not isinstance(statement, ast.Assign)
                or statement.value is not move
                or not _makes_new_tensor(script, move)
            ):
                continue
            target, owner = statement.targets[0], script.enclosing_class(statement)
            if not isinstance(target, ast.Attribute) or owner is None or not owner.is_subclass("torch.nn.Module"):
                continue
            inner = first_argument(made, "data")
            call = f".{method.attr}({', '.join(ast.unparse(one) for one in (*move.args, *move.keywords))})"
            around = _code_around_cuda(script, made, inner) if inner is not None else None
            moved = f"{around[0]}{call}{around[1]}" if around is not None else f"nn.Parameter(tensor{call})"
            edit = script.replacing(move, moved) if around is not None else None
            yield self.finding(
                self.texts["cause"].format(name=target.attr, owner=owner.name, call=call),
                cure=translated(
                    "Move the tensor before it becomes a parameter: {moved}; or let model.to(device) move the parameter"
                ).format(moved=moved),
                spans=script.place(move).span(),
                parameter=target.attr,
                fixes=self.fix(translated("Move the tensor inside nn.Parameter(...)"), edit, safe=False)
                if edit is not None
                else None,
            )


def _code_around_cuda(script: Script, call: Call, argument: ast.expr) -> tuple[str, str] | None:
    """The code before and after the place for ``.cuda()`` in ``nn.Parameter(x)``; None if parentheses are needed."""
    if not isinstance(argument, (ast.Call, ast.Name, ast.Attribute)):
        return None
    whole, part = script.place(call.node), script.place(argument)
    text, end = whole.text.encode(), part.start - whole.start + len(part.text.encode())
    return text[:end].decode(), text[end:].decode()


def _makes_new_tensor(script: Script, method_call: ast.Call) -> bool:
    """Whether the call certainly returns a new tensor: on a GPU, or with another dtype."""
    func = method_call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr in ("cuda", "half", "bfloat16", "double", "npu", "xpu"):
        return True
    value = script.field(method_call.args[0]).value if func.attr == "to" and method_call.args else None
    return str(value).startswith(("cuda", "torch.float16", "torch.bfloat16", "torch.half"))
