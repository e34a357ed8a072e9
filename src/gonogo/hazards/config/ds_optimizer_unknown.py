from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words
from gonogo.hazards.facts.nearest import find_similar_name
from gonogo.hazards.facts.training_framework import mentions
from gonogo.hazards.rule import Certainty, Field, Text

_OPTIMIZER_NAMES = ("Adam", "AdamW", "Lamb", "Lion", "Adagrad", "Muon", "MuAdam", "MuAdamW", "MuSGD")
_ONEBIT_OPTIMIZERS = ("onebitadam", "zerooneadam", "onebitlamb")  # hazards of their own report these
_KNOWN_OPTIMIZERS = frozenset({"auto", *(name.lower() for name in _OPTIMIZER_NAMES), *_ONEBIT_OPTIMIZERS})
_TORCH_OPTIMIZERS = (
    *("SGD", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD", "Adadelta", "Adafactor", "LBFGS", "SparseAdam"),
    "Muon",
)


def _is_unknown_optimizer(field: Field) -> bool:
    return (
        field.string is not None
        and field.string.lower() not in _KNOWN_OPTIMIZERS
        and field.string not in _TORCH_OPTIMIZERS
    )


def _closest_optimizer(name: str) -> str | None:
    """The most similar known optimizer, or the one contained in a name for --optim: ``paged_lion_8bit``."""
    within = name.lower().split("_")
    return find_similar_name(name, (*_OPTIMIZER_NAMES, *_TORCH_OPTIMIZERS)) or next(
        (one for one in _OPTIMIZER_NAMES if one.lower() in within), None
    )


class DsOptimizerUnknown(ConfigHazard):
    wrong = staticmethod(_is_unknown_optimizer)
    cause = Text(
        f"{{value}} is no optimizer of DeepSpeed's ({', '.join(_OPTIMIZER_NAMES)}) and no class of torch.optim.",
        f"{{value}} 既不是 DeepSpeed 的优化器（{'、'.join(_OPTIMIZER_NAMES)}），也不是 torch.optim 的类。",
    )

    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``near`` and ``instead``: the optimizer that was probably meant."""
        near = _closest_optimizer(setting.field.string or "")
        return {"near": near, "instead": near or "AdamW"}

    def certainty_for(self, setting: SettingInConfig) -> Certainty:
        """Only likely if the code calls deepspeed.initialize, whose optimizer argument replaces the config's."""
        return Certainty.LIKELY if mentions(setting.run, "deepspeed.initialize") else Certainty.CERTAIN
