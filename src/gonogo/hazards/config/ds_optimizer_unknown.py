from gonogo.hazards.config._nearest import nearest
from gonogo.hazards.config._written import optimizer_type, span_in
from gonogo.hazards.facts.how_it_trains import fix_of, mentions
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text

_SPELLED = ("Adam", "AdamW", "Lamb", "Lion", "Adagrad", "Muon", "MuAdam", "MuAdamW", "MuSGD")
_ONEBIT = ("onebitadam", "zerooneadam", "onebitlamb")  # refused elsewhere where they are
_DEEPSPEEDS = frozenset({*(name.lower() for name in _SPELLED), *_ONEBIT})
_TORCHS = (
    *("SGD", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD", "Adadelta", "Adafactor", "LBFGS", "SparseAdam"),
    "Muon",
)


class DsOptimizerUnknown(Hazard):
    """The optimizer's type is neither DeepSpeed's nor torch's.

    ## What happens
    "AssertionError: AdamW8bit is not a supported DeepSpeed Optimizer".

    ## Why
    `type` is a name of DeepSpeed's (any case) or a class of `torch.optim` (exact case). Names of transformers'
    `--optim` (`adamw_torch`, `paged_adamw_8bit`) are neither.

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
    title = Text(en="DeepSpeed does not know the optimizer", zh="DeepSpeed 不认识该优化器")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A type that no release of DeepSpeed or torch has, with the nearest that there is."""
        name = optimizer_type(config)
        if name is None or name == "auto" or name.lower() in _DEEPSPEEDS or name in _TORCHS:
            return
        near = nearest(name, (*_SPELLED, *_TORCHS))
        kind = Certainty.LIKELY if mentions(run, "deepspeed.initialize") else Certainty.CERTAIN
        yield self.finding(
            Text(
                en='"{name}" is no optimizer of DeepSpeed\'s ({known}) and no class of torch.optim.',
                zh="“{name}” 既不是 DeepSpeed 的优化器（{known}），也不是 torch.optim 的类。",
            ).format(name=name, known=", ".join(_SPELLED)),
            certainty=kind,
            cure=(
                Text('Write "{near}"', "写 “{near}”").format(near=near or "AdamW"),
                Text(
                    'Or remove "optimizer" here, and choose it in the code or by --optim',
                    "或去掉此处的 “optimizer”，在代码中或用 --optim 选择",
                ),
            ),
            spans=(span_in(config, "optimizer", "type"),),
            fixes=fix_of(
                Text("write {near}", "写成 {near}").format(near=near),
                lambda: config.replacing("optimizer", "type", value=near),
                safe=False,
            )
            if near
            else (),
        )
