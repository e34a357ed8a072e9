import ast

from gonogo.hazards.facts.training_script import creating_calls, run_mentions
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, translated

# Code that sets the epoch, or prepares the loader so that it is set.
_EPOCH_SETTING_MARKERS = (b"set_epoch", b"accelerate", b"lightning", b"Trainer", b"ignite", b"fabric")


class DataSamplerEpochNeverSet(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A shuffling DistributedSampler, an epoch loop over its loader, and no set_epoch in the project."""
        if b"DistributedSampler" not in script.source.data or run_mentions(run, script, *_EPOCH_SETTING_MARKERS):
            return
        for loader in script.calls("torch.utils.data.DataLoader"):
            node = loader.keyword_node("sampler")
            if not isinstance(node, ast.Name):
                continue
            made = [one for one in creating_calls(script, node) if one.method == "DistributedSampler"]
            if not made or made[0].keyword("shuffle").truth is False or made[0].has_unknown_kwargs:
                continue
            epochs = _find_epoch_loop(script, loader)
            if epochs is None:
                continue
            edit = script.inserting_before(epochs.body[0], f"{node.id}.set_epoch({ast.unparse(epochs.target)})")
            yield self.finding(
                self.texts["cause"].format(sampler=node.id),
                cure=translated("Call {sampler}.set_epoch(epoch) at the beginning of each epoch").format(
                    sampler=node.id
                ),
                spans=(
                    script.first_line_place(epochs).span(),
                    made[0].place.span(translated("this sampler shuffles with seed + epoch")),
                ),
                fixes=self.fix(translated("Set the sampler's epoch"), edit, safe=False) if edit is not None else None,
            )


def _find_epoch_loop(script: Script, loader: Call) -> ast.For | None:
    """The loop over epochs in the same function that iterates over the loader, or None."""
    statement = script.statement(loader.node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return None
    for loop in script.loops:
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or "epoch" not in loop.target.id:
            continue
        same = script.enclosing_function(loop) is script.enclosing_function(loader.node)
        used = any(isinstance(node, ast.Name) and node.id == target.id for one in loop.body for node in ast.walk(one))
        if same and used and loop.lineno > loader.line and not _runs_once(script, loop):
            return loop
    return None


def _runs_once(script: Script, loop: ast.For) -> bool:
    """Whether a loop runs once, as ``for epoch in range(1)``."""
    call = loop.iter
    if not isinstance(call, ast.Call) or len(call.args) != 1:
        return False
    return script.field(call.args[0]).number == 1
