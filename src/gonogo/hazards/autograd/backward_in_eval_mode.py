import ast

from gonogo.evidence.script.identifiers import same_code
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, Severity, translated


class BackwardInEvalMode(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A training loop that sets the model it trains to evaluation mode, in a script that never sets it back."""
        if b".train(" in script.source.data or b".backward(" not in script.source.data:
            return
        for call in script.calls("*.eval"):
            of = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            loop = script.enclosing_loop(call.node)
            if of is None or loop is None or call.node.args:
                continue
            calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call)]
            backward = next(
                (one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "backward"), None
            )
            if backward is None or not any(same_code(one.func, of) for one in calls):
                continue
            refused = run.zero_stage == 3 and run.environment.within("deepspeed", "<0.16") is True
            yield self.finding(
                self.texts["cause"].format(
                    model=ast.unparse(of),
                    refused=translated(", and ZeRO-3 in this DeepSpeed release refuses to run backward")
                    if refused
                    else "",
                ),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR if refused else Severity.WARNING,
                cure=self.cures[0],
                spans=(call.place.span(), script.place(backward).span(translated("gradients"))),
                confirm=translated("model.training is False in the next step"),
            )
