"""``torch.cuda.random`` and ``torch.Generator(device="cuda")``: seeds and states are stored, but without effect."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from gonogo.virtual.cuda.state import Replacement, VirtualCuda
from gonogo.virtual.generators import check_rng_state, register_generator, unregister_generator
from gonogo.virtual.tensor import VirtualTensor

_DEFAULT_SEED = 67280421310721
"""c10::detail::default_rng_seed_val"""


def replacements(cuda: VirtualCuda) -> Iterator[Replacement]:
    """Yield (module, attribute name, replacement) for the random number functions of ``torch.cuda``."""
    generator_class, generic_class = _generator_classes(cuda)
    generators = tuple(generator_class(index) for index in range(cuda.count))
    yield torch.cuda, "default_generators", generators
    yield torch, "Generator", generic_class
    for name, function in _rng_functions(cuda, generators).items():
        yield torch.cuda.random, name, function
        yield torch.cuda, name, function
    yield torch.cuda, "_get_generator", lambda device: generators[cuda.device_index(device)]
    yield torch.cuda, "_get_rng_state_offset", lambda device=None: generators[cuda.device_index(device)].offset
    yield (
        torch.cuda,
        "_set_rng_state_offset",
        lambda offset, device=None: generators[cuda.device_index(device)].set_offset(offset),
    )


def _rng_functions(cuda: VirtualCuda, generators: tuple[Any, ...]) -> dict[str, Any]:
    def get_rng_state(device: Any = None) -> torch.Tensor:
        state: torch.Tensor = generators[cuda.device_index(device)].get_state()
        return state

    def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
        generators[cuda.device_index(device)].set_state(new_state)

    def get_rng_state_all() -> list[torch.Tensor]:
        return [get_rng_state(index) for index in range(cuda.device_count())]

    def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
        for index, state in enumerate(new_states):
            set_rng_state(state, index)

    def manual_seed_all(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    def seed_all() -> None:
        for generator in generators:
            generator.seed()

    return {
        "get_rng_state": get_rng_state,
        "set_rng_state": set_rng_state,
        "get_rng_state_all": get_rng_state_all,
        "set_rng_state_all": set_rng_state_all,
        "manual_seed": lambda seed: generators[cuda.current_device].manual_seed(seed) and None,
        "manual_seed_all": manual_seed_all,
        "seed": lambda: generators[cuda.current_device].seed() and None,
        "seed_all": seed_all,
        "initial_seed": lambda: generators[cuda.current_device].initial_seed(),
    }


def _generator_classes(cuda: VirtualCuda) -> tuple[Any, type]:
    real = torch._C.Generator

    class CudaGenerator(real):  # type: ignore[misc, valid-type]
        """A generator that claims to be on a CUDA device; its state is that of Philox: a seed and an offset."""

        def __new__(cls, index: int) -> Any:
            return super().__new__(cls)

        def __init__(self, index: int) -> None:
            self._index = index
            self._seed = _DEFAULT_SEED
            self.offset = 0
            register_generator(self, cuda.kind)

        def __del__(self, _gone: Callable[[Any], None] = unregister_generator) -> None:
            _gone(self)

        @property
        def device(self) -> torch.device:
            return torch.device(cuda.kind, self._index)

        def manual_seed(self, seed: int) -> Any:
            self._seed, self.offset = int(seed) & 0xFFFF_FFFF_FFFF_FFFF, 0
            super().manual_seed(seed)
            return self

        def seed(self) -> int:
            self._seed, self.offset = super().seed(), 0
            return self._seed

        def initial_seed(self) -> int:
            return self._seed

        def get_state(self) -> torch.Tensor:
            return torch.tensor(list(struct.pack("<QQ", self._seed, self.offset)), dtype=torch.uint8, device="cpu")

        def set_state(self, new_state: torch.Tensor) -> Any:
            check_rng_state(new_state)
            if new_state.numel() not in (8, 16):
                raise RuntimeError("RNG state is wrong size")
            self._seed, self.offset = struct.unpack("<QQ", bytes(new_state.tolist()).ljust(16, b"\0"))
            return self

        def set_offset(self, offset: int) -> Any:
            if offset % 4:
                raise RuntimeError("offset must be a multiple of 4")
            self.offset = offset
            return self

        def get_offset(self) -> int:
            return self.offset

        def graphsafe_get_state(self) -> Any:
            return self.clone_state()

        def graphsafe_set_state(self, other: Any) -> Any:
            self._seed, self.offset = other._seed, other.offset
            return self

        def clone_state(self) -> Any:
            return CudaGenerator(self._index).graphsafe_set_state(self)

        def __reduce__(self) -> Any:
            return _rebuild_generator, (cuda.kind, self._index, self._seed, self.offset)

    class CpuGenerator(real):  # type: ignore[misc, valid-type]
        """A CPU generator that accepts a state that passed through an accelerator, as accelerate's broadcast does."""

        def set_state(self, new_state: Any) -> Any:
            check_rng_state(new_state)
            if isinstance(new_state, VirtualTensor):
                new_state = VirtualTensor.virtual_mode.known_values(new_state)
            return self if new_state is None else super().set_state(new_state)

    class _GeneratorMeta(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    class Generator(real, metaclass=_GeneratorMeta):  # type: ignore[misc, valid-type]
        """``torch.Generator(device="cpu")``."""

        def __new__(cls, device: Any = "cpu") -> Any:
            where = torch.device(cuda.kind, device) if isinstance(device, int) else torch.device(device)
            if where.type == cuda.kind:
                cuda.check_ordinal(cuda.device_index(where))
                return CudaGenerator(cuda.device_index(where))
            return CpuGenerator(where)

    return CudaGenerator, Generator


def _rebuild_generator(kind: str, index: int, seed: int, offset: int) -> Any:
    generator: Any = torch.Generator(torch.device(kind, index))
    generator.manual_seed(seed)
    generator.offset = offset
    return generator
