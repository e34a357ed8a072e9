from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words
from gonogo.hazards.config._nearest import nearest
from gonogo.hazards.facts.how_it_trains import mentions
from gonogo.hazards.rule import Certainty, Field, Pattern, Refusal, Text

_SPELLED = ("Adam", "AdamW", "Lamb", "Lion", "Adagrad", "Muon", "MuAdam", "MuAdamW", "MuSGD")
_ONEBIT = ("onebitadam", "zerooneadam", "onebitlamb")  # refused elsewhere where they are
_DEEPSPEEDS = frozenset({"auto", *(name.lower() for name in _SPELLED), *_ONEBIT})
_TORCHS = (
    *("SGD", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD", "Adadelta", "Adafactor", "LBFGS", "SparseAdam"),
    "Muon",
)


def _unknown(field: Field) -> bool:
    return field.string is not None and field.string.lower() not in _DEEPSPEEDS and field.string not in _TORCHS


def _meant(name: str) -> str | None:
    """The nearest that there is, or the one within a name of --optim: ``paged_lion_8bit``."""
    within = name.lower().split("_")
    return nearest(name, (*_SPELLED, *_TORCHS)) or next((one for one in _SPELLED if one.lower() in within), None)


class DsOptimizerUnknown(ConfigHazard):
    """The optimizer's type is neither DeepSpeed's nor torch's.
    ## What happens
    "AssertionError: AdamW8bit is not a supported DeepSpeed Optimizer".
    ## Why
    `type` is a name of DeepSpeed's (any case) or a class of `torch.optim` (exact case). Names of transformers'
    `--optim` (`adamw_torch`, `paged_adamw_8bit`) are neither.
    ## Example
    ```json
    "optimizer": {"type": "adamw_torch"}    // wrong: a name for --optim
    "optimizer": {"type": "AdamW"}          // right
    ```
    ## Cure
    Write AdamW; for an optimizer of another library, remove the `optimizer` section and build it in the code or
    with `--optim`.
    ## When it is safe
    A custom optimizer that the script passes to `deepspeed.initialize`.
    ## Sources
    - https://www.deepspeed.ai/docs/config-json/: the optimizers by name
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: `_is_supported_optimizer`
    """

    name = "ds-optimizer-unknown"
    raises = True
    title = Text("DeepSpeed does not know the optimizer", "DeepSpeed 不认识该优化器")
    refusal = Refusal(
        Pattern(r"is not a supported DeepSpeed Optimizer"), unless=Pattern(r"OneBit\w+ is not a supported")
    )

    keys = ("optimizer.type",)
    wrong = _unknown
    cause = Text(
        f"{{value}} is no optimizer of DeepSpeed's ({', '.join(_SPELLED)}) and no class of torch.optim.",
        f"{{value}} 既不是 DeepSpeed 的优化器（{'、'.join(_SPELLED)}），也不是 torch.optim 的类。",
    )
    cure = (
        Text('Write "{instead}"', "写 “{instead}”"),
        Text(
            'Or remove "optimizer" here, and choose it in the code or by --optim',
            "或去掉此处的 “optimizer”，在代码中或用 --optim 选择",
        ),
    )
    change = Change(Text("write {near}", "写成 {near}"), to="{near}", safe=False)

    def around(self, at: Setting) -> Words | None:
        """What was meant."""
        near = _meant(at.field.string or "")
        return {"near": near, "instead": near or "AdamW"}

    def sureness(self, at: Setting) -> Certainty:
        """An optimizer that the code hands to deepspeed.initialize takes the place of the config's."""
        return Certainty.LIKELY if mentions(at.run, "deepspeed.initialize") else Certainty.CERTAIN
