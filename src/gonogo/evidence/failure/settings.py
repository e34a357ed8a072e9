"""The settings of a run, from its launch command, config, script and log: names and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.log_answer import CluePlace

_MAX_SETTINGS = 3000
_MAX_LINES = 400
_MAX_TEXT_LENGTH = 1 << 18

_OPTION_PATTERN = lazy_compile(r"(?:^|\s)--([A-Za-z][\w.-]{0,80})(?:[ =]+(?!--)([^\s\\]{1,300}))?")
_ASSIGNMENT_PATTERN = lazy_compile(
    r"(?:^|[\s'\"(,])\+{0,2}([A-Za-z_][\w.]{0,120})=([^\s,'\"\\)]{1,300}|'[^']{0,300}'|\"[^\"]{0,300}\")"
)
_YAML_SETTING_PATTERN = lazy_compile(
    r"^\s*-?\s*[\"']?([A-Za-z_][\w.-]{0,80})[\"']?\s*:\s+([^#\n{\[]{1,300}?),?\s*(?:#.*)?$"
)
_LISTED_SETTING_PATTERN = Pattern(r"^\s*[a-z][a-z0-9_]+ \.{3,} \S|^\s*[a-z][a-z0-9_]+=[\w.+-]+,?\s*$|overrides: \[")
_DOTTED_SETTING_PATTERN = lazy_compile(r"^\s*([a-z][a-z0-9_]{1,80}) \.{3,} (\S{1,200})")
_ASSIGNED_SETTING_PATTERN = lazy_compile(r"^\s*([a-z][a-z0-9_]{1,80})=([\w.+-]{1,200}),?\s*$")
_OVERRIDE_PATTERN = lazy_compile(r"'\+{0,2}([A-Za-z_][\w.]{0,120})=([^']{0,300})'")


class RunSetting(NamedTuple):
    """A setting's name, value and place."""

    name: str
    value: str
    source: Text
    place: CluePlace | None

    @property
    def number(self) -> int | None:
        """The value as an integer, or None."""
        return parse_whole_number(self.value.replace("_", ""))

    @property
    def last_name(self) -> str:
        """The last component of a dotted name: ``tp_size`` for ``actor.engine.tp_size``."""
        return self.name.rpartition(".")[2].replace("-", "_").lower()


LAUNCH = translated("the launch command")
CONFIG = translated("the DeepSpeed config")
SCRIPT = translated("the script")
LOG = translated("the log")


@lru_cache(maxsize=1)
def settings_of(log: FailureLog) -> tuple[RunSetting, ...]:
    """All settings of the run without duplicates, those from files given with the log first."""
    seen: dict[tuple[str, str], RunSetting] = {}
    for setting in islice(_run_settings(log), _MAX_SETTINGS):
        seen.setdefault((setting.name, setting.value), setting)
    return tuple(seen.values())


def _run_settings(log: FailureLog) -> Iterator[RunSetting]:
    """The settings in the launch, the config, the script and the log, in this order."""
    setup = log.setup
    yield from _settings_in_text(setup.launch, LAUNCH)
    if setup.deepspeed_config is not None:
        yield from _settings_in_config(setup.deepspeed_config, "")
    else:
        yield from _settings_in_text(setup.deepspeed_config_text, CONFIG)
    yield from _settings_in_text(setup.script, SCRIPT)
    for found in islice(log.find_all(_LISTED_SETTING_PATTERN), _MAX_LINES):
        place = CluePlace(found.line.path, found.line.number, found.text.strip()[:400])
        for pattern in (_DOTTED_SETTING_PATTERN, _ASSIGNED_SETTING_PATTERN, _OVERRIDE_PATTERN):
            for match in pattern.finditer(found.text):
                yield RunSetting(match.group(1), _strip_quotes(match.group(2)), LOG, place)


def _settings_in_text(text: str, source: Text) -> Iterator[RunSetting]:
    for line in text[:_MAX_TEXT_LENGTH].splitlines():
        if line.lstrip().startswith("#") and not line.lstrip().startswith("#SBATCH"):
            continue
        for match in _OPTION_PATTERN.finditer(line):
            yield RunSetting(match.group(1), _strip_quotes(match.group(2) or "true"), source, None)
        for match in _ASSIGNMENT_PATTERN.finditer(line):
            yield RunSetting(match.group(1), _strip_quotes(match.group(2)), source, None)
        if match_yaml := _YAML_SETTING_PATTERN.match(line):
            yield RunSetting(match_yaml.group(1), _strip_quotes(match_yaml.group(2)), source, None)


def _settings_in_config(section: Mapping[str, Any], before: str, depth: int = 0) -> Iterator[RunSetting]:
    for key, value in section.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and depth < 6:
            yield from _settings_in_config(value, f"{name}.", depth + 1)
        elif isinstance(value, (str, int, float, bool)) or value is None:
            written = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
            yield RunSetting(name, written, CONFIG, None)


def _strip_quotes(value: str) -> str:
    return value.strip().strip("'\",;")


# fmt: off
_NAMES_BY_MEANING: Mapping[str, tuple[str, ...]] = {
    "processes": ("nproc_per_node", "num_gpus", "num_processes", "n_gpus_per_node", "nproc", "gpus_per_node",
                  "actor_num_gpus_per_node", "ngpu"),
    "nodes": ("nnodes", "num_machines", "num_nodes"),
    "world": ("world_size",),
    "tp": ("tensor_model_parallel_size", "tensor_parallel_size", "tp_size", "tp", "infer_tp", "tensor_parallel_degree",
           "gen_tp", "vllm_tensor_parallel_size", "model_parallel_size", "rollout_num_gpus_per_engine"),
    "pp": ("pipeline_model_parallel_size", "pipeline_parallel_size", "pp_size", "pp", "pipeline_parallel_degree"),
    "cp": ("context_parallel_size", "cp_size", "cp", "context_parallel_degree"),
    "sp": ("ulysses_sequence_parallel_size", "sequence_parallel_size", "sp_size", "sp_ulysses_degree"),
    "ep": ("expert_model_parallel_size", "expert_parallel_size", "ep_size", "ep", "expert_parallel_degree",
           "ep_world_size"),
    "etp": ("expert_tensor_parallel_size", "expert_tensor_parallel_degree", "etp"),
    "vpp": ("num_layers_per_virtual_pipeline_stage", "virtual_pipeline_model_parallel_size"),
    "optimizer_instances": ("num_distributed_optimizer_instances",),
    "micro_batch": ("micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu",
                    "ppo_micro_batch_size_per_gpu", "local_batch_size", "mbs"),
    "global_batch": ("global_batch_size", "train_batch_size", "ppo_mini_batch_size", "gbs", "rollout_batch_size"),
    "accumulation": ("gradient_accumulation_steps",),
    "generations": ("num_generations", "n_samples_per_prompt", "group_size"),
    "heads": ("num_attention_heads", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_query_groups", "n_kv_heads"),
    "layers": ("num_layers", "num_hidden_layers", "n_layers"),
    "experts": ("num_experts", "num_moe_experts", "n_routed_experts", "num_local_experts"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "hidden": ("hidden_size", "ffn_hidden_size", "intermediate_size"),
    "length": ("max_length", "cutoff_len", "seq_length", "max_seq_length", "model_max_length", "sequence_len",
               "max_seq_len", "seq_len", "max_position_embeddings", "max_prompt_length", "max_response_length",
               "max_completion_length", "max_model_len", "block_size", "packed_sequence_size"),
}
# fmt: on
_MEANING_BY_NAME = {name: meaning for meaning, names in _NAMES_BY_MEANING.items() for name in names}
NAMES = _NAMES_BY_MEANING
"""Names of size settings in launchers and frameworks, by their meaning."""


def setting_meaning(name: str) -> str:
    """The meaning of a size setting: ``"tp"`` for ``actor.tensor_model_parallel_size``; empty for other settings."""
    if name.endswith("rollout.n"):
        return "generations"
    return _MEANING_BY_NAME.get(name.rpartition(".")[2].replace("-", "_").lower(), "")


def world_size(log: FailureLog) -> int | None:
    """The number of processes in the run, if the settings determine it."""
    sizes = {setting_meaning(one.name): one.number for one in reversed(settings_of(log)) if one.number}
    if sizes.get("world"):
        return sizes["world"]
    processes = sizes.get("processes")
    if processes is None:
        return None
    total = any(one.last_name == "num_processes" for one in settings_of(log))
    return processes if total else processes * (sizes.get("nodes") or 1)
