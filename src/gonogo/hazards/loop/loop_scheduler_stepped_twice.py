import ast

from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text


class LoopSchedulerSteppedTwice(Hazard):
    """A learning-rate scheduler that DeepSpeed's engine steps is stepped by the loop too.
    ## What happens
    Nothing fails. The schedule runs twice as fast: warm-up is half as long, and a decay to zero gets there in the
    middle of training, after which nothing is learnt.
    ## Why
    `engine.step()` steps the scheduler that was given to `deepspeed.initialize`, or made from the config, at each
    update.
    ## Example
    ```python
    engine, optimizer, _, scheduler = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler)
    engine.backward(loss)
    engine.step()
    scheduler.step()    # wrong: engine.step() has done so
    # right: leave that line out
    ```
    ## Cure
    Remove the loop's `scheduler.step()`. A scheduler that is to move once an epoch must not be given to DeepSpeed.
    ## When it is safe
    Where DeepSpeed was given no scheduler.
    ## Sources
    - https://deepspeed.readthedocs.io/en/latest/schedulers.html: who steps which scheduler
    - https://github.com/lucidrains/DALLE-pytorch/issues/278: the learning rate is 0 within the first epoch
    """

    name = "loop-scheduler-stepped-twice"
    title = Text(
        "DeepSpeed's engine and the loop both step the scheduler", "DeepSpeed 引擎与训练循环都在推进学习率调度器"
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """``scheduler.step()`` of what deepspeed.initialize was given, or gave back."""
        if b"deepspeed" not in script.source.data or b".step(" not in script.source.data:
            return
        for made in script.calls("deepspeed.initialize"):
            given = made.keyword_node("lr_scheduler")
            from_config = run.config is not None and run.config.raw("scheduler", "type").known
            if (given is None and not from_config) or made.has_star:
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
                    Text(
                        "engine.step() already steps {name}: here it moves a second time for each update.",
                        "engine.step() 已经推进了 {name}：这里每次更新又推进一次。",
                    ).format(name=script.place(call.node.func).text.removesuffix(".step")),
                    severity=Severity.WARNING,
                    certainty=Certainty.LIKELY if script.guarded_by(call.node) else Certainty.CERTAIN,
                    cure=Text("Remove this call", "去掉这个调用"),
                    spans=(call.place.span(), made.place.span(Text("DeepSpeed steps it", "由 DeepSpeed 推进"))),
                    fixes=self.fix(Text("Leave it to the engine", "交给引擎推进"), edit, safe=False)
                    if edit is not None
                    else None,
                )
