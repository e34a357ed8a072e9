import ast

from gonogo.hazards.facts.zero_usage import is_engine, source_text
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Run, Script, Text, translated


class DsBackwardPastEngine(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """ZeRO's hooks in a bucket that only the engine's own backward sets up."""
        found = next(log.errors_of("AttributeError", says=self.patterns["missing_ipg_buffer"]), None)
        for error in log.errors_of("IndexError", "TypeError", "KeyError"):
            last = error.innermost
            if last is not None and "zero/stage" in last.path and "bucket.buffer[" in last.code:
                found = found or error
        evidence = found or log.find(self.patterns["missing_ipg_buffer"])
        if evidence is not None:
            yield self.log_finding(
                evidence,
                confirm=translated("The traceback does not go through backward in deepspeed/runtime/engine.py"),
            )

    def in_script(self, script: Script, run: Run) -> Findings:
        """``loss.backward()`` in the loop in which an engine steps."""
        older = run.environment.within("deepspeed", "<0.18.3")
        data = script.source.data
        if older is False or b".backward(" not in data or b"deepspeed" not in data:
            return
        steps = [call for call in script.calls("*.step") if is_engine(script, call.receiver)]
        calls = list(script.calls("*.backward")) if steps else []
        kept = {id(script.enclosing_loop(call.node)) for call in calls if is_engine(script, call.receiver)}
        for call in calls:
            loop = script.enclosing_loop(call.node)
            if id(loop) in kept:
                continue  # the engine has its own backward in this loop: this one is another model's
            step = next((one for one in steps if script.enclosing_loop(one.node) is loop), None)
            receiver = call.receiver
            if loop is None or step is None or receiver is None or is_engine(script, receiver):
                continue
            if call.node.args or call.node.keywords or not isinstance(receiver, ast.Name):
                continue
            if any(kind.endswith("Accelerator") for kind in script.kinds_of(receiver)):
                continue
            engine = source_text(script, step.receiver) if step.receiver is not None else "engine"
            edit = script.replacing(call.node, f"{engine}.backward({receiver.id})")
            version = run.environment.field("deepspeed")
            yield self.finding(
                self.texts["cause_in_script"].format(
                    code=source_text(script, call.node),
                    engine=engine,
                    version=Text(f" {version.value}", f" {version.value} ")
                    if version.known
                    else translated(" before 0.18.3"),
                ),
                certainty=Certainty.CERTAIN if older else Certainty.LIKELY,
                cure=translated("Call {engine}.backward({loss})").format(engine=engine, loss=receiver.id),
                spans=(call.place.span(), step.place.span(translated("the engine steps here")), version.span()),
                fixes=self.fix(translated("Let the engine run the backward"), edit, safe=False) if edit else None,
                confirm=translated("DeepSpeed is older than 0.18.3"),
            )
