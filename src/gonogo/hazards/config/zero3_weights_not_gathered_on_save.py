from gonogo.hazards.facts.training_framework import (
    fix_with_edits,
    is_config_from_accelerate_yaml,
    mentions,
    uses_trainer,
)
from gonogo.hazards.rule import Edit, Environment, Field, Findings, Fix, Hazard, Run, Span, translated

_KEY = "stage3_gather_16bit_weights_on_model_save"


class Zero3WeightsNotGatheredOnSave(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Stage 3 with a Trainer that saves, and stage3_gather_16bit_weights_on_model_save false or left out."""
        if run.zero_stage != 3 or not uses_trainer(run) or run.launch is None:
            return
        saves, saving = _find_weight_saving(run)
        if not saves:
            return
        key, where, fixes = _gather_setting(run)
        if key is None or key.unknown or key.truth is True:
            return
        name = "zero3_save_16bit_model" if is_config_from_accelerate_yaml(run) else _KEY
        yield self.finding(
            self.texts["cause"].format(key=name, value=translated("not set") if key.absent else translated("false")),
            cure=(
                translated("Set {key} to true").format(key=name),
                translated("Or run python zero_to_fp32.py . out in the checkpoint folder afterwards"),
            ),
            spans=(where, saving),
            fixes=fixes,
        )


def _find_weight_saving(run: Run) -> tuple[bool, Span | None]:
    """Whether weights are saved, and where: by ``save_model``, by a framework, or in a Trainer's checkpoints."""
    if mentions(run, "peft", "lora", "Lora") or str(run.arguments.get("finetuning_type").get()).startswith("lora"):
        return False, None  # adapters are gathered regardless of the key
    for script in run.scripts:
        if b"zero_to_fp32" in script.source.data or b"16bit" in script.source.data:
            return False, None
        for call in script.calls("*.save_model"):
            kinds = script.kinds_of(call.receiver) if call.receiver is not None else ()
            if any(kind.endswith("Trainer") for kind in kinds):
                return True, call.place.span(translated("the model is saved here"))
    if run.launch is not None and run.framework == "llamafactory":
        ends = translated("LLaMA-Factory saves the model at the end")
        return True, run.launch.place.span(ends)
    return run.arguments.get("save_strategy").get() != "no", None


def _gather_setting(run: Run) -> tuple[Field | None, Span | None, tuple[Fix, ...]]:
    """The key in the config or the YAML, the place to change, and the fix."""
    title = translated("Gather the weights when saving")
    config, yaml = run.config, run.accelerate
    if config is not None and not is_config_from_accelerate_yaml(run):
        if config.preset is not None:
            return None, None, ()
        key = config.raw("zero_optimization", _KEY)
        if key.absent:
            key = config.raw("zero_optimization", "stage3_gather_fp16_weights_on_model_save")
        stage = config.raw("zero_optimization", "stage")

        def add_gather_on_save() -> Edit:
            return config.inserting("zero_optimization", _KEY, value=True)

        return key, (key.span() or stage.span()), fix_with_edits(title, add_gather_on_save, safe=False)
    if yaml is not None:
        key = yaml.get("deepspeed_config", "zero3_save_16bit_model")
        stage = yaml.get("deepspeed_config", "zero_stage")

        def add_save_16bit_model() -> Edit:
            return yaml.inserting("deepspeed_config", "zero3_save_16bit_model", value=True)

        return key, (key.span() or stage.span()), fix_with_edits(title, add_save_16bit_model, safe=False)
    return None, None, ()
