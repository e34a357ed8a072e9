"""zero-offload-client-optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.said import said, told
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.config._optimizers import client_optimizer_in_loop, client_optimizer_of_trainer
from gonogo.hazards.hazard import Hazard

_WORDS = (
    "You are using ZeRO-Offload with a client provided optimizer",
    "ZeRO-Offload with a client provided optimizer",
    "either use deepspeed.ops.adam.DeepSpeedCPUAdam or set an optimizer in your ds-config",
)
_CLASS = Pattern(r"<class '([\w.]{1,200})'")


class ZeroOffloadClientOptimizer(Hazard):
    """The optimizer is offloaded to the CPU, and the code brings one that is not DeepSpeed's CPU optimizer.

    ## What happens
    "deepspeed.runtime.zero.utils.ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer
    (<class 'transformers.optimization.AdamW'>) which in most cases will yield poor performance", in
    `deepspeed.initialize`.

    ## Why
    With `offload_optimizer: cpu` the update runs on the CPU. DeepSpeed refuses an optimizer of the caller's there,
    unless it is its own `DeepSpeedCPUAdam`, since a plain one is slow.

    ## Cure
    Put an `optimizer` block into the JSON ("AdamW", values "auto"), so that DeepSpeed builds DeepSpeedCPUAdam; or
    build `deepspeed.ops.adam.DeepSpeedCPUAdam` in the code; or accept the slow update with
    `"zero_force_ds_cpu_optimizer": false`.

    ## When it is safe
    Without `offload_optimizer`, or with one of the above.

    ## Sources
    - https://github.com/OptimalScale/LMFlow/issues/693: the Trainer's AdamW with offload
    - https://github.com/deepspeedai/DeepSpeed/issues/7524: DeepSpeedCPULion was refused as well, until it was fixed
    """

    page_zh = """优化器卸载到 CPU，而代码传入的不是 DeepSpeed 的 CPU 优化器。

    ## 现象
    `deepspeed.initialize` 中出现 “deepspeed.runtime.zero.utils.ZeRORuntimeException: You are using ZeRO-Offload with
    a client provided optimizer (<class 'transformers.optimization.AdamW'>) which in most cases will yield poor
    performance”。

    ## 原因
    设置 `offload_optimizer: cpu` 后，参数更新在 CPU 上进行。普通优化器在 CPU 上很慢，所以 DeepSpeed 只接受自己的
    `DeepSpeedCPUAdam`，拒绝调用方的优化器。

    ## 解决办法
    在 JSON 中加入 `optimizer` 段（"AdamW"，取值 "auto"），由 DeepSpeed 构建 DeepSpeedCPUAdam；或在代码中构建
    `deepspeed.ops.adam.DeepSpeedCPUAdam`；或用 `"zero_force_ds_cpu_optimizer": false` 接受较慢的更新。

    ## 何时安全
    不使用 `offload_optimizer`，或采用上述任一做法时。

    ## 来源
    - https://github.com/OptimalScale/LMFlow/issues/693：Trainer 的 AdamW 加卸载
    - https://github.com/deepspeedai/DeepSpeed/issues/7524：DeepSpeedCPULion 曾同样被拒绝，后已修复
    """

    name = "zero-offload-client-optimizer"
    title = Text(
        en="The optimizer is offloaded to the CPU and is not DeepSpeed's CPU optimizer",
        zh="优化器卸载到 CPU，却不是 DeepSpeed 的 CPU 优化器",
    )
    sources = (
        "https://github.com/OptimalScale/LMFlow/issues/693",
        "https://github.com/deepspeedai/DeepSpeed/issues/7524",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """Offload without an optimizer block, under a Trainer that hands its own optimizer over."""
        yield from client_optimizer_of_trainer(self, config, run)

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """``deepspeed.initialize(optimizer=...)`` with an optimizer of torch's, under offload."""
        yield from client_optimizer_in_loop(self, script, run)

    log_words = ("ZeRO-Offload with a client", "DeepSpeedCPUAdam or set", "raise ZeRORuntimeException")

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """DeepSpeed's refusal, with the optimizer's class where it is shown."""
        evidence = said(log, *_WORDS)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:
            evidence = cut_in(log, ("runtime/engine", "raise ZeRORuntimeException(msg)"), within=1)
        if evidence:
            named = _CLASS.search(told(log, evidence))
            yield self.log_finding(
                evidence,
                Text(
                    en="The config offloads the optimizer to the CPU, and the code brings {optimizer}: DeepSpeed "
                    "takes only its own CPU optimizer there.",
                    zh="配置把优化器卸载到 CPU，而代码传入 {optimizer}：此时 DeepSpeed 只接受自己的 CPU 优化器。",
                ).format(optimizer=named.group(1) if named else Text("an optimizer of its own", "自己的优化器")),
                certainty=certainty,
                cure=(
                    Text(
                        en='Add an "optimizer" block ("type": "AdamW", values "auto") to the DeepSpeed JSON, or '
                        "build deepspeed.ops.adam.DeepSpeedCPUAdam in the code",
                        zh='在 DeepSpeed JSON 中加入 "optimizer" 段（"type": "AdamW"，取值 "auto"），或在代码中构建 '
                        "deepspeed.ops.adam.DeepSpeedCPUAdam",
                    ),
                    Text(
                        en='Or set "zero_force_ds_cpu_optimizer": false (slower), or remove offload_optimizer',
                        zh='或设置 "zero_force_ds_cpu_optimizer": false（较慢），或去掉 offload_optimizer',
                    ),
                ),
            )
