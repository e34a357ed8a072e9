from gonogo.hazards.config._written import ZERO, optimizer_type, span_in
from gonogo.hazards.facts.how_it_trains import fix_of, mentions
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text

_DEEPSPEEDS = frozenset({"lamb", "muadam", "muadamw", "musgd", "adam", "adamw", "adagrad", "lion", "muon"})
_UNTESTED = frozenset(
    {
        *("lamb", "muadam", "muadamw", "musgd", "SGD", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD"),
        *("Adadelta", "Adafactor", "LBFGS", "SparseAdam"),
    }
)


class DsOptimizerUntestedWithZero(Hazard):
    """The config's optimizer is none of those that ZeRO was tested with.

    ## What happens
    "AssertionError: You are using an untested ZeRO Optimizer. Please add <"zero_allow_untested_optimizer": true> in
    the configuration file to use it."

    ## Why
    ZeRO flattens and divides the parameters. It allows Adam, AdamW, Adagrad and Lion; an optimizer that looks at
    whole matrices (Lamb) or keeps other states goes wrong unnoticed.

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
    title = Text(
        en="ZeRO refuses the optimizer, which it does not list as tested", zh="ZeRO 拒绝未列入已测试名单的优化器"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An optimizer of torch's or DeepSpeed's own outside ZeRO's list."""
        stage = config.zero_stage
        name = optimizer_type(config)
        if not stage or name is None:
            return
        allowed = config.raw("zero_allow_untested_optimizer")
        if allowed.unknown or allowed.truth:
            return
        known = name.lower() if name.lower() in _DEEPSPEEDS else name
        if known not in _UNTESTED:
            return
        whole = known == "lamb"
        yield self.finding(
            Text(
                en="ZeRO-{stage} is on and the optimizer is {name}, which is none of those that DeepSpeed takes with "
                "ZeRO: Adam, AdamW, Adagrad, Lion.",
                zh="开启了 ZeRO-{stage}，优化器是 {name}，不在 DeepSpeed 允许与 ZeRO 搭配的优化器之列：Adam、AdamW、"
                "Adagrad、Lion。",
            ).format(stage=stage, name=name),
            certainty=Certainty.LIKELY if mentions(run, "deepspeed.initialize") else Certainty.CERTAIN,
            cure=(
                Text("Take AdamW", "改用 AdamW"),
                Text(
                    'Or set "zero_allow_untested_optimizer": true{warning}',
                    "或设置 “zero_allow_untested_optimizer”: true{warning}",
                ).format(
                    warning=Text(
                        "; Lamb's norms are then those of flattened slices, not of layers",
                        "；此时 Lamb 的范数是展平切片的范数，而不是各层的",
                    )
                    if whole
                    else Text("", "")
                ),
            ),
            spans=(span_in(config, "optimizer", "type"), span_in(config, ZERO, "stage")),
            fixes=()
            if whole
            else fix_of(
                Text("allow the optimizer", "允许该优化器"),
                lambda: config.inserting("zero_allow_untested_optimizer", value=True),
                safe=False,
            ),
        )
