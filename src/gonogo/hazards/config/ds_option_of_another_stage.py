from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.rule import translated

_STAGES_BY_OPTION = {
    "round_robin_gradients": (False, (1, 2), translated("stages 1 and 2")),
    "ignore_unused_parameters": (True, (2,), translated("stage 2")),
}
"""The default, and the stages at which another value has an effect."""


class DsOptionOfAnotherStage(ConfigHazard):
    keys = tuple(f"zero_optimization.{key}" for key in _STAGES_BY_OPTION)

    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``belongs``: the stages that use the option; None if it has its default value or is used at this stage."""
        default, stages, belongs = _STAGES_BY_OPTION[setting.keys[-1]]
        without_effect = setting.field.truth is (not default) and setting.config.zero_stage not in stages
        return {"belongs": belongs} if without_effect else None
