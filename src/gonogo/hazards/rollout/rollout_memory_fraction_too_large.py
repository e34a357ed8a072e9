from collections.abc import Iterator

from gonogo.evidence.rehearsal.completions import COMPLETION_LENGTH_HINT, is_completion_shortage
from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.evidence.rehearsal.record import DeviceMemory
from gonogo.finding.words import PHASES, size, sizes
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Pattern, RehearsalRecord, Sign, Text, translated

_TRAINER_FRAMES = (
    "trl/trainer",
    "swift/",
    "fsdp_workers",
    "megatron_workers",
    "engine_workers",
    "openrlhf",
    "sharding_manager",
    "vllm_rollout",
    "sglang_rollout",
    "llamafactory",
    "unsloth",
    "nemo_rl",
    "/verl/",
    "RayActor",
    "rlhf",
)
_ENGINE_STARTUP_FUNCTIONS = (
    "_initialize_kv_caches",
    "initialize_cache",
    "from_engine_args",
    "determine_num_available_blocks",
    "profile_run",
    "initialize_from_config",
    "_init_cache_engine",
    "init_memory_pool",
    "capture_model",
    "self.llm = LLM(",
)
_SLACK_BYTES = 3 << 29
"""The memory of CUDA graphs and the context of a real engine may differ from a rehearsal's by this many bytes."""
_OUT_OF_MEMORY_TYPES = ("OutOfMemoryError", "RuntimeError", "ValueError")
_OOM_PATTERN = Pattern(r"out of memory")
_FREE_MEMORY_PATTERN = Pattern(
    r"Free memory on device.*\((?P<free>[\d.]+)/(?P<whole>[\d.]+) GiB\).*less than desired GPU memory utilization"
)
_GPU_MEMORY_TAKEN_CAUSE = translated(
    "The engine requests its fraction of the whole card ({whole} GiB), but only {free} GiB are free: the "
    "trainer, another engine or a leftover process holds the rest."
)


class RolloutMemoryFractionTooLarge(LoggedHazard):
    signs = (
        Sign(_FREE_MEMORY_PATTERN, cause=_GPU_MEMORY_TAKEN_CAUSE),
        Sign(Pattern(r"less than desired GPU memory utilization")),
        Sign(types=_OUT_OF_MEMORY_TYPES, frames=(_TRAINER_FRAMES, _ENGINE_STARTUP_FUNCTIONS), says=_OOM_PATTERN),
        Sign(types=("",), frames=(_TRAINER_FRAMES, _ENGINE_STARTUP_FUNCTIONS), certainty=Certainty.LIKELY),
        Sign(
            types=(*_OUT_OF_MEMORY_TYPES, ""),
            frames=(_ENGINE_STARTUP_FUNCTIONS, ("_initialize_kv_caches", "initialize_cache", "profile_run")),
            certainty=Certainty.POSSIBLE,
        ),
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A rollout engine that does not start, or an out-of-memory error that would not occur without it."""
        for failed in failed_ranks(record):
            refused = _FREE_MEMORY_PATTERN.search(failed.failure.message)
            if refused is not None:
                yield self.finding(
                    _GPU_MEMORY_TAKEN_CAUSE.format(whole=refused.group("whole"), free=refused.group("free")),
                    spans=failure_places(failed.failure),
                    ranks=failed.ranks,
                )
        short = [(rank, device) for rank in record.ranks for device in rank.devices if _is_caused_by_engine(device)]
        if not short:
            return
        rank, device = max(short, key=lambda each: _missing_bytes(each[1]))
        shortage, engine, missing = device.shortage, _engine_bytes(device), _missing_bytes(device)
        assert shortage is not None
        of_length = is_completion_shortage(rank, shortage, device.by_category)
        yield self.finding(
            self.texts["cause"].format(
                phase=PHASES[device.peak_phase],
                step=device.peak_step,
                device=device.device,
                need=size(device.peak_reserved_bytes),
                capacity=size(shortage.capacity_bytes),
                categories=sizes(device.by_category),
                engine=size(engine),
                missing=size(missing),
            ),
            certainty=Certainty.CERTAIN if missing > _SLACK_BYTES and not of_length else Certainty.LIKELY,
            cure=tuple(self._choose_cures(device)),
            confirm=(COMPLETION_LENGTH_HINT,) if of_length else (),
            ranks=tuple(sorted({each.rank for each, _ in short})),
        )

    def _choose_cures(self, device: DeviceMemory) -> Iterator[Text]:
        engine, missing = _engine_bytes(device), _missing_bytes(device)
        share = (engine - missing - _SLACK_BYTES) / device.total_bytes
        if share > 0.05:
            yield self.texts["engine_share_cure"].format(share=share)
        if device.peak_phase == "sync":
            yield self.texts["lora_zero2_cure"]
        elif device.peak_phase != "generate":
            yield self.texts["engine_sleep_cure"].format(engine=size(engine))
        yield translated('Or give the engine GPUs of its own: vllm_mode="server"')


def _engine_bytes(device: DeviceMemory) -> int:
    return device.by_category.get("rollout", 0)


def _missing_bytes(device: DeviceMemory) -> int:
    assert device.shortage is not None
    return device.peak_reserved_bytes - device.shortage.capacity_bytes


def _is_caused_by_engine(device: DeviceMemory) -> bool:
    """Whether the missing memory is less than what the engine holds."""
    return device.shortage is not None and 0 < _missing_bytes(device) < _engine_bytes(device)
