from gonogo.hazards.facts.deepspeed_settings import ZERO, has_stage_optimizer, key_spot, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, translated


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
            translated(
                "{key} requests {device}, but the ZeRO stage is 0: DeepSpeed builds its CPU optimizer over "
                "parameters that stay on the GPU, and the first step fails."
            ).format(key=key, device=as_json(device.value)),
            certainty=Certainty.CERTAIN if has_stage_optimizer(config) else Certainty.LIKELY,
            cure=(
                translated('Set "stage" to 1, 2 or 3: ZeRO is what moves the optimizer states to the CPU'),
                translated("Or remove {key}").format(key=key),
            ),
            spans=(span_in(config, ZERO, "stage") or span_in(config, ZERO, key), key_spot(config, ZERO, key)),
            fixes=fix_of(translated("take ZeRO-2"), lambda: config.inserting(ZERO, "stage", value=2), safe=False),
        )
