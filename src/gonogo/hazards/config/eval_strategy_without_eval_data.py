"""eval-strategy-without-eval-data."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Call, Script
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Hazard

_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
_OVERRIDDEN = ("get_eval_dataloader", "evaluate", "evaluation_loop", "_maybe_log_save_evaluate", "__init__")


class EvalStrategyWithoutEvalData(Hazard):
    """Evaluation during training is on, and the Trainer is given no eval_dataset.

    ## What happens
    "ValueError: You have set `args.eval_strategy` to steps but you didn't pass an `eval_dataset` to `Trainer`"
    when the Trainer is made (transformers 4.46 and later); before that "ValueError: Trainer: evaluation requires an
    eval_dataset." at the first evaluation, maybe hours into the run.

    ## Why
    The command line asks for evaluations by steps or epochs, and the script's Trainer has nothing to evaluate on.

    ## Cure
    Pass `eval_dataset=`, or set `--eval_strategy no`.

    ## When it is safe
    With `eval_dataset`, or a Trainer of one's own that brings its own evaluation data.

    ## Sources
    - https://github.com/GraySwanAI/circuit-breakers/issues/18: refused when the Trainer is made
    - https://github.com/feizc/MLE-LLaMA/issues/2: failed after 200 of 234 steps
    - https://github.com/tatsu-lab/stanford_alpaca/issues/214: the strategy given to a script without eval data
    """

    page_zh = """打开了训练中的评估，却没有给 Trainer eval_dataset。

    ## 现象
    创建 Trainer 时报 “ValueError: You have set `args.eval_strategy` to steps but you didn't pass an `eval_dataset` to
    `Trainer`”（transformers 4.46 及以上）；更早的版本在第一次评估时报 “ValueError: Trainer: evaluation requires an
    eval_dataset.”，可能已训练了数小时。

    ## 原因
    命令行要求按步或按 epoch 评估，而脚本中的 Trainer 没有可评估的数据。

    ## 解决办法
    传入 `eval_dataset=`，或设 `--eval_strategy no`。

    ## 何时安全
    给了 `eval_dataset`，或自己的 Trainer 自带评估数据。

    ## 来源
    - https://github.com/GraySwanAI/circuit-breakers/issues/18：创建 Trainer 时被拒绝
    - https://github.com/feizc/MLE-LLaMA/issues/2：234 步训练到第 200 步失败
    - https://github.com/tatsu-lab/stanford_alpaca/issues/214：给没有评估数据的脚本设置了评估策略
    """

    name = "eval-strategy-without-eval-data"
    title = Text(
        en="Evaluation is asked for, and the Trainer has no eval_dataset",
        zh="要求评估，而 Trainer 没有 eval_dataset",
    )
    sources = (
        "https://github.com/GraySwanAI/circuit-breakers/issues/18",
        "https://github.com/feizc/MLE-LLaMA/issues/2",
        "https://github.com/tatsu-lab/stanford_alpaca/issues/214",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """A Trainer without the keyword, under arguments that ask for evaluation."""
        calls = list(script.calls(*_TRAINERS))
        if len(calls) != 1 or not (strategies := _strategies(run)):
            return
        call, strategy = calls[0], strategies[0]
        data = call.keyword("eval_dataset")
        given = call.keyword_node("eval_dataset") is not None and not (data.known and data.value is None)
        if given or call.has_star or len(call.node.args) > 4 or _brings_its_own(call, script):
            return
        if b".eval_dataset" in script.source.data:
            return
        plain = call.name in _TRAINERS
        word = str(strategy.value).rpartition(".")[2].lower()
        yield self.finding(
            Text(
                en='Evaluation is by "{word}", and this Trainer is given no eval_dataset.',
                zh='评估策略为 "{word}"，而此 Trainer 没有得到 eval_dataset。',
            ).format(word=word),
            certainty=Certainty.CERTAIN if plain else Certainty.LIKELY,
            cure=(
                Text("Pass eval_dataset= to the Trainer", "给 Trainer 传入 eval_dataset="),
                Text("Or set --eval_strategy no", "或设 --eval_strategy no"),
            ),
            spans=(call.place.span(), strategy.span(Text("evaluation is asked for here", "此处要求评估"))),
            confirm=()
            if plain
            else (Text("The Trainer's own class brings no evaluation data", "自定义的 Trainer 类没有自带评估数据"),),
        )


def _strategies(run: Run) -> list[Field]:
    fields = [run.arguments.get(name) for name in ("eval_strategy", "evaluation_strategy")]
    return [
        field for field in fields if field.known and str(field.value).rpartition(".")[2].lower() in ("steps", "epoch")
    ]


def _brings_its_own(call: Call, script: Script) -> bool:
    """Whether a class of the project's own may evaluate on other data."""
    name = call.name.rpartition(".")[2]
    everywhere = (script, *script.imported)
    return any(
        set(_OVERRIDDEN) & set(one.methods)
        for other in everywhere
        for one in other.subclasses(*_TRAINERS)
        if one.name == name
    )
