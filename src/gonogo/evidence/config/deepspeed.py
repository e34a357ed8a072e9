"""A DeepSpeed config: its values with their places, ``"auto"`` resolved, and edits of its file.

It is independent of the source format: a JSON file, a preset, and an object in YAML or a script all become a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

from gonogo.evidence.config.deepspeed_auto import AccelerateSettings, ArgumentLookup, AutoValues
from gonogo.evidence.config.deepspeed_keys import alias_keys, known_child_keys
from gonogo.evidence.document.json_edit import JsonEditor
from gonogo.evidence.document.json_file import read_json
from gonogo.evidence.document.json_problems import ConfigProblem
from gonogo.evidence.document.tree import TreeNode, to_tree
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit, translated

__all__ = [
    "ConfigProblem",
    "DeepSpeedConfig",
    "deepspeed_config_from_tree",
    "is_deepspeed_config",
    "read_deepspeed_config",
]

_UNREADABLE = translated("{name} can't be read")
_OFFLOAD_DEVICES = frozenset({"none", "cpu", "nvme"})
# DeepSpeed's legacy keys, booleans that mean offload to the CPU.
_LEGACY_OFFLOAD = {"optimizer": ("cpu_offload",), "param": ("cpu_offload_param", "cpu_offload_params")}

# A JSON object with one of these keys is a DeepSpeed config, whatever the file name.
_DISTINCTIVE_KEYS = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"})
_TYPICAL_KEYS = frozenset(
    {
        *("train_batch_size", "gradient_accumulation_steps", "gradient_clipping", "fp16", "bf16", "optimizer"),
        *("scheduler", "steps_per_print", "wall_clock_breakdown", "activation_checkpointing", "aio", "amp"),
        *(
            "flops_profiler",
            "tensorboard",
            "communication_data_type",
            "prescale_gradients",
            "zero_force_ds_cpu_optimizer",
        ),
    }
)


class ConfigEditor(Protocol):
    """Makes edits of the file that a config was read from."""

    def replacing(self, keys: tuple[str, ...], value: Any) -> Edit:
        """An edit that replaces a value."""

    def removing(self, keys: tuple[str, ...]) -> Edit:
        """An edit that removes a key with its value."""

    def inserting(self, keys: tuple[str, ...], value: Any) -> Edit:
        """An edit that sets the value of a key, which may not exist yet."""


class DeepSpeedConfig:
    """A DeepSpeed config, with the place of each value in its file.

    ``name`` is its path, or the framework and name of a preset; ``readable`` is False if there is no object at all;
    ``problems`` are syntax errors, and everything that could be read despite them is available.
    """

    def __init__(
        self,
        root: TreeNode | None,
        *,
        name: str,
        source: SourceFile | None = None,
        preset: str | None = None,
        problems: tuple[ConfigProblem, ...] = (),
        editor: ConfigEditor | None = None,
        auto: AutoValues | None = None,
    ) -> None:
        self.root = root or to_tree({})
        self.readable = root is not None
        self.name = name
        self.source = source
        self.preset = preset
        self.problems = problems
        self._editor = editor
        self._auto = auto or AutoValues(None, world_size=Field.not_known(), hidden_size=Field.not_known())

    def __repr__(self) -> str:
        return f"DeepSpeedConfig({self.name!r})"

    def raw(self, *keys: str) -> Field:
        """The value under nested keys, as written."""
        if not self.readable:
            return Field.not_known(reason=_UNREADABLE.format(name=self.name))
        node = self.root
        for key in self._keys_as_written(keys):
            if node.members is None:
                return node.field if node.field.unknown else Field.missing()
            if key not in node.members:
                return Field.missing()
            node = node.members[key].node
        return node.field

    def _keys_as_written(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """The keys by the names used in this config, since some settings of zero_optimization have aliases."""
        if len(keys) != 2 or keys[0] != "zero_optimization":
            return keys
        zero = self.root.find(keys[:1])
        if zero is None or zero.members is None or keys[1] in zero.members:
            return keys
        return next(((keys[0], name) for name in alias_keys(keys) if name in zero.members), keys)

    def get(self, *keys: str) -> Field:
        """The value under nested keys, with ``"auto"`` resolved from the run's arguments as far as they are known."""
        field = self.raw(*keys)
        if field.known and field.value == "auto":
            return self._auto.resolve(keys, field.place, self.raw)
        return field

    def is_auto(self, *keys: str) -> bool:
        """Whether the value is ``"auto"``."""
        field = self.raw(*keys)
        return field.known and field.value == "auto"

    def key_place(self, *keys: str) -> Place | None:
        """The place of a key in the config's file, without its value."""
        member = self.root.member(self._keys_as_written(keys))
        return member.key_place if member is not None else None

    def entries(self) -> Iterator[tuple[tuple[str, ...], Field]]:
        """All values as written with their nested keys, objects before their members."""
        return self.root.entries()

    @cached_property
    def zero_stage(self) -> int | None:
        """The ZeRO stage; 0 if ZeRO is off or not configured, None if unknown."""
        zero = self.raw("zero_optimization")
        if zero.absent or (zero.known and zero.value is None):
            return 0
        if zero.known and isinstance(zero.value, bool):  # the legacy form, a boolean
            return int(zero.value)
        stage = self.get("zero_optimization", "stage")
        if stage.absent:
            return 0 if zero.known and isinstance(zero.value, Mapping) else None
        number = stage.number
        return int(number) if number in (0, 1, 2, 3) else None

    def offload_target(self, states: str) -> Field:
        """Where ``"optimizer"`` states or ``"param"`` are offloaded to: ``"cpu"``, ``"nvme"`` or ``"none"``.

        The legacy ``cpu_offload`` keys are supported. The place is that of the value that decides.
        """
        part = self.raw("zero_optimization", f"offload_{states}")
        if part.unknown:
            return part
        if part.known and part.value is not None:
            device = self.get("zero_optimization", f"offload_{states}", "device")
            if device.absent or (device.known and device.value is None):
                return Field("none", place=part.place)
            if device.known and device.value not in _OFFLOAD_DEVICES:
                return Field.not_known(device.place)
            return device
        for legacy in _LEGACY_OFFLOAD[states]:
            field = self.raw("zero_optimization", legacy)
            if field.unknown:
                return field
            if field.truth:
                return Field("cpu", place=field.place)
        return Field("none")

    def replacing(self, *keys: str, value: Any) -> Edit:
        """An edit that replaces a value. Raises KeyError if it doesn't exist, or is in no file that can be edited."""
        return self._require_editor(keys).replacing(self._keys_as_written(keys), value)

    def removing(self, *keys: str) -> Edit:
        """An edit that removes a key with its value, comma and line. Raises KeyError if it can't be removed."""
        return self._require_editor(keys).removing(self._keys_as_written(keys))

    def inserting(self, *keys: str, value: Any) -> Edit:
        """An edit that sets a key's value, indented like its neighbours; missing objects are created.

        Raises KeyError if one of the parents exists and is not an object.
        """
        return self._require_editor(keys).inserting(self._keys_as_written(keys), value)

    def _require_editor(self, keys: tuple[str, ...]) -> ConfigEditor:
        """The config's editor. Raises KeyError if the config is in no file that can be edited."""
        if self._editor is None:
            raise KeyError(keys)
        return self._editor


def read_deepspeed_config(
    source: SourceFile,
    arguments: ArgumentLookup | None = None,
    *,
    world_size: Field | None = None,
    hidden_size: Field | None = None,
    accelerate: AccelerateSettings | None = None,
    framework: str | None = None,
    preset: str | None = None,
) -> DeepSpeedConfig:
    """Read the config in a JSON file. ``"auto"`` is resolved as far as the arguments and the other facts are known.

    ``framework`` (``"ms-swift"``, ``"trl"`` …): whose training arguments they are, if not those of transformers.
    """
    file = read_json(source)
    auto = AutoValues(
        arguments,
        world_size=world_size or Field.not_known(),
        hidden_size=hidden_size or Field.not_known(),
        accelerate=accelerate,
        framework=framework,
    )
    return DeepSpeedConfig(
        file.root,
        name=source.path,
        source=source,
        preset=preset,
        problems=file.problems,
        editor=JsonEditor(file) if source.writable else None,
        auto=auto,
    )


def deepspeed_config_from_tree(
    tree: TreeNode | Mapping[str, Any],
    *,
    name: str,
    source: SourceFile | None = None,
    preset: str | None = None,
    editor: ConfigEditor | None = None,
    auto: AutoValues | None = None,
) -> DeepSpeedConfig:
    """A DeepSpeed config from parsed values: a tree with places, or a plain mapping."""
    root = tree if isinstance(tree, TreeNode) else to_tree(tree)
    return DeepSpeedConfig(root, name=name, source=source, preset=preset, editor=editor, auto=auto)


def is_deepspeed_config(source: SourceFile) -> bool:
    """Whether a file that no launch names is a DeepSpeed config, judged by its keys."""
    data = source.data
    if not any(name.encode() in data for name in _DISTINCTIVE_KEYS) and data.count(b'"') < 4:
        return False
    root = read_json(source).root
    if root is None or root.members is None:
        return False
    names = root.members.keys()
    if names & _DISTINCTIVE_KEYS:
        return True
    # Files of training arguments share some of these keys ("bf16": true, "optimizer": "lion"), but most are others.
    return len(names & _TYPICAL_KEYS) >= 3 and 2 * len(names & known_child_keys().keys()) > len(names)
