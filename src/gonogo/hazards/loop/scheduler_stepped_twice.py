"""loop-scheduler-stepped-twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script


class LoopSchedulerSteppedTwice(Hazard):
    """A learning-rate scheduler that DeepSpeed's engine steps is stepped by the loop too.

    ## What happens
    Nothing fails. The schedule runs twice as fast: warm-up is half as long, and a decay to zero gets there in the
    middle of training, after which nothing is learnt.

    ## Why
    `engine.step()` steps the scheduler that was given to `deepspeed.initialize`, or made from the config, at each
    update.

    ## Cure
    Remove the loop's `scheduler.step()`. A scheduler that is to move once an epoch must not be given to DeepSpeed.

    ## When it is safe
    Where DeepSpeed was given no scheduler.

    ## Sources
    - https://deepspeed.readthedocs.io/en/latest/schedulers.html: who steps which scheduler
    - https://github.com/lucidrains/DALLE-pytorch/issues/278: the learning rate is 0 within the first epoch
    """

    page_zh = """由 DeepSpeed 引擎推进的学习率调度器，在训练循环中又被推进一次。

    ## 现象
    不会报错。调度以两倍速度进行：预热只有一半长，衰减到零的调度在训练中途就到达零，之后不再学习。

    ## 原因
    `engine.step()` 在每次更新时都会推进传给 `deepspeed.initialize` 的、或由配置创建的调度器。

    ## 解决办法
    去掉循环中的 `scheduler.step()`。若希望每个 epoch 推进一次，就不要把调度器交给 DeepSpeed。

    ## 何时安全
    没有把调度器交给 DeepSpeed 时。

    ## 来源
    - https://deepspeed.readthedocs.io/en/latest/schedulers.html：谁推进哪个调度器
    - https://github.com/lucidrains/DALLE-pytorch/issues/278：学习率在第一个 epoch 内就变为 0
    """

    name = "loop-scheduler-stepped-twice"
    title = Text(
        en="DeepSpeed's engine and the loop both step the scheduler",
        zh="DeepSpeed 引擎与训练循环都在推进学习率调度器",
    )
    sources = (
        "https://deepspeed.readthedocs.io/en/latest/schedulers.html",
        "https://github.com/lucidrains/DALLE-pytorch/issues/278",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
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
                        en="engine.step() already steps {name}: here it moves a second time for each update.",
                        zh="engine.step() 已经推进了 {name}：这里每次更新又推进一次。",
                    ).format(name=script.place(call.node.func).text.removesuffix(".step")),
                    severity=Severity.WARNING,
                    certainty=Certainty.LIKELY if script.guarded_by(call.node) else Certainty.CERTAIN,
                    cure=(Text("Remove this call", "去掉这个调用"),),
                    spans=(call.place.span(), made.place.span(Text("DeepSpeed steps it", "由 DeepSpeed 推进"))),
                    fixes=(self.fix(Text("Leave it to the engine", "交给引擎推进"), edit, safe=False),)
                    if edit is not None
                    else (),
                )
