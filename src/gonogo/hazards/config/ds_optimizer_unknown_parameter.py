from collections.abc import Mapping

from gonogo.hazards.facts.deepspeed_settings import config_span, optimizer_type
from gonogo.hazards.facts.nearest import find_similar_name
from gonogo.hazards.facts.training_framework import fix_with_edits, format_json, mentions
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Finding, Findings, Fix, Hazard, Run, Text, translated

_ADAM_PARAMETERS = frozenset(
    {
        *("lr", "betas", "eps", "weight_decay", "bias_correction", "amsgrad", "adam_w_mode", "adamw_mode"),
        *("set_grad_none", "torch_adam", "fp32_optimizer_states", "foreach", "fused", "capturable", "maximize"),
        *("differentiable", "decoupled_weight_decay"),
    }
)
_PARAMETERS_BY_OPTIMIZER = {
    "adam": _ADAM_PARAMETERS,
    "adamw": _ADAM_PARAMETERS,
    "lion": frozenset({"lr", "betas", "weight_decay", "set_grad_none", "adamw_mode", "fp32_optimizer_states"}),
    "sgd": frozenset(
        {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable", "fused"}
    ),
}
# TrainingArguments' names and other synonyms.
_PARAMETER_ALIASES = {
    "learning_rate": "lr",
    "adam_epsilon": "eps",
    "epsilon": "eps",
    "decay": "weight_decay",
    "wd": "weight_decay",
}


def _judge_certainty(run: Run) -> Certainty:
    """Only likely if the code calls deepspeed.initialize, whose optimizer argument replaces the config's."""
    return Certainty.LIKELY if mentions(run, "deepspeed.initialize") else Certainty.CERTAIN


class DsOptimizerUnknownParameter(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Keys that neither DeepSpeed's nor torch's optimizer of that name accepts."""
        params = config.raw("optimizer", "params")
        name = (optimizer_type(config) or "").lower()
        if not params.known or not isinstance(params.value, Mapping):
            return
        if "max_grad_norm" in params.value:
            yield self._max_grad_norm_finding(config, run, params.value["max_grad_norm"])
        taken = _PARAMETERS_BY_OPTIMIZER.get(name)
        if taken is None:
            return
        for key in params.value:
            if key in taken or key == "max_grad_norm":
                continue
            meant = _PARAMETER_ALIASES.get(key) or find_similar_name(key, taken, cutoff=0.7)
            keys = ("optimizer", "params", key)
            if meant is None:
                names = sorted(taken)
                cure = Text(f"Remove it; there are: {', '.join(names)}", f"去掉它；可用的有：{'、'.join(names)}")
            elif meant in params.value:
                cure = Text(f'Remove it: "{meant}" is given already', f"去掉它：已经写了 “{meant}”")
            else:
                cure = Text(f'Write "{meant}"', f"写 “{meant}”")
            yield self.finding(
                self.texts["cause_in_config"].format(optimizer=optimizer_type(config), key=key),
                certainty=_judge_certainty(run),
                cure=cure,
                spans=config_span(config, *keys),
                fixes=_rename_fixes(config, keys, meant) if meant and meant not in params.value else (),
            )

    def _max_grad_norm_finding(self, config: DeepSpeedConfig, run: Run, value: object) -> Finding:
        keys = ("optimizer", "params", "max_grad_norm")
        clipping = config.raw("gradient_clipping")
        makers = [lambda: config.removing(*keys)]
        title, cure = translated("remove the parameter"), self.texts["already_clipped_cure"]
        if clipping.absent or clipping.number == 0:
            makers.append(lambda: config.inserting("gradient_clipping", value=value))
            title, cure = translated("use gradient_clipping"), self.texts["gradient_clipping_cure"]
        return self.finding(
            self.texts["max_grad_norm_cause"],
            certainty=_judge_certainty(run),
            cure=cure.format(value=format_json(clipping.get(value))),
            spans=(config_span(config, *keys), config_span(config, "gradient_clipping")),
            fixes=fix_with_edits(title, *makers, safe=False),
        )


def _rename_fixes(config: DeepSpeedConfig, keys: tuple[str, ...], intended_key: str) -> tuple[Fix, ...]:
    place = config.key_place(*keys)
    if place is None or not place.source.writable:
        return ()
    return fix_with_edits(
        Text(f"write {intended_key}", f"写成 {intended_key}"), lambda: place.edit(f'"{intended_key}"'), safe=False
    )
