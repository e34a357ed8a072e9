import ast

from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, translated


class LoopSchedulerSteppedTwice(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``scheduler.step()`` on a scheduler that deepspeed.initialize got or returned."""
        if b"deepspeed" not in script.source.data or b".step(" not in script.source.data:
            return
        for made in script.calls("deepspeed.initialize"):
            given = made.keyword_node("lr_scheduler")
            from_config = run.config is not None and run.config.raw("scheduler", "type").known
            if (given is None and not from_config) or made.has_unknown_kwargs:
                continue
            for call in script.calls("*.step"):
                own = (
                    isinstance(given, ast.Name) and isinstance(call.receiver, ast.Name) and call.receiver.id == given.id
                )
                if not own and call.receiver_kind != "deepspeed.initialize[3]":
                    continue
                statement = script.statement(call.node)
                plain = isinstance(statement, ast.Expr) and statement.value is call.node
                edit = script.removing_statement(statement) if plain and statement is not None else None
                yield self.finding(
                    self.texts["cause"].format(name=script.place(call.node.func).text.removesuffix(".step")),
                    certainty=Certainty.LIKELY if script.guarded_by(call.node) else Certainty.CERTAIN,
                    spans=(call.place.span(), made.place.span(translated("DeepSpeed steps the scheduler"))),
                    fixes=self.fix(translated("Leave the scheduler's step to the engine"), edit, safe=False)
                    if edit is not None
                    else None,
                )
