from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words, make_field_test
from gonogo.hazards.facts.deepspeed_settings import (
    deepspeed_version_matches,
    describe_deepspeed_version,
    is_section_enabled,
)

_FP32 = ("fp32", "float32", "torch.float32")
_BF16 = ("bf16", "bfloat16", "torch.bfloat16")


class DsGradAccumDtypeWithoutZero(ConfigHazard):
    wrong = staticmethod(make_field_test((*_FP32, *_BF16)))

    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """None unless bf16 is on and the release rejects this dtype with it."""
        fp32 = str(setting.field.value).lower() in _FP32
        refused = is_section_enabled(setting.config, "bf16") and deepspeed_version_matches(
            setting.run, ">=0.17.6" if fp32 else "<=0.17.0"
        )
        return (
            {"dtype": "fp32" if fp32 else "bf16", "version": describe_deepspeed_version(setting.run)}
            if refused
            else None
        )
