from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.rule import translated

_BELONGS = {
    "round_robin_gradients": (False, (1, 2), translated("stages 1 and 2")),
    "ignore_unused_parameters": (True, (2,), translated("stage 2")),
}
"""The default, and where another value has an effect."""


class DsOptionOfAnotherStage(ConfigHazard):
    keys = tuple(f"zero_optimization.{key}" for key in _BELONGS)

    def context_for(self, at: Setting) -> Words | None:
        """The stages that it belongs to, where it is not the default and this is none of them."""
        default, stages, belongs = _BELONGS[at.keys[-1]]
        without_effect = at.field.truth is (not default) and at.config.zero_stage not in stages
        return {"belongs": belongs} if without_effect else None
