from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.finding.divergence import ENGINE_CONSTRUCTION
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord


class RolloutEngineRanksDiverge(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge inside a colocated engine that waits for the other ranks."""
        divergence = rank_divergence(record)
        if divergence is None or not divergence.engine_sides:
            return
        informative = divergence.most_informative_side(*divergence.engine_sides)
        all_generate = divergence.divergence.kind == "other-size" and len(divergence.engine_sides) == len(
            divergence.sides
        )
        if all_generate and divergence.rank_condition is None:
            yield self.divergence_finding(
                divergence,
                informative,
                cure=(self.texts["gather_prompts_cure"], self.texts["one_engine_per_gpu"]),
                reason=self.texts["same_prompts_required"],
            )
            return
        made = any(
            side.call is not None and side.call.operator == ENGINE_CONSTRUCTION for side in divergence.engine_sides
        )
        yield self.divergence_finding(
            divergence,
            informative,
            cure=self.texts["create_engine_on_all_ranks"]
            if made
            else (self.texts["create_engine_on_all_ranks"], self.texts["one_engine_per_gpu"]),
            reason=self.texts["engine_per_process"] if made else self.texts["engine_ranks_reduce"],
        )
