from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.deepspeed_settings import deepspeed_version_matches


class DsElasticityWithBatchSizes(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``given``: the batch sizes in the config; None if the release accepts them with elasticity."""
        ignored = setting.config.raw("elasticity", "ignore_non_elastic_batch_info").truth
        given = [key for key in self.beside if not setting.config.raw(key).absent]
        return (
            {"given": ", ".join(given)}
            if given and not ignored and not deepspeed_version_matches(setting.run, ">=0.19.8")
            else None
        )
