from gonogo.hazards.config._nearest import nearest
from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.how_it_trains import mentions
from gonogo.hazards.rule import Certainty, Field, Text

_SPELLED = ("Adam", "AdamW", "Lamb", "Lion", "Adagrad", "Muon", "MuAdam", "MuAdamW", "MuSGD")
_ONEBIT = ("onebitadam", "zerooneadam", "onebitlamb")  # refused elsewhere where they are
_DEEPSPEEDS = frozenset({"auto", *(name.lower() for name in _SPELLED), *_ONEBIT})
_TORCHS = (
    *("SGD", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD", "Adadelta", "Adafactor", "LBFGS", "SparseAdam"),
    "Muon",
)


def _is_unknown(field: Field) -> bool:
    return field.string is not None and field.string.lower() not in _DEEPSPEEDS and field.string not in _TORCHS


def _meant(name: str) -> str | None:
    """The nearest that there is, or the one within a name of --optim: ``paged_lion_8bit``."""
    within = name.lower().split("_")
    return nearest(name, (*_SPELLED, *_TORCHS)) or next((one for one in _SPELLED if one.lower() in within), None)


class DsOptimizerUnknown(ConfigHazard):
    wrong = staticmethod(_is_unknown)
    cause = Text(
        f"{{value}} is no optimizer of DeepSpeed's ({', '.join(_SPELLED)}) and no class of torch.optim.",
        f"{{value}} 既不是 DeepSpeed 的优化器（{'、'.join(_SPELLED)}），也不是 torch.optim 的类。",
    )

    def context_for(self, at: Setting) -> Words | None:
        """What was meant."""
        near = _meant(at.field.string or "")
        return {"near": near, "instead": near or "AdamW"}

    def certainty_for(self, at: Setting) -> Certainty:
        """An optimizer that the code hands to deepspeed.initialize takes the place of the config's."""
        return Certainty.LIKELY if mentions(at.run, "deepspeed.initialize") else Certainty.CERTAIN
