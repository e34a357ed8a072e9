import ast
from collections.abc import Iterator

from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated

_ALWAYS_PASSED = ("prompts", "completions", "completion_ids")


class RewardFunctionSignature(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Functions passed as reward_funcs that don't accept the arguments TRL always passes."""
        if b"reward_funcs" not in script.source.data and b"GRPOTrainer" not in script.source.data:
            return
        for call in script.calls("trl.GRPOTrainer", "trl.RLOOTrainer"):
            node = call.keyword_node("reward_funcs") or (call.node.args[1] if len(call.node.args) > 1 else None)
            for function in _reward_functions(script, node):
                lacking = _missing_arguments(function)
                if not lacking:
                    continue
                version = run.environment.within("trl", ">=0.18")
                yield self.finding(
                    self.texts["cause"].format(name=function.name, lacking=", ".join(lacking)),
                    certainty=Certainty.CERTAIN if version else Certainty.LIKELY,
                    cure=translated("Give the reward function a **kwargs parameter"),
                    spans=(
                        script.first_line_place(function).span(),
                        call.place.span(translated("the trainer that calls it")),
                    ),
                    confirm=self.confirm,
                )


def _reward_functions(script: Script, node: ast.AST | None) -> Iterator[ast.FunctionDef]:
    """The functions of this file named by an expression, alone or in a list."""
    names = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    wanted = {one.id for one in names if isinstance(one, ast.Name)}
    for statement in script.tree.body if script.tree is not None else ():
        if isinstance(statement, ast.FunctionDef) and statement.name in wanted and not statement.decorator_list:
            yield statement


def _missing_arguments(function: ast.FunctionDef) -> list[str]:
    """Arguments that are always passed and that the function doesn't accept."""
    arguments = function.args
    if arguments.kwarg is not None:
        return []
    taken = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
    return [name for name in _ALWAYS_PASSED if name not in taken]
