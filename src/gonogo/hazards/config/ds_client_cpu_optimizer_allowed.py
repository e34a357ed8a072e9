from gonogo.hazards.config._written import optimizer_type, span_in
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsClientCpuOptimizerAllowed(Hazard):
    """zero_force_ds_cpu_optimizer is false while the optimizer is offloaded.

    ## What happens
    The optimizer step takes several times as long as DeepSpeedCPUAdam would.

    ## Why
    DeepSpeed then takes the optimizer that the code builds (torch's AdamW), which has no vectorized CPU kernel of
    DeepSpeed's.

    ## Cure
    Put an `optimizer` section into the config, and remove the key.

    ## When it is safe
    Where an optimizer is needed that DeepSpeed has no CPU kernel for.

    ## Sources
    - https://github.com/OptimalScale/LMFlow/issues/693: the message that the key silences
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: what the key allows
    """

    name = "ds-client-cpu-optimizer-allowed"
    title = Text(
        en="A plain optimizer is allowed on the CPU, which is slow", zh="允许普通优化器在 CPU 上运行，速度较慢"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The key false, the optimizer offloaded, and none in the config."""
        if config.raw("zero_force_ds_cpu_optimizer").truth is not False or not config.zero_stage:
            return
        device = config.offload("optimizer")
        if not device.known or device.value == "none" or optimizer_type(config) is not None:
            return
        yield self.finding(
            Text(
                en="zero_force_ds_cpu_optimizer is false and the optimizer is offloaded: one that the code builds runs "
                "on the CPU, without DeepSpeed's kernels.",
                zh="zero_force_ds_cpu_optimizer 为 false，而优化器被卸载：代码构建的优化器会在 CPU 上运行，没有 "
                "DeepSpeed 的内核。",
            ),
            severity=Severity.NOTE,
            cure=(
                Text(
                    'Add an "optimizer" section ("AdamW", values "auto"), and remove the key',
                    "加入 “optimizer” 段（“AdamW”，取值 “auto”），并去掉该键",
                ),
            ),
            spans=(span_in(config, "zero_force_ds_cpu_optimizer"), device.span()),
        )
