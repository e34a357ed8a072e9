from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, false
from gonogo.hazards.facts.deepspeed_settings import optimizer_type
from gonogo.hazards.rule import Severity, Span, Text


class DsClientCpuOptimizerAllowed(ConfigHazard):
    """zero_force_ds_cpu_optimizer is false while the optimizer is offloaded.
    ## What happens
    The optimizer step takes several times as long as DeepSpeedCPUAdam would.
    ## Why
    DeepSpeed then takes the optimizer that the code builds (torch's AdamW), which has no vectorized CPU kernel of
    DeepSpeed's.
    ## Example
    ```json
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "zero_force_ds_cpu_optimizer": false                       // wrong: a plain optimizer on the CPU
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}   // right: DeepSpeed's CPU optimizer
    ```
    ## Cure
    Put an `optimizer` section into the config, and remove the key.
    ## When it is safe
    Where an optimizer is needed that DeepSpeed has no CPU kernel for.
    ## Sources
    - https://github.com/OptimalScale/LMFlow/issues/693: the message that the key silences
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: what the key allows
    """

    name = "ds-client-cpu-optimizer-allowed"
    title = Text("A plain optimizer is allowed on the CPU, which is slow", "允许普通优化器在 CPU 上运行，速度较慢")

    keys = ("zero_force_ds_cpu_optimizer",)
    stages = (1, 2, 3)
    wrong = false
    severity = Severity.NOTE
    cause = Text(
        "{key} is false and the optimizer is offloaded: one that the code builds runs on the CPU, without DeepSpeed's "
        "kernels.",
        "{key} 为 false，而优化器被卸载：代码构建的优化器会在 CPU 上运行，没有 DeepSpeed 的内核。",
    )
    cure = (
        Text(
            'Add an "optimizer" section ("AdamW", values "auto"), and remove the key',
            "加入 “optimizer” 段（“AdamW”，取值 “auto”），并去掉该键",
        ),
    )

    def around(self, at: Setting) -> Words | None:
        """The optimizer is offloaded, and the config names none."""
        device = at.config.offload("optimizer")
        return {} if device.get("none") != "none" and optimizer_type(at.config) is None else None

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """Where the optimizer is offloaded."""
        return (at.config.offload("optimizer").span(),)
