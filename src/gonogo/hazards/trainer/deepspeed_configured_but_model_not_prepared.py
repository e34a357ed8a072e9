import ast

from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script


class DeepspeedConfiguredButModelNotPrepared(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``accelerator.backward`` under DeepSpeed in a program that never calls ``accelerator.prepare``."""
        if run.uses_deepspeed is not True or b"prepare" in script.source.data or len(run.scripts) > 1:
            return
        if next(script.calls("accelerate.Accelerator"), None) is None:
            return
        for call in script.calls("*.backward"):
            func = call.node.func
            if isinstance(func, ast.Attribute) and "accelerate.Accelerator" in script.kinds_of(func.value):
                yield self.finding(self.cause, certainty=Certainty.LIKELY, spans=call.place.span())
                return
