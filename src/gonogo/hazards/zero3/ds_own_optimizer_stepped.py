import ast

from gonogo.hazards.facts.zero_usage import is_engine, source_text, stage_span
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated


class DsOwnOptimizerStepped(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A step of the optimizer that ``deepspeed.initialize`` was given, in a loop where the engine never steps."""
        if run.zero_stage not in (1, 2, 3) or b".step(" not in script.source.data:
            return
        for built in script.calls("deepspeed.initialize"):
            given = built.keyword_node("optimizer")
            if not isinstance(given, ast.Name):
                continue
            for call in script.calls("*.step"):
                receiver = call.receiver
                if not isinstance(receiver, ast.Name) or receiver.id != given.id or call.line < built.line:
                    continue
                kinds = script.kinds_of(receiver)
                if not any(kind.startswith(("torch.optim.", "deepspeed.ops.")) for kind in kinds):
                    continue  # the name now holds the optimizer that deepspeed.initialize returned
                loop = script.enclosing_loop(call.node)
                if loop is None or _contains_engine_step(script, loop):
                    continue
                yield self.finding(
                    self.texts["cause"].format(code=source_text(script, call.node), stage=run.zero_stage),
                    spans=(
                        call.place.span(),
                        script.place(given).span(translated("passed to the engine here")),
                        stage_span(run),
                    ),
                )


def _contains_engine_step(script: Script, loop: ast.AST) -> bool:
    return any(
        is_engine(script, call.receiver) for call in script.calls("*.step") if script.enclosing_loop(call.node) is loop
    )
