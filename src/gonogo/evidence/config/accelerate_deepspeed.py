"""The DeepSpeed config that accelerate makes of its own YAML, where that names no DeepSpeed config file."""

from __future__ import annotations

from gonogo.evidence.config.accelerate import AccelerateConfig
from gonogo.evidence.config.deepspeed import DeepSpeedConfig, deepspeed_config_of
from gonogo.evidence.document.tree import Member, TreeNode
from gonogo.evidence.field import Field

# accelerate's key under deepspeed_config, and DeepSpeed's: DeepSpeedPlugin.__post_init__ (utils/dataclasses.py).
_KEYS = {
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "offload_optimizer_nvme_path": ("zero_optimization", "offload_optimizer", "nvme_path"),
    "offload_param_nvme_path": ("zero_optimization", "offload_param", "nvme_path"),
    "zero3_save_16bit_model": ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("gradient_clipping",),
}
# What the plugin sets where the YAML leaves it out.
_DEFAULT_STAGE = 2


def config_of_accelerate(accelerate: AccelerateConfig) -> DeepSpeedConfig:
    """The config; its values have their places in the YAML."""
    root: dict[str, Member] = {}
    for key, keys in _KEYS.items():
        field = accelerate.get("deepspeed_config", key)
        if field.absent:
            if key != "zero_stage":
                continue
            field = Field.of(_DEFAULT_STAGE, accelerate.key_place("deepspeed_config"))
        _put(root, keys, field, accelerate)
    precision = accelerate.get("mixed_precision")
    if precision.value in ("fp16", "bf16"):
        _put(root, (precision.value, "enabled"), Field.of(True, precision.place), accelerate)
    return deepspeed_config_of(_node(root), name=accelerate.source.path, source=accelerate.source)


def _put(members: dict[str, Member], keys: tuple[str, ...], field: Field, accelerate: AccelerateConfig) -> None:
    """Set a value; objects on the way have the place of accelerate's own ``deepspeed_config``."""
    name, *rest = keys
    if not rest:
        members[name] = Member(field.place, TreeNode(field))
        return
    before = members.get(name)
    inner = dict(before.node.members or {}) if before is not None else {}
    _put(inner, tuple(rest), field, accelerate)
    place = accelerate.key_place("deepspeed_config")
    members[name] = Member(place, _node(inner, Field(None, place=place)))


def _node(members: dict[str, Member], field: Field | None = None) -> TreeNode:
    value = {name: member.node.field.value for name, member in members.items()}
    return TreeNode(Field.of(value, field.place if field is not None else None), members)
