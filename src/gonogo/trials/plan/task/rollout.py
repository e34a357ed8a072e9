"""Where completions are generated: by an engine in the trainer's process, on separate GPUs, or by the model itself.

The engine's memory follows the stand-in for vLLM (``gonogo.virtual.rollout.engine``), which allocates in the order of
vLLM's worker; so the figures are the same whether an engine is rehearsed or calculated.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.finding import Text, translated
from gonogo.finding.text import join_texts
from gonogo.trials.plan.extrapolation import Peak
from gonogo.virtual.measuring.jobs import EngineFacts, PhasePeak
from gonogo.virtual.rollout.uncertainty import (
    CONTEXT_UNCERTAINTY_BYTES,
    KV_BLOCK_TOKENS,
    MAX_CUDA_GRAPH_BYTES,
    PEAK_UNCERTAINTY,
)

Where = Literal["", "colocate", "server", "none"]
ENGINES: tuple[Where, ...] = ("colocate", "server", "none")
_BEFORE = "load"
"""The phase before the engine is created."""
_SERVER_ON_ONE_GPU = translated("engine on {gpus} GPU{tp}")
_SERVER_ON_GPUS = translated("engine on {gpus} GPUs{tp}")
_COLOCATED = translated("colocated engine ({how})")
_MEMORY_SHARE = translated("share {share}")
_SLEEPING = translated("sleeping")
_NO_ENGINE = translated("no engine")
_MIN_SHARE, _MAX_SHARE, _STEPS = 0.1, 0.9, 16
SERVER_MEMORY_SHARE = 0.9
"""The memory share of a server on its GPUs: vLLM's default."""


class RolloutChoice(msgspec.Struct, frozen=True, order=True):
    """One choice. ``gpus``: taken from the trainer by a server, over all nodes; ``share``: of a GPU's memory."""

    engine: Where = ""
    tp: int = 1
    share: float = 0.0
    sleep: bool = False
    gpus: int = 0

    @property
    def label(self) -> Text:
        """The name in reports; empty if nothing is generated."""
        tp = f"TP {self.tp}"
        if self.engine == "server":
            text = _SERVER_ON_ONE_GPU if self.gpus == 1 else _SERVER_ON_GPUS
            shown = Text(f" ({tp})", f"（{tp}）") if self.tp > 1 else Text("", "")
            return text.format(gpus=self.gpus, tp=shown)
        if self.engine == "colocate":
            words = [_MEMORY_SHARE.format(share=f"{self.share:.2f}"), *([Text(tp, tp)] if self.tp > 1 else [])]
            return _COLOCATED.format(how=join_texts([*words, *([_SLEEPING] if self.sleep else [])]))
        return _NO_ENGINE if self.engine == "none" else Text("", "")


class EngineMemory(msgspec.Struct, frozen=True):
    """The memory of one rank of an engine, in bytes."""

    weights: float
    cache: float
    graphs: float
    profiled: float
    """Peak of activations in the profiling run at startup."""
    share: float
    """The total that the engine requests (gpu_memory_utilization)."""
    sleeps: bool
    in_share: bool
    """Whether CUDA graphs are included in the requested total."""

    def bytes_in_phase(self, phase: str) -> float:
        """Bytes held in a phase: TRL wakes the weights before they are synchronised, the cache before generation."""
        if phase == _BEFORE:
            return 0.0
        awake = self.weights + self.cache + self.graphs
        if phase == "init":
            return awake + self.profiled
        if not self.sleeps or phase == "generate":
            return awake
        return self.graphs + (self.weights if phase == "sync" else 0.0)

    @property
    def uncertain_bytes(self) -> float:
        """How many bytes more it may take, because CUDA graphs are outside its share, or are kept while it sleeps."""
        return max(MAX_CUDA_GRAPH_BYTES - self.graphs, 0.0) if self.sleeps or not self.in_share else 0.0

    def margin(self, one_sequence: float, held: float, total: float, allowance_bytes: float) -> float:
        """The margin with which vLLM is certain to start beside ``held`` bytes of the trainer and to have a cache.

        ``one_sequence``: cache bytes of the longest sequence. Negative if either is within the error of the figures:
        the stand-in reports CANNOT-TELL in that case.
        """
        clear = PEAK_UNCERTAINTY * self.profiled + self.graphs
        return min(
            self.cache - one_sequence - clear, total - allowance_bytes - held - self.share - CONTEXT_UNCERTAINTY_BYTES
        )


def engine_memory(facts: EngineFacts, rollout: RolloutChoice, num_sequences: int, total: float) -> EngineMemory:
    """An engine's memory on a GPU of ``total`` bytes, with ``num_sequences`` at once (vLLM's gpu_worker.py)."""
    profiled = facts.profiled_bytes(num_sequences)
    requested = rollout.share * total
    cache = requested - facts.weights - profiled - (facts.graphs if facts.graphs_in_share else 0)
    block = max(facts.cache_of_token * KV_BLOCK_TOKENS, 1)
    return EngineMemory(
        weights=facts.weights,
        cache=max(cache // block * block, 0.0),
        graphs=facts.graphs,
        profiled=profiled,
        share=requested,
        sleeps=rollout.sleep,
        in_share=facts.graphs_in_share,
    )


def memory_shares(facts: EngineFacts, num_sequences: int, tokens: int, total: float) -> list[float]:
    """Memory shares to try, smallest first: from one for a few sequences to one whose cache holds a whole batch."""
    fixed = facts.weights + facts.profiled_bytes(num_sequences) * (1 + PEAK_UNCERTAINTY) + 2 * facts.graphs
    grid = [round(_MIN_SHARE + 0.05 * step, 2) for step in range(_STEPS + 1)]
    least = (fixed + 2 * tokens * facts.cache_of_token) / total
    most = (fixed + (num_sequences + 1) * tokens * facts.cache_of_token) / total
    wanted = [share for share in grid if least <= share < most + 0.05]
    return wanted or [share for share in grid if share >= least][:1]


def with_engine(peak: Peak, engine: EngineMemory) -> Peak:
    """The same trainer with this engine, whatever engine it was rehearsed with.

    The engine's tensors are few and large, so they add no fragmentation to the caching allocator.
    """
    unused = max(peak.reserved - peak.allocated, 0.0)
    phases = {name: _with_engine_bytes(name, phase, engine) for name, phase in peak.phases.items()}
    allocated = max(phase.allocated for phase in phases.values())
    return msgspec.structs.replace(peak, phases=phases, reserved=allocated + unused)


def _with_engine_bytes(name: str, phase: PhasePeak, engine: EngineMemory) -> PhasePeak:
    had, has = phase.by_category.get("rollout", 0.0), engine.bytes_in_phase(name)
    return PhasePeak(phase.allocated - had + has, {**phase.by_category, "rollout": has})
