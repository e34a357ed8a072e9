from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.rule import Certainty


class DsAutotuningLeftOn(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``last``: the last step of the tuning; None if the launcher is asked to tune."""
        if setting.run.launch is not None and not setting.run.launch.launcher_options.get("autotuning").absent:
            return None
        last = setting.config.raw("autotuning", "end_profile_step").number
        return {"last": 5 if last is None else int(last)}

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """Certain if the launcher's options are known."""
        return Certainty.CERTAIN if setting.run.launch is not None else Certainty.LIKELY
