from gonogo.hazards.facts.deepspeed_settings import ZERO, has_stage_optimizer, key_spot, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text


class DsOffloadOptimizerWithoutZero(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An offload device at a stage that is surely 0."""
        if config.zero_stage != 0:
            return
        device = config.offload("optimizer")
        if not device.known or device.value == "none":
            return
        key = "offload_optimizer" if config.raw(ZERO, "offload_optimizer").known else "cpu_offload"
        yield self.finding(
            Text(
                "{key} asks for {device} and ZeRO's stage is 0: DeepSpeed builds its CPU optimizer over parameters "
                "that stay on the GPU, and the first step stops.",
                "{key} 要求 {device}，而 ZeRO 的 stage 为 0：DeepSpeed 会用 CPU 优化器去更新留在 GPU 上的参数，第一步就"
                "会报错。",
            ).format(key=key, device=as_json(device.value)),
            certainty=Certainty.CERTAIN if has_stage_optimizer(config) else Certainty.LIKELY,
            cure=(
                Text(
                    'Set "stage" to 1, 2 or 3: ZeRO is what moves the optimizer states to the CPU',
                    "把 “stage” 设为 1、2 或 3：把优化器状态移到 CPU 的正是 ZeRO",
                ),
                Text("Or remove {key}", "或去掉 {key}").format(key=key),
            ),
            spans=(span_in(config, ZERO, "stage") or span_in(config, ZERO, key), key_spot(config, ZERO, key)),
            fixes=fix_of(
                Text("take ZeRO-2", "使用 ZeRO-2"), lambda: config.inserting(ZERO, "stage", value=2), safe=False
            ),
        )
