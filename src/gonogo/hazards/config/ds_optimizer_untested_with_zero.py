from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.training_framework import mentions
from gonogo.hazards.rule import Certainty, Field

_DEEPSPEED_OPTIMIZERS = ("lamb", "muadam", "muadamw", "musgd")
_TORCH_OPTIMIZERS = (
    *("SGD", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD"),
    *("Adadelta", "Adafactor", "LBFGS", "SparseAdam"),
)


def _is_untested_optimizer(field: Field) -> bool:
    return field.string in _TORCH_OPTIMIZERS or (field.string or "").lower() in _DEEPSPEED_OPTIMIZERS


class DsOptimizerUntestedWithZero(ConfigHazard):
    wrong = staticmethod(_is_untested_optimizer)

    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """What to consider before allowing the optimizer; None if the config allows it already."""
        allowed = setting.config.raw("zero_allow_untested_optimizer")
        if allowed.unknown or allowed.truth:
            return None
        whole = str(setting.field.value).lower() == "lamb"
        return {
            "name": setting.field.value,
            "warning": self.texts["lamb_note"] if whole else "",
            "allow": None if whole else True,
        }

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """Only likely if the code calls deepspeed.initialize, whose optimizer argument replaces the config's."""
        return Certainty.LIKELY if mentions(setting.run, "deepspeed.initialize") else Certainty.CERTAIN
