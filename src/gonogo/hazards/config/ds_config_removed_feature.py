from collections.abc import Mapping
from functools import partial

from gonogo.hazards.facts.deepspeed_settings import (
    ZERO,
    config_key_span,
    deepspeed_version_matches,
    describe_deepspeed_version,
    dotted_key,
)
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated

_TOP_LEVEL_KEYS = (
    *("amp", "elasticity", "sparse_attention", "sparse_gradients", "curriculum_learning", "compression_training"),
    *("progressive_layer_drop", "quantize_training", "eigenvalue", "nebula", "graph_harvesting"),
)
_ZERO_SECTION_KEYS = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")
_KEYS_REFUSED_SINCE_0_19_7 = (
    *("nebula", "compression_training", "quantize_training", "sparse_attention"),
    *("mics_shard_size", "mics_hierarchical_params_gather"),
)
_NO_REPLACEMENT_HINT = ""
_REPLACEMENT_HINTS = {
    "amp": translated(", and use bf16, fp16 or torch_autocast"),
    "elasticity": translated(", and give the batch sizes directly"),
    "curriculum_learning": translated(", and write data_efficiency.data_sampling.curriculum_learning"),
    "mics_shard_size": translated(", and use zero_hpz_partition_size"),
}


class DsConfigRemovedFeature(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Keys that the release certainly rejects, at any level and with any value."""
        refused = [
            keys
            for keys in (*((name,) for name in _TOP_LEVEL_KEYS), *((ZERO, name) for name in _ZERO_SECTION_KEYS))
            if not config.raw(*keys).absent and deepspeed_version_matches(run, f">={_first_rejecting_release(keys)}")
        ]
        for keys in refused:
            field = config.raw(*keys)
            off = field.value is False or (isinstance(field.value, Mapping) and not field.value.get("enabled", True))
            yield self.finding(
                self.texts["cause"].format(version=describe_deepspeed_version(run), key=dotted_key(keys)),
                cure=(
                    translated("Remove the key{instead}").format(
                        instead=_REPLACEMENT_HINTS.get(keys[-1], _NO_REPLACEMENT_HINT)
                    ),
                    translated('Or install "deepspeed<{since}"').format(since=_first_rejecting_release(keys)),
                ),
                spans=(config_key_span(config, *keys), run.environment.field("deepspeed").span()),
                fixes=fix_with_edits(translated("remove the key"), partial(config.removing, *keys), safe=off),
            )


def _first_rejecting_release(keys: tuple[str, ...]) -> str:
    """The first release that rejects the key."""
    return "0.19.7" if keys[-1] in _KEYS_REFUSED_SINCE_0_19_7 else "0.19.8"
