"""zero-param-already-reduced."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.zero3._checkpointing import recomputed_twice
from gonogo.hazards.zero3._partitioned import cut_at, told_by

_TWICE = Pattern(
    r"[Tt]he parameter \S{0,200} ?has already been reduced|Gradient computed twice for this partition"
    r"|Multiple gradient reduction is currently not supported|assert self\.params_already_reduced\["
)

_CURE = (
    Text(
        'gradient_checkpointing_kwargs={"use_reentrant": False}, or no gradient checkpointing',
        '设 gradient_checkpointing_kwargs={"use_reentrant": False}，或关闭梯度检查点',
    ),
    Text("Or run the model once, on the concatenated batch", "或把批次拼接后只运行一次模型"),
)


class ZeroParamAlreadyReduced(Hazard):
    """A parameter's gradient is finished twice in one backward, under ZeRO-1 or ZeRO-2.

    ## What happens
    The backward raises "AssertionError: The parameter 827 has already been reduced. Gradient computed twice for this
    partition. Multiple gradient reduction is currently not supported".

    ## Why
    ZeRO-1 and ZeRO-2 reduce a gradient as soon as its hook fires, and expect that once. Reentrant gradient
    checkpointing runs a backward of its own for each checkpointed call: a module that is called twice in a step (a
    vision tower on several images, chosen and rejected answers, a bi-encoder) or shares weights fires twice.

    ## Cure
    `gradient_checkpointing_kwargs={"use_reentrant": False}`; or no checkpointing for the module that is called twice
    (the vision tower, a frozen part); or one call on the concatenated inputs. ZeRO-3 allows several reductions.

    ## When it is safe
    Every checkpointed module is called once in a step, or checkpointing is off or not reentrant.

    ## Sources
    - https://github.com/OpenBMB/MiniCPM-V/issues/1003: full fine-tune with gradient checkpointing
    - https://github.com/OpenSenseNova/piccolo-embedding/issues/8: a bi-encoder; checkpointing off helped
    - https://github.com/xfactlab/orpo/issues/9: a loss that uses two forwards
    """

    page_zh = """ZeRO-1 或 ZeRO-2 下，同一参数的梯度在一次反向中完成了两次。

    ## 现象
    反向抛出 “AssertionError: The parameter 827 has already been reduced. Gradient computed twice for this partition.
    Multiple gradient reduction is currently not supported”。

    ## 原因
    ZeRO-1 与 ZeRO-2 在梯度钩子触发时立即归约，并假定只触发一次。可重入的梯度检查点会为每次被检查点包住的调用单独做反
    向：一步中被调用两次的模块（多张图像的视觉塔、chosen 与 rejected、双塔模型）或共享权重的模块会触发两次。

    ## 解决办法
    设 `gradient_checkpointing_kwargs={"use_reentrant": False}`；或对被调用两次的模块（视觉塔、冻结部分）关闭检查点；或
    把输入拼接后只调用一次。ZeRO-3 允许多次归约。

    ## 何时安全
    每个带检查点的模块一步只调用一次，或检查点关闭、或不可重入。

    ## 来源
    - https://github.com/OpenBMB/MiniCPM-V/issues/1003：开启梯度检查点的全参微调
    - https://github.com/OpenSenseNova/piccolo-embedding/issues/8：双塔模型，关闭检查点后解决
    - https://github.com/xfactlab/orpo/issues/9：使用两次前向的损失
    """

    name = "zero-param-already-reduced"
    title = Text(
        en="A parameter's gradient is computed twice in one backward, which ZeRO-1/2 refuse",
        zh="同一参数的梯度在一次反向中被计算两次，而 ZeRO-1/2 不允许",
    )
    sources = (
        "https://github.com/OpenBMB/MiniCPM-V/issues/1003",
        "https://github.com/OpenSenseNova/piccolo-embedding/issues/8",
        "https://github.com/xfactlab/orpo/issues/9",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """The model run twice for one loss, under reentrant checkpointing and ZeRO-2."""
        if run.zero_stage == 2:
            yield from recomputed_twice(self, script, run, "The parameter … has already been reduced", _CURE)

    log_words = (
        "params_already_reduced",
        "has already been reduced",
        "Gradient computed twice",
        "Multiple gradient reduction",
    )

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """DeepSpeed's assertion in stage_1_and_2.py."""
        evidence: LoggedError | Found | None = told_by(log, _TWICE, "AssertionError")
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence = cut_at(log, "zero/stage_1_and_2.py", "reduce_independent_p_g_buckets_and_remove_grads")
            certainty = Certainty.LIKELY
        if evidence is not None:
            yield self.log_finding(
                evidence,
                Text(
                    en="A gradient's hook fired twice in one backward: reentrant gradient checkpointing around a "
                    "module "
                    "that is called twice in the step, or that shares its weights.",
                    zh="一次反向中同一梯度的钩子触发了两次：可重入的梯度检查点包住了一步中被调用两次或共享权重的模块。",
                ),
                cure=(
                    Text(
                        'gradient_checkpointing_kwargs={"use_reentrant": False}, or no gradient checkpointing for the '
                        "module that is called twice",
                        'gradient_checkpointing_kwargs={"use_reentrant": False}，或对被调用两次的模块关闭梯度检查点',
                    ),
                    Text(
                        "Call the module once, on the concatenated inputs; or use ZeRO-3",
                        "把输入拼接后只调用一次该模块；或改用 ZeRO-3",
                    ),
                ),
                certainty=certainty,
            )
