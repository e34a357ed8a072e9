from collections.abc import Mapping

from gonogo.hazards.facts.deepspeed_settings import ZERO, config_key_span, config_span
from gonogo.hazards.rule import DeepSpeedConfig, Finding, Findings, Hazard, Run, Span, Text, translated


class DsZenflowSettingsRefused(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Settings that ZenFlow rejects, one finding each."""
        section = config.raw(ZERO, "zenflow")
        if not section.known or not isinstance(section.value, Mapping) or not config.zero_stage:
            return
        device = config.offload_target("optimizer")
        if config.zero_stage in (1, 2) and device.known and device.value == "none":
            yield self._build_finding(
                translated("ZenFlow is on, but the optimizer is not offloaded."),
                translated('Add "offload_optimizer": {"device": "cpu"}'),
                config_key_span(config, ZERO, "zenflow"),
                config_span(config, ZERO, "offload_optimizer"),
            )
        strategy = section.value.get("select_strategy", "auto")
        interval, update = section.value.get("select_interval", "auto"), section.value.get("update_interval", "auto")
        if strategy in ("step", "epoch") and isinstance(interval, str):
            yield self._build_finding(
                translated('select_strategy is "{strategy}", but select_interval is not a number.').format(
                    strategy=strategy
                ),
                translated("Set select_interval to a number of steps"),
                config_span(config, ZERO, "zenflow", "select_strategy"),
                config_span(config, ZERO, "zenflow", "select_interval"),
            )
        elif strategy == "auto" and isinstance(interval, int):
            yield self._build_finding(
                self.texts["interval_given_cause"].format(interval=interval),
                translated("Remove select_interval"),
                config_span(config, ZERO, "zenflow", "select_interval"),
            )
        elif strategy == "step" and isinstance(interval, int) and isinstance(update, int) and 0 < interval < update:
            yield self._build_finding(
                translated("select_interval is {interval}, less than update_interval {update}.").format(
                    interval=interval, update=update
                ),
                translated("Set select_interval to {update} or more").format(update=update),
                config_span(config, ZERO, "zenflow", "select_interval"),
                config_span(config, ZERO, "zenflow", "update_interval"),
            )

    def _build_finding(self, cause: Text, cure: Text, *spans: Span | None) -> Finding:
        return self.finding(cause, cure=cure, spans=spans)
