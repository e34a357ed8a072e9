from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.rule import translated

_STAGES_BY_OPTION = {
    "round_robin_gradients": (False, (1, 2), translated("stages 1 and 2")),
    "ignore_unused_parameters": (True, (2,), translated("stage 2")),
}
"""The default, and the stages at which another value has an effect."""


class DsOptionOfAnotherStage(ConfigHazard):
    keys = tuple(f"zero_optimization.{key}" for key in _STAGES_BY_OPTION)

    def context_for(self, setting: Setting) -> Words | None:
        """The stages of the option if its value is not the default and the current stage is none of them."""
        default, stages, belongs = _STAGES_BY_OPTION[setting.keys[-1]]
        without_effect = setting.field.truth is (not default) and setting.config.zero_stage not in stages
        return {"belongs": belongs} if without_effect else None
