from collections.abc import Mapping

from gonogo.hazards.config._nearest import nearest
from gonogo.hazards.facts.deepspeed_settings import optimizer_type, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of, mentions
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Finding, Findings, Fix, Hazard, Run, Text, translated

_ADAM = frozenset(
    {
        *("lr", "betas", "eps", "weight_decay", "bias_correction", "amsgrad", "adam_w_mode", "adamw_mode"),
        *("set_grad_none", "torch_adam", "fp32_optimizer_states", "foreach", "fused", "capturable", "maximize"),
        *("differentiable", "decoupled_weight_decay"),
    }
)
_TAKEN = {
    "adam": _ADAM,
    "adamw": _ADAM,
    "lion": frozenset({"lr", "betas", "weight_decay", "set_grad_none", "adamw_mode", "fp32_optimizer_states"}),
    "sgd": frozenset(
        {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable", "fused"}
    ),
}
# TrainingArguments' names and other ways to say it.
_MEANT = {"learning_rate": "lr", "adam_epsilon": "eps", "epsilon": "eps", "decay": "weight_decay", "wd": "weight_decay"}

_CLIP = translated('Write "gradient_clipping": {value} at the top level instead')
_CLIPPED = translated('Remove it: "gradient_clipping": {value} already limits the norm')

_CLIP = translated('Write "gradient_clipping": {value} at the top level instead')
_CLIPPED = translated('Remove it: "gradient_clipping": {value} already limits the norm')


def _sureness(run: Run) -> Certainty:
    """An optimizer that the code hands to deepspeed.initialize takes the place of the config's."""
    return Certainty.LIKELY if mentions(run, "deepspeed.initialize") else Certainty.CERTAIN


class DsOptimizerUnknownParameter(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Keys that neither DeepSpeed's nor torch's optimizer of that name takes."""
        params = config.raw("optimizer", "params")
        name = (optimizer_type(config) or "").lower()
        if not params.known or not isinstance(params.value, Mapping):
            return
        if "max_grad_norm" in params.value:
            yield self._max_grad_norm(config, run, params.value["max_grad_norm"])
        taken = _TAKEN.get(name)
        if taken is None:
            return
        for key in params.value:
            if key in taken or key == "max_grad_norm":
                continue
            meant = _MEANT.get(key) or nearest(key, taken, cutoff=0.7)
            keys = ("optimizer", "params", key)
            if meant is None:
                names = sorted(taken)
                cure = Text(f"Remove it; there are: {', '.join(names)}", f"去掉它；可用的有：{'、'.join(names)}")
            elif meant in params.value:
                cure = Text(f'Remove it: "{meant}" is given already', f"去掉它：已经写了 “{meant}”")
            else:
                cure = Text(f'Write "{meant}"', f"写 “{meant}”")
            yield self.finding(
                translated(
                    "{optimizer} takes no parameter {key}: DeepSpeed passes it to the constructor, which raises "
                    "TypeError."
                ).format(optimizer=optimizer_type(config), key=key),
                certainty=_sureness(run),
                cure=cure,
                spans=span_in(config, *keys),
                fixes=_renaming(config, keys, meant) if meant and meant not in params.value else (),
            )

    def _max_grad_norm(self, config: DeepSpeedConfig, run: Run, value: object) -> Finding:
        keys = ("optimizer", "params", "max_grad_norm")
        clipping = config.raw("gradient_clipping")
        makers = [lambda: config.removing(*keys)]
        title, cure = translated("remove it"), _CLIPPED
        if clipping.absent or clipping.number == 0:
            makers.append(lambda: config.inserting("gradient_clipping", value=value))
            title, cure = translated("use gradient_clipping"), _CLIP
        return self.finding(
            translated(
                'DeepSpeed refuses "max_grad_norm" as an optimizer parameter: ValueError when the optimizer is built.'
            ),
            certainty=_sureness(run),
            cure=cure.format(value=as_json(clipping.get(value))),
            spans=(span_in(config, *keys), span_in(config, "gradient_clipping")),
            fixes=fix_of(title, *makers, safe=False),
        )


def _renaming(config: DeepSpeedConfig, keys: tuple[str, ...], meant: str) -> tuple[Fix, ...]:
    place = config.key_place(*keys)
    if place is None or not place.source.writable:
        return ()
    return fix_of(Text(f"write {meant}", f"写成 {meant}"), lambda: place.edit(f'"{meant}"'), safe=False)
