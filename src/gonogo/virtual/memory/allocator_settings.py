"""The settings of PyTorch's caching allocator, as given in ``PYTORCH_CUDA_ALLOC_CONF``.

Source: c10/core/AllocatorConfig.h and AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.h (torch 2.13); for Ascend,
whose ``PYTORCH_NPU_ALLOC_CONF`` has the same syntax, torch_npu/csrc/core/npu/NPUAllocatorConfig.cpp and
NPUCachingAllocator.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1 << 20
_ROUNDUP_INTERVALS = 16
"""``roundup_power2_divisions`` has one entry for each power of two from 1 MiB (and below) to 32 GiB (and above)."""
_IGNORED_SETTINGS = frozenset(
    {
        "backend",
        "graph_capture_record_stream_reuse",
        "pinned_free_catch_all",
        "pinned_max_cached_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "release_lock_on_cudamalloc",
        "throw_on_cudamalloc_oom",
    }
)
"""Options that PyTorch accepts and that don't affect how the device's segments are split."""
_IGNORED_ON_NPU = _IGNORED_SETTINGS | {
    "base_addr_aligned_kb",
    "multi_stream_lazy_reclaim",
    "page_size",
    "pin_memory_expandable_segments",
    "pinned_mem_register",
}
_NPU_PADDING_BYTES = 32


@dataclass(frozen=True)
class AllocatorSettings:
    """The caching allocator's user settings, with PyTorch's defaults."""

    max_split_bytes: int | None = None
    """Blocks of this size or more are never split (``max_split_size_mb``); None: every block may be."""
    max_non_split_rounding_bytes: int = 20 * MIB
    large_segment_bytes: int = 20 * MIB
    roundup_divisions: tuple[int, ...] = ()
    """One entry for each of 16 intervals, or empty if sizes are only rounded to 512 bytes."""
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    memory_fraction: float = 1.0
    padding_bytes: int = 0
    """Added to each request before rounding: CANN's operators read that far beyond a tensor's end."""

    @classmethod
    def parse(cls, text: str, device_type: str = "cuda") -> AllocatorSettings:
        """Parse ``key:value,key:[a:b,>:c]``. Raises ValueError with PyTorch's message for what PyTorch rejects."""
        values: dict[str, object] = {}
        on_npu = device_type == "npu"
        if on_npu:
            values["padding_bytes"] = _NPU_PADDING_BYTES
        compact = re.sub(r"\s+", "", text)
        position = 0
        pair = re.compile(r"([^,:\[\]]+):(\[[^\]]*\]|[^,\[\]]*)(?:,|$)")
        while position < len(compact):
            match = pair.match(compact, position)
            if match is None:
                raise ValueError(f"Error parsing CachingAllocator settings: {text!r}")
            key, value = match.groups()
            position = match.end()
            if key == "max_split_size_mb":
                values["max_split_bytes"] = _parse_min_20_mib(key, value) * MIB
            elif key == "max_non_split_rounding_mb":
                values["max_non_split_rounding_bytes"] = _parse_min_20_mib(key, value) * MIB
            elif key == ("segment_size_mb" if on_npu else "large_segment_size_mb"):
                if int(value) <= 2:
                    raise ValueError("CachingAllocator option large_segment_size_mb must be > 2")
                values["large_segment_bytes"] = int(value) * MIB
            elif key == "garbage_collection_threshold":
                threshold = float(value)
                if not 0.0 < threshold < 1.0:
                    raise ValueError("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
                values["garbage_collection_threshold"] = threshold
            elif key == "per_process_memory_fraction":
                fraction = float(value)
                if not 0.0 <= fraction <= 1.0:
                    raise ValueError("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")
                values["memory_fraction"] = fraction
            elif key == "roundup_power2_divisions":
                values["roundup_divisions"] = _parse_divisions(value)
            elif key == "expandable_segments":
                if value not in ("True", "False"):
                    raise ValueError(f"Expected 'True' or 'False' for expandable_segments but got {value!r}")
                values["expandable_segments"] = value == "True"
            elif on_npu and key not in _IGNORED_ON_NPU:
                raise ValueError(f"Unrecognized CachingAllocator option: {key}")
            elif not on_npu and key not in _IGNORED_SETTINGS:
                raise ValueError(f"Unrecognized key '{key}' in CUDA allocator config.")
        return cls(**values)  # type: ignore[arg-type]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], device_type: str = "cuda") -> AllocatorSettings:
        """The settings of a process with this environment: PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_ALLOC_CONF.

        On Ascend, PYTORCH_NPU_ALLOC_CONF replaces the former.
        """
        own = f"PYTORCH_{device_type.upper()}_ALLOC_CONF"
        return cls.parse(environment.get(own, environment.get("PYTORCH_ALLOC_CONF", "")), device_type)

    def round_up(self, nbytes: int) -> int:
        """The block size for a request of ``nbytes``: a multiple of 512 bytes, or a division of a power of two."""
        nbytes += self.padding_bytes
        if self.roundup_divisions and nbytes >= 512:
            interval = min(max(nbytes.bit_length() - 1 - 20, 0), _ROUNDUP_INTERVALS - 1)
            divisions = self.roundup_divisions[interval]
            if divisions > 1 and nbytes > 512 * divisions:
                step = (1 << (nbytes.bit_length() - 1)) >> (divisions.bit_length() - 1)
                return -(-nbytes // step) * step
        return max(512, (nbytes + 511) & ~511)


def _parse_min_20_mib(key: str, value: str) -> int:
    megabytes = int(value)
    if megabytes < 20:
        raise ValueError(f"CachingAllocator option {key} too small, must be >= 20")
    return megabytes


def _parse_divisions(value: str) -> tuple[int, ...]:
    """Parse ``8`` (for all sizes) or ``[256:1,512:2,>:4]``, which maps sizes in MiB to divisions."""
    table = [0] * _ROUNDUP_INTERVALS
    if not value.startswith("["):
        return (_check_power_of_two(int(value), "divisions"),) * _ROUNDUP_INTERVALS
    last = 0
    first = True
    for pair in filter(None, value[1:-1].split(",")):
        size, _, count = pair.partition(":")
        divisions = _check_power_of_two(int(count), "divisions") if int(count) else 0
        if size == ">":
            table[last + 1 :] = [divisions] * (_ROUNDUP_INTERVALS - last - 1)
            continue
        last = min(_check_power_of_two(int(size), "intervals").bit_length() - 1, _ROUNDUP_INTERVALS - 1)
        if first:
            table[:last] = [divisions] * last
            first = False
        table[last] = divisions
    return tuple(table)


def _check_power_of_two(number: int, rounded_value: str) -> int:
    if number <= 0 or number & (number - 1):
        raise ValueError(f"For roundups, the {rounded_value} have to be power of 2")
    return number
