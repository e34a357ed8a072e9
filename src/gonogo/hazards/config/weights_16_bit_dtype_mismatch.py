from collections.abc import Iterator

from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import Environment, Field, Findings, Hazard, Run, translated

_TORCH_DTYPE_NAMES = {"fp16": "float16", "bf16": "bfloat16"}
_PRECISION_BY_DTYPE = {"float16": "fp16", "half": "fp16", "fp16": "fp16", "bfloat16": "bf16", "bf16": "bf16"}


class Weights16BitDtypeMismatch(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A dtype of loaded weights, from an option or the script, that differs from the training dtype."""
        trained = _training_dtype(run)
        if trained is None:
            return
        wanted, because = trained
        for name, field in _weight_dtype_settings(run):
            loaded = _PRECISION_BY_DTYPE.get(str(field.value).rpartition(".")[2].lower())
            if loaded is None or loaded == wanted:
                continue
            yield self.finding(
                self.texts["cause"].format(loaded=loaded, wanted=wanted),
                cure=translated('Set {name} to {type} or "auto"').format(name=name, type=_TORCH_DTYPE_NAMES[wanted]),
                spans=(field.span(), because.span(translated("trained in {dtype}").format(dtype=wanted))),
            )
            return


def _training_dtype(run: Run) -> tuple[str, Field] | None:
    """The 16-bit dtype that the run certainly trains in, and the setting that says so."""
    switched_on: list[tuple[str, Field]] = []
    for name in ("fp16", "bf16"):
        argument = run.arguments.get(name) if uses_trainer(run) else Field.missing()
        config = run.config.raw(name, "enabled") if run.config is not None else Field.missing()
        if argument.truth is True:
            switched_on.append((name, argument))
        elif config.truth is True:
            switched_on.append((name, config))
    return switched_on[0] if len(switched_on) == 1 else None


def _weight_dtype_settings(run: Run) -> Iterator[tuple[str, Field]]:
    """The settings of the weights' dtype: ``--torch_dtype``, and ``from_pretrained`` of a model that is trained."""
    if uses_trainer(run):
        for name in ("torch_dtype", "model_dtype"):
            field = run.arguments.get(name)
            if field.string and run.arguments.source_of(name) != "script":
                yield name, field
    calls = [call for script in run.scripts for call in script.calls("*.from_pretrained") if "Model" in call.name]
    if len(calls) != 1 or calls[0].has("quantization_config"):
        return  # with several models, one may be used for evaluation only
    for name in ("torch_dtype", "dtype"):
        field = calls[0].keyword(name)
        if field.known and isinstance(field.value, str):
            yield name, field
