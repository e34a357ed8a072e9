from gonogo.evidence.config.accelerate import AccelerateConfig
from gonogo.hazards.facts.training_framework import fix_with_edits, uses_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Environment, Field, Findings, Hazard, Run, translated

# accelerate/utils/dataclasses.py, DeepSpeedPlugin._deepspeed_config_checks; with the equivalent key of the JSON.
_DEEPSPEED_KEYS_BY_NAME = {
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("gradient_clipping",),
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "offload_param_nvme_path": ("zero_optimization", "offload_param", "nvme_path"),
    "offload_optimizer_nvme_path": ("zero_optimization", "offload_optimizer", "nvme_path"),
    "zero3_save_16bit_model": ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"),
}
Keys = tuple[str, ...]


class AccelerateConfigKeysWithDeepspeedConfig(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """One finding for all keys of accelerate's YAML that it refuses beside a DeepSpeed JSON."""
        yaml = run.accelerate
        if yaml is None or not yaml.enables_deepspeed:
            return
        json_file = _deepspeed_json_field(run, yaml)
        if json_file is None:
            return
        wrong: list[tuple[Keys, Field]] = []
        for name in _DEEPSPEED_KEYS_BY_NAME:
            keys = ("deepspeed_config", name)
            if _has_value(field := yaml.get(*keys)):
                wrong.append((keys, field))
        precision = yaml.get("mixed_precision")
        if _has_value(precision) and not (run.launch is not None and "mixed_precision" in run.launch.launcher_options):
            wrong.append((("mixed_precision",), precision))
        if not wrong:
            return
        only_precision = len(wrong) == 1 and wrong[0][0] == ("mixed_precision",)
        names = ", ".join(keys[-1] for keys, _ in wrong)
        in_json = _is_set_in_json(wrong, run.config)
        yield self.finding(
            self.texts["cause"].format(file=json_file.value, names=names),
            certainty=Certainty.LIKELY if only_precision and run.launch is None else Certainty.CERTAIN,
            cure=(
                (
                    translated("Remove {names} from the YAML: {file} already sets it")
                    if in_json
                    else translated("Remove {names} from the YAML, and set it in {file}")
                ).format(names=names, file=json_file.value),
                translated("Or use no DeepSpeed JSON, and keep the settings in the YAML"),
            ),
            spans=(*(field.span() for _, field in wrong), json_file.span(translated("the DeepSpeed config"))),
            fixes=fix_with_edits(
                translated("Remove {names} from the YAML").format(names=names),
                *(lambda keys=keys: yaml.removing(*keys) for keys, _ in wrong),
                safe=in_json,
            ),
            confirm=(translated("accelerate launch is not given --mixed_precision"),)
            if only_precision and run.launch is None
            else (),
        )


def _has_value(field: Field) -> bool:
    return not field.absent and not (field.known and field.value is None)


def _deepspeed_json_field(run: Run, yaml: AccelerateConfig) -> Field | None:
    """Where a DeepSpeed JSON is named: in the YAML, or by an option that reaches the same plugin."""
    named = yaml.get("deepspeed_config", "deepspeed_config_file")
    if named.known and named.value not in (None, "none"):
        return named
    if run.launch is None:
        return None
    option = run.launch.launcher_options.get("deepspeed_config_file")
    if option.string:
        return option
    option = run.launch.options.get("deepspeed")
    return option if option.string and option.string.endswith(".json") and uses_trainer(run) else None


def _is_set_in_json(invalid_keys: list[tuple[Keys, Field]], config: DeepSpeedConfig | None) -> bool:
    """Whether the JSON has all the values already, so that nothing is lost if the YAML's keys are removed."""
    if config is None:
        return False
    for keys, field in invalid_keys:
        if keys == ("mixed_precision",):
            word = str(field.value).lower()
            if word in ("fp16", "bf16") and not config.raw(word, "enabled").known:
                return False
        elif not config.raw(*_DEEPSPEED_KEYS_BY_NAME[keys[-1]]).known and str(field.value).lower() not in (
            "none",
            "false",
            "no",
        ):
            return False
    return True
