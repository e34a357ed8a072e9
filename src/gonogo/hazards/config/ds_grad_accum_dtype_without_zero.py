from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, one_of
from gonogo.hazards.facts.deepspeed_settings import is_on, newer_than, version_words

_FP32 = ("fp32", "float32", "torch.float32")
_BF16 = ("bf16", "bfloat16", "torch.bfloat16")


class DsGradAccumDtypeWithoutZero(ConfigHazard):
    wrong = staticmethod(one_of((*_FP32, *_BF16)))

    def context_for(self, at: Setting) -> Words | None:
        """bf16 is on, and the release refuses the type beside it."""
        fp32 = str(at.field.value).lower() in _FP32
        refused = is_on(at.config, "bf16") and newer_than(at.run, ">=0.17.6" if fp32 else "<=0.17.0")
        return {"dtype": "fp32" if fp32 else "bf16", "version": version_words(at.run)} if refused else None
