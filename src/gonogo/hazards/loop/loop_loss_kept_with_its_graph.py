import ast

from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, Severity, Text


class LoopLossKeptWithItsGraph(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``total += loss`` in the loop that calls backward on the loss, with a sum that no backward is called on."""
        if b"backward(" not in script.source.data or b"+= " not in script.source.data:
            return
        backed = list(script.calls("*.backward"))
        names = {name for call in backed for name in _names_of(call)}
        for statement in script.nodes(ast.AugAssign):
            value, loop = statement.value, script.enclosing_loop(statement)
            if not isinstance(statement.op, ast.Add) or not isinstance(value, ast.Name) or loop is None:
                continue
            total = ast.unparse(statement.target)
            if value.id not in names or total in names or isinstance(statement.target, ast.Subscript):
                continue
            run_here = [call for call in backed if value.id in _names_of(call) and _within(script, call.node, loop)]
            if (
                _begins_anew(loop, total)
                or not run_here
                or _made_plain(script, loop, value.id)
                or "no_grad" in str(script.with_contexts(statement))
            ):
                continue
            edit = script.replacing(value, f"{value.id}.detach()")
            yield self.finding(
                Text(
                    "{total} adds up {loss} with its graph, in the loop that trains: each step's stays in memory.",
                    "{total} 在训练循环中累加 {loss} 及其计算图：每一步的计算图都留在内存中。",
                ).format(total=total, loss=value.id),
                severity=Severity.WARNING,
                cure=Text("Add {loss}.detach(), or {loss}.item()", "改为累加 {loss}.detach() 或 {loss}.item()").format(
                    loss=value.id
                ),
                spans=(
                    script.place(statement).span(),
                    run_here[0].place.span(Text("the loss that is trained on", "用于训练的损失")),
                ),
                fixes=self.fix(Text("Add the number without its history", "只累加数值，不含历史"), edit)
                if edit is not None
                else None,
            )


def _names_of(call: Call) -> set[str]:
    """The name that backward is called on: ``loss.backward()``, ``engine.backward(loss)``."""
    found = {ast.unparse(one) for one in call.node.args[:1] if isinstance(one, (ast.Name, ast.Attribute))}
    if not call.node.args and call.receiver is not None:
        receiver: ast.expr = call.receiver
        if isinstance(receiver, ast.Call) and receiver.args:  # scaler.scale(loss).backward()
            receiver = receiver.args[0]
        if isinstance(receiver, (ast.Name, ast.Attribute)):
            found.add(ast.unparse(receiver))
    return found


def _within(script: Script, node: ast.AST, loop: ast.AST) -> bool:
    return any(parent is loop for parent in script.ancestors(node))


def _begins_anew(loop: ast.For | ast.AsyncFor | ast.While, total: str) -> bool:
    """Whether the sum is set back within the loop, or is one of a few micro-batches: its history stays short."""
    text = ast.unparse(loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else loop.test)
    if any(word in text for word in ("accum", "micro", "chunk")):
        return True
    return any(
        ast.unparse(target) == total
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def _made_plain(script: Script, loop: ast.AST, name: str) -> bool:
    """Whether the loop gives the name a plain number, or a tensor without history, somewhere."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets):
            text = ast.unparse(node.value)
            if any(word in text for word in (".item()", ".detach()", ".data", "float(", "reduce", "gather", "no_grad")):
                return True
    return False
