from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.finding.divergence import ENGINE_CONSTRUCTION
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, translated

_ENGINE_PER_PROCESS = translated(
    "Each process creates an engine, and all of them build vLLM's process groups together."
)
_ENGINE_RANKS_REDUCE = translated("The ranks of a tensor-parallel engine reduce in every layer of every step.")
_SAME_PROMPTS_REQUIRED = translated(
    "The ranks of a tensor-parallel engine act as one model: each must be given the same prompts and parameters, "
    "in the same order."
)
_CREATE_ENGINE_ON_ALL_RANKS = translated("Create and call the engine on every rank, outside any condition on the rank")
_GATHER_PROMPTS_CURE = translated(
    "Gather the prompts of the engine's ranks before generate (all_gather_object in their group), and keep only "
    "each rank's own completions"
)
_ONE_ENGINE_PER_GPU = translated(
    "Or use one engine per GPU (tensor_parallel_size=1): then generate needs no other rank"
)


class RolloutEngineRanksDiverge(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge inside a colocated engine that waits for the other ranks."""
        divergence = rank_divergence(record)
        if divergence is None or not divergence.of_engine:
            return
        telling = divergence.most_informative_side(*divergence.of_engine)
        all_generate = divergence.divergence.kind == "other-size" and len(divergence.of_engine) == len(divergence.sides)
        if all_generate and divergence.rank_test is None:
            yield self.divergence_finding(
                divergence, telling, cure=(_GATHER_PROMPTS_CURE, _ONE_ENGINE_PER_GPU), reason=_SAME_PROMPTS_REQUIRED
            )
            return
        made = any(side.call is not None and side.call.operator == ENGINE_CONSTRUCTION for side in divergence.of_engine)
        yield self.divergence_finding(
            divergence,
            telling,
            cure=_CREATE_ENGINE_ON_ALL_RANKS if made else (_CREATE_ENGINE_ON_ALL_RANKS, _ONE_ENGINE_PER_GPU),
            reason=_ENGINE_PER_PROCESS if made else _ENGINE_RANKS_REDUCE,
        )
