from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words
from gonogo.hazards.facts.how_it_trains import mentions
from gonogo.hazards.rule import Certainty, Field, Pattern, Refusal, Text

_DEEPSPEEDS = ("lamb", "muadam", "muadamw", "musgd")
_TORCHS = (
    *("SGD", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD"),
    *("Adadelta", "Adafactor", "LBFGS", "SparseAdam"),
)
_LAMB = Text(
    "; Lamb's norms are then those of flattened slices, not of layers",
    "；此时 Lamb 的范数是展平切片的范数，而不是各层的",
)


def _untested(field: Field) -> bool:
    return field.string in _TORCHS or (field.string or "").lower() in _DEEPSPEEDS


class DsOptimizerUntestedWithZero(ConfigHazard):
    """The config's optimizer is none of those that ZeRO was tested with.
    ## What happens
    "AssertionError: You are using an untested ZeRO Optimizer. Please add <"zero_allow_untested_optimizer": true> in
    the configuration file to use it."
    ## Why
    ZeRO flattens and partitions the parameters. It allows Adam, AdamW, Adagrad and Lion; an optimizer that looks at
    whole matrices (Lamb) or keeps other states goes wrong unnoticed.
    ## Example
    ```json
    // "zero_optimization": {"stage": 2}
    "optimizer": {"type": "SGD"}                                           // wrong
    "optimizer": {"type": "SGD"}, "zero_allow_untested_optimizer": true    // right
    ```
    ## Cure
    Take AdamW, or set `"zero_allow_untested_optimizer": true` for an optimizer that works element by element, such
    as SGD.
    ## When it is safe
    Without ZeRO (stage 0).
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/173: why the key was made
    - https://github.com/EleutherAI/gpt-neox/pull/1166: the assertion with Lion
    """

    name = "ds-optimizer-untested-with-zero"
    raises = True
    title = Text("ZeRO refuses the optimizer, which it does not list as tested", "ZeRO 拒绝未列入已测试名单的优化器")
    refusal = Refusal(Pattern(r"You are using an untested ZeRO Optimizer"), Certainty.LIKELY)

    keys = ("optimizer.type",)
    stages = (1, 2, 3)
    wrong = _untested
    cause = Text(
        "ZeRO-{stage} is on and the optimizer is {name}, which is none of those that DeepSpeed takes with ZeRO: Adam, "
        "AdamW, Adagrad, Lion.",
        "开启了 ZeRO-{stage}，优化器是 {name}，不在 DeepSpeed 允许与 ZeRO 搭配的优化器之列：Adam、AdamW、Adagrad、Lion"
        "。",
    )
    cure = (
        Text("Take AdamW", "改用 AdamW"),
        Text(
            'Or set "zero_allow_untested_optimizer": true{warning}',
            "或设置 “zero_allow_untested_optimizer”: true{warning}",
        ),
    )
    beside = ("zero_optimization.stage",)
    change = Change(
        Text("allow the optimizer", "允许该优化器"), to="{allow}", key="zero_allow_untested_optimizer", safe=False
    )

    def around(self, at: Setting) -> Words | None:
        """What to think of before it is allowed; None where it is."""
        allowed = at.config.raw("zero_allow_untested_optimizer")
        if allowed.unknown or allowed.truth:
            return None
        whole = str(at.field.value).lower() == "lamb"
        return {"name": at.field.value, "warning": _LAMB if whole else "", "allow": None if whole else True}

    def sureness(self, at: Setting) -> Certainty:
        """An optimizer that the code hands to deepspeed.initialize takes the place of the config's."""
        return Certainty.LIKELY if mentions(at.run, "deepspeed.initialize") else Certainty.CERTAIN
