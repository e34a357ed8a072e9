from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsNvmeOffloadBelowStage3(Hazard):
    """offload_optimizer names NVMe at stage 1 or 2.

    ## What happens
    No file is written to the NVMe: the optimizer states take host memory, which may run out.

    ## Why
    ZeRO-1 and 2 know one way to offload: to host memory. Any device but "none" means that.

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
    title = Text(en="NVMe offload below ZeRO-3 goes to the CPU", zh="ZeRO-3 以下的 NVMe 卸载实际去了 CPU")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The device nvme for the optimizer at stage 1 or 2."""
        device = config.get(ZERO, "offload_optimizer", "device")
        if device.value != "nvme" or config.zero_stage not in (1, 2):
            return
        keys = (ZERO, "offload_optimizer", "device")
        yield self.finding(
            Text(
                en='offload_optimizer says "nvme" at stage {stage}, which offloads to host memory only: nothing goes '
                "to "
                "the NVMe.",
                zh="offload_optimizer 在 stage {stage} 写了 “nvme”，而此时只会卸载到主机内存：不会使用 NVMe。",
            ).format(stage=config.zero_stage),
            severity=Severity.WARNING,
            cure=(
                Text('Set "stage": 3 to use the NVMe', "若要使用 NVMe，设置 “stage”: 3"),
                Text('Or write "device": "cpu", which is what happens', "或写 “device”: “cpu”，与实际行为一致"),
            ),
            spans=(span_in(config, *keys), span_in(config, ZERO, "stage")),
            fixes=fix_of(Text('say "cpu"', "改为 “cpu”"), lambda: config.replacing(*keys, value="cpu")),
        )
