from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.hazards.config._optimizers import client_optimizer_in_loop, client_optimizer_of_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, FailureLog, Findings, Hazard, Pattern, Run, Script, Text

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

    name = "zero-offload-client-optimizer"
    title = Text(
        en="The optimizer is offloaded to the CPU and is not DeepSpeed's CPU optimizer",
        zh="优化器卸载到 CPU，却不是 DeepSpeed 的 CPU 优化器",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Offload without an optimizer block, under a Trainer that hands its own optimizer over."""
        yield from client_optimizer_of_trainer(self, config, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """``deepspeed.initialize(optimizer=...)`` with an optimizer of torch's, under offload."""
        yield from client_optimizer_in_loop(self, script, run)

    log_words = ("ZeRO-Offload with a client", "DeepSpeedCPUAdam or set", "raise ZeRORuntimeException")

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's refusal, with the optimizer's class where it is shown."""
        evidence = first_match(log, *_WORDS)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:
            evidence = cut_in(log, ("runtime/engine", "raise ZeRORuntimeException(msg)"), within=1)
        if evidence:
            named = _CLASS.search(matched_text(log, evidence))
            yield self.log_finding(
                evidence,
                Text(
                    en="The config offloads the optimizer to the CPU, and the code brings {optimizer}: DeepSpeed takes "
                    "only its own CPU optimizer there.",
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
