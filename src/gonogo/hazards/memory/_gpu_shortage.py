"""An accelerator out of memory: what it needed, what filled it, and what each remedy would free."""

import math

import msgspec

from gonogo.evidence.rehearsal.completions import COMPLETION_LENGTH_HINT, is_completion_shortage
from gonogo.evidence.rehearsal.failures import (
    frame_spans,
    innermost_frame,
    nested_value,
    offload_device,
    path_ends_with,
)
from gonogo.evidence.rehearsal.record import DeviceMemory, MemoryShortage, RankRecord, RehearsalRecord
from gonogo.evidence.rehearsal.upper_bounds import upper_bound_hints
from gonogo.finding import Certainty, Span, Text, translated
from gonogo.finding.words import PHASES, size, sizes

MODEL_STATES = ("parameters", "gradients", "optimizer", "communication")
ACTIVATIONS = ("activations", "temporary")
_MODEL_STATE_PHASES = ("load", "init", "step")


class GpuShortage(msgspec.Struct, frozen=True):
    """The worst device among the ranks that ran out of memory for the same reason."""

    ranks: tuple[int, ...]
    rank: RankRecord
    memory: DeviceMemory
    shortage: MemoryShortage
    record: RehearsalRecord

    @property
    def needed_bytes(self) -> int:
        """Bytes of tensors needed at once: the peak, or what was allocated plus the failed request."""
        return max(self.memory.peak_allocated_bytes, self._requested_when_out_of_memory)

    @property
    def _requested_when_out_of_memory(self) -> int:
        return self.shortage.allocated_bytes + self.shortage.requested_bytes

    @property
    def stopped_at_shortage(self) -> bool:
        """True if the rehearsal stopped when memory ran out, so that no later peak is known."""
        return self.memory.peak_allocated_bytes < self._requested_when_out_of_memory

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes by category: at the peak if the rehearsal reached it, else when memory ran out."""
        return (self.stopped_at_shortage and self.shortage.by_category) or self.memory.by_category

    def _bytes_of(self, categories: tuple[str, ...]) -> int:
        """Bytes of these categories together; the failed request counts for the phase that made it."""
        held = sum(self.by_category.get(category, 0) for category in categories)
        for_states = self.shortage.phase in _MODEL_STATE_PHASES
        if self.stopped_at_shortage and for_states == (categories == MODEL_STATES):
            held += self.shortage.requested_bytes
        return held

    @property
    def states(self) -> int:
        """Bytes of parameters, gradients, optimizer states and communication buffers."""
        return self._bytes_of(MODEL_STATES)

    @property
    def activations(self) -> int:
        """Bytes of activations and temporaries."""
        return self._bytes_of(ACTIVATIONS)

    @property
    def is_fragmented(self) -> bool:
        """True if the tensors would fit, and only the allocator's fragmented blocks do not."""
        return self.needed_bytes <= self.shortage.capacity_bytes

    @property
    def is_of_model_states(self) -> bool:
        """True if the model states alone exceed the device, or are the larger part of what fills it."""
        if self.states == self.activations:
            return self.shortage.phase in _MODEL_STATE_PHASES
        return self.states > self.shortage.capacity_bytes or self.states > self.activations


def gpu_shortages(record: RehearsalRecord, *, of_model_states: bool) -> list[GpuShortage]:
    """One shortage of this kind for all the ranks that have it, with the figures of the worst rank; or none."""
    found = []
    for rank in record.ranks:
        devices = [GpuShortage((rank.rank,), rank, m, m.shortage, record) for m in rank.devices if m.shortage]
        if devices:
            found.append(max(devices, key=lambda short: short.needed_bytes))
    found = [short for short in found if short.is_of_model_states == of_model_states]
    if not found:
        return []
    worst = max(found, key=lambda short: short.needed_bytes)
    ranks = tuple(short.rank.rank for short in found)
    return [GpuShortage(ranks, worst.rank, worst.memory, worst.shortage, record)]


def shortage_certainty(gpu_shortage: GpuShortage) -> Certainty:
    """Likely if shorter completions, compiled code or a mask that selects less might fit, else certain."""
    return Certainty.LIKELY if shortage_confirmations(gpu_shortage) else Certainty.CERTAIN


def shortage_confirmations(gpu_shortage: GpuShortage) -> tuple[Text, ...]:
    """How to confirm the shortage; empty if it is certain."""
    facts = (gpu_shortage.rank, gpu_shortage.shortage, gpu_shortage.by_category)
    of_length = (COMPLETION_LENGTH_HINT,) if is_completion_shortage(*facts) else ()
    return (*of_length, *upper_bound_hints(*facts))


def shortage_title(gpu_shortage: GpuShortage, bottleneck: Text) -> Text:
    """A title such as ``Out of GPU memory (model states): the run needs 155.9 GiB, an H100-80G has 79.6 GiB``."""
    if gpu_shortage.is_fragmented:
        return translated("{what}: {need} of tensors do not fit into the fragmented {capacity} of an {name}").format(
            what=bottleneck,
            need=size(gpu_shortage.needed_bytes),
            capacity=size(gpu_shortage.shortage.capacity_bytes),
            name=gpu_shortage.record.accelerator.name,
        )
    close = gpu_shortage.needed_bytes <= gpu_shortage.memory.total_bytes
    return translated("{what}: the run needs {least}{need}, but an {name} has {total}{taken}").format(
        what=bottleneck,
        least=translated("at least ") if gpu_shortage.stopped_at_shortage else "",
        need=size(gpu_shortage.needed_bytes),
        name=gpu_shortage.record.accelerator.name,
        total=size(gpu_shortage.memory.total_bytes),
        taken=translated(", {bytes} of it taken by the context").format(bytes=size(gpu_shortage.memory.allowance_bytes))
        if close
        else "",
    )


def shortage_cause(gpu_shortage: GpuShortage) -> Text:
    """Where the allocation failed, how much was available, and what filled the device."""
    shortage, held = gpu_shortage.shortage, gpu_shortage.by_category
    text = translated(
        "In {phase} (step {step}){where}, {operator} requests {need} on {device}, which has {allocated} allocated and "
        "{reserved} reserved of {capacity} ({total} less {allowance} for the context and libraries). At the peak: "
        "{categories}.{modules}"
    ).format(
        phase=PHASES[shortage.phase],
        step=shortage.step,
        where=Text(f", module {shortage.module}", f"的模块 {shortage.module} 中") if shortage.module else "",
        operator=shortage.operator or translated("an allocation"),
        need=size(shortage.requested_bytes),
        device=shortage.device,
        allocated=size(shortage.allocated_bytes),
        reserved=size(shortage.reserved_bytes),
        capacity=size(shortage.capacity_bytes),
        total=size(gpu_shortage.memory.total_bytes),
        allowance=size(gpu_shortage.memory.allowance_bytes),
        categories=sizes(held),
        modules=_describe_top_modules(gpu_shortage),
    )
    if gpu_shortage.is_fragmented:
        text = Text(
            text.en + " The tensors alone would fit; the blocks that the caching allocator has cut do not.",
            text.zh + " 仅就张量而言放得下；放不下的是缓存分配器切碎的块。",
        )
    return text


def allocation_spans(gpu_shortage: GpuShortage) -> tuple[Span, ...]:
    """The user's line that led to the allocation, then the library's."""
    frames = gpu_shortage.shortage.frames
    shown = [frame for frame in frames if not path_ends_with(frame, "deepspeed/utils/nvtx.py")]
    return frame_spans(
        (innermost_frame(frames, "user"), translated("memory runs out inside this call")),
        (innermost_frame(shown, "library"), translated("the allocation")),
    )


class MemoryRemedy(msgspec.Struct, frozen=True):
    """One way to free memory; ``frees`` is in bytes per device, or None if it is not known in advance."""

    how: Text
    frees: int | None


def ordered_remedies(gpu_shortage: GpuShortage, remedies: list[MemoryRemedy]) -> tuple[Text, ...]:
    """The remedies as texts with what each frees and what is then missing; those that suffice alone come first."""
    missing = gpu_shortage.needed_bytes - gpu_shortage.shortage.capacity_bytes

    def sort_key(remedy: MemoryRemedy) -> int:
        return 1 if remedy.frees is None else 0 if remedy.frees >= missing else 2

    return tuple(_describe_remedy(remedy, missing) for remedy in sorted(remedies, key=sort_key))


def _describe_remedy(remedy: MemoryRemedy, missing_bytes: int) -> Text:
    if remedy.frees is None:
        return remedy.how
    if remedy.frees >= missing_bytes:
        tail = translated(": frees {frees} per GPU, which is enough")
    else:
        tail = translated(": frees {frees} per GPU; {left} would still be missing")
    tail = tail.format(frees=size(remedy.frees), left=size(missing_bytes - remedy.frees))
    return Text(remedy.how.en + tail.en, remedy.how.zh + tail.zh)


def fragmentation_remedies(gpu_shortage: GpuShortage) -> list[MemoryRemedy]:
    """Remedies if the tensors would fit, but the allocator's blocks are fragmented."""
    if not gpu_shortage.is_fragmented:
        return []
    variable = (
        "PYTORCH_NPU_ALLOC_CONF" if gpu_shortage.record.accelerator.device_type == "npu" else "PYTORCH_CUDA_ALLOC_CONF"
    )
    return [
        MemoryRemedy(
            Text(
                f"Let the allocator grow its blocks: {variable}=expandable_segments:True",
                f"让分配器的块可以增长：{variable}=expandable_segments:True",
            ),
            None,
        )
    ]


def state_remedies(gpu_shortage: GpuShortage) -> list[MemoryRemedy]:
    """Remedies that reduce the model states on a device, from the resolved DeepSpeed config and the categories."""
    config, held = gpu_shortage.rank.deepspeed_config, gpu_shortage.by_category
    world = gpu_shortage.record.world_size
    stage = nested_value(config, "zero_optimization", "stage")
    stage = stage if isinstance(stage, int) else 0
    parameters, gradients, optimizer = (held.get(name, 0) for name in ("parameters", "gradients", "optimizer"))
    as_run = gpu_shortage.rank.as_run
    is_sharded = as_run is not None and as_run.strategy.startswith("FSDP")
    remedies: list[MemoryRemedy] = []
    if is_sharded:
        remedies.append(
            MemoryRemedy(
                translated(
                    "Keep the shards in host memory between uses (FSDP's CPU offload: "
                    "fully_shard(..., offload_policy=CPUOffloadPolicy()), accelerate's fsdp_offload_params: true; "
                    "frees at least the optimizer states)"
                ),
                optimizer,
            )
        )
    if stage < 3 and world > 1 and not is_sharded:
        replicated = parameters + (gradients if stage < 2 else 0) + (optimizer if stage < 1 else 0)
        remedies.append(
            MemoryRemedy(
                Text(
                    f"Use ZeRO-3 (zero_optimization.stage: 3), which partitions over the {world} ranks what each of "
                    "them now keeps whole",
                    "使用 ZeRO-3（zero_optimization.stage: 3），"
                    f"把现在每个 rank 都完整保存的部分切分到 {world} 个 rank",
                ),
                replicated * (world - 1) // world,
            )
        )
    if optimizer and config is not None and offload_device(config, "offload_optimizer") is None:
        host = size(optimizer * gpu_shortage.record.ranks_per_node)
        remedies.append(
            MemoryRemedy(
                Text(
                    f"Offload the optimizer (zero_optimization.offload_optimizer.device: cpu; takes at least {host} "
                    "of a node's memory)",
                    f"卸载优化器（zero_optimization.offload_optimizer.device: cpu；每个节点至少再占 {host} 主机内存）",
                ),
                optimizer,
            )
        )
    if stage == 3 and parameters and offload_device(config, "offload_param") is None:
        remedies.append(
            MemoryRemedy(
                translated(
                    "Offload the parameters too (zero_optimization.offload_param.device: cpu; frees at most this much)"
                ),
                parameters,
            )
        )
    if stage == 3 and (gpus := _gpus_needed(gpu_shortage, parameters + gradients + optimizer)):
        remedies.append(
            MemoryRemedy(
                Text(
                    f"Use {gpus} GPUs instead of {world}: ZeRO-3 partitions the model states over all of them",
                    f"用 {gpus} 张 GPU 代替 {world} 张：ZeRO-3 把模型状态切分到所有卡",
                ),
                (parameters + gradients + optimizer) * (gpus - world) // gpus,
            )
        )
    remedies.append(
        MemoryRemedy(
            translated(
                "Train adapters (LoRA) instead of all weights: gradients and optimizer states become negligible"
            ),
            gradients + optimizer,
        )
    )
    remedies.append(larger_device_remedy(gpu_shortage))
    return [remedy for remedy in remedies if remedy.frees != 0]


def larger_device_remedy(gpu_shortage: GpuShortage) -> MemoryRemedy:
    """An accelerator with enough memory for the run as it is."""
    needed = size(gpu_shortage.needed_bytes + gpu_shortage.memory.allowance_bytes)
    return MemoryRemedy(Text(f"Use a GPU with at least {needed}", f"换显存至少 {needed} 的 GPU"), None)


def _gpus_needed(gpu_shortage: GpuShortage, partitioned_bytes: int) -> int | None:
    """The GPUs, in whole nodes, needed to partition these states; None if 64 times as many don't suffice."""
    room = gpu_shortage.shortage.capacity_bytes - (gpu_shortage.needed_bytes - partitioned_bytes)
    if room <= 0 or partitioned_bytes <= 0:
        return None
    world, node = gpu_shortage.record.world_size, max(gpu_shortage.record.ranks_per_node, 1)
    gpus = math.ceil(partitioned_bytes * world / room / node) * node
    return gpus if world < gpus <= 64 * world else None


def _describe_top_modules(gpu_shortage: GpuShortage) -> Text | str:
    held = [
        held for held in gpu_shortage.memory.top_modules if not held.module.startswith("(")
    ]  # "(outside any module)"
    if not held:
        return ""
    names = ", ".join(f"{module.module} ({size(module.bytes)})" for module in held[:3])
    return Text(f" Most is held by {names}.", f"占用最多：{names}。")
