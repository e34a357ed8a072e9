from gonogo.hazards.config_rule import Change, ConfigHazard, word
from gonogo.hazards.rule import Severity, Text


class DsNvmeOffloadBelowStage3(ConfigHazard):
    """offload_optimizer names NVMe at stage 1 or 2.
    ## What happens
    No file is written to the NVMe: the optimizer states take host memory, which may run out.
    ## Why
    ZeRO-1 and 2 know one way to offload: to host memory. Any device but "none" means that.
    ## Example
    ```json
    // "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}
    "stage": 2    // wrong: the states go to host memory
    "stage": 3    // right
    ```
    ## Cure
    Take stage 3, or write `"device": "cpu"` to say what happens.
    ## When it is safe
    At stage 3.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: any device but
      none is CPU offload
    - https://www.deepspeed.ai/docs/config-json/: NVMe offload belongs to ZeRO-Infinity, stage 3
    """

    name = "ds-nvme-offload-below-stage-3"
    title = Text("NVMe offload below ZeRO-3 goes to the CPU", "ZeRO-3 以下的 NVMe 卸载实际去了 CPU")

    keys = ("zero_optimization.offload_optimizer.device",)
    stages = (1, 2)
    wrong = word("nvme")
    fills_in_auto = True
    severity = Severity.WARNING
    cause = Text(
        '{section} says "nvme" at stage {stage}, which offloads to host memory only: nothing goes to the NVMe.',
        "{section} 在 stage {stage} 写了 “nvme”，而此时只会卸载到主机内存：不会使用 NVMe。",
    )
    cure = (
        Text('Set "stage": 3 to use the NVMe', "若要使用 NVMe，设置 “stage”: 3"),
        Text('Or write "device": "cpu", which is what happens', "或写 “device”: “cpu”，与实际行为一致"),
    )
    beside = ("zero_optimization.stage",)
    change = Change(Text('say "cpu"', "改为 “cpu”"), to="cpu")
