from functools import partial

from gonogo.hazards.facts.deepspeed_settings import config_span, is_section_enabled
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text, translated


class DsProfilingLeftOn(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """One note about all profiling options that are on."""
        switches = ("wall_clock_breakdown", "memory_breakdown", "dump_state")
        keys: list[tuple[str, ...]] = [(name,) for name in switches if config.raw(name).truth]
        keys += [(name, "enabled") for name in ("flops_profiler", "comms_logger") if is_section_enabled(config, name)]
        if not keys:
            return
        yield self.finding(
            translated("These profiling settings slow down every step: {settings}.").format(
                settings=Text(", ".join(one[0] for one in keys), "、".join(one[0] for one in keys))
            ),
            spans=tuple(config_span(config, *one) for one in keys),
            fixes=fix_with_edits(
                translated("turn profiling off"),
                *(partial(config.replacing, *one, value=False) for one in keys),
                safe=False,
            ),
        )
