from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.hazards.facts.rank_tests import find_single_rank_test
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Run, Script, translated

_EVALUATES = frozenset({"evaluate", "predict", "evaluation_loop", "prediction_loop"})


class TrainerEvaluatesOnOneRank(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Diverging ranks, one of which runs an evaluation."""
        divergence = rank_divergence(record)
        if divergence is None or divergence.rank_condition is None:
            return
        side, _ = divergence.rank_condition
        frames = side.call.frames if side.call is not None else ()
        if _EVALUATES & set(side.functions) and any("transformers" in frame.path for frame in frames):
            yield self.divergence_finding(divergence, side, cure=self.cures, reason=self.texts["divergence_reason"])

    def in_script(self, script: Script, run: Run) -> Findings:
        """The Trainer's evaluation under a test for one rank."""
        if run.world_size == 1 or run.zero_stage == 3:  # under ZeRO-3 any use of the model on one rank is a hazard
            return
        if not any(word in script.source.data for word in (b".evaluate(", b".predict(")):
            return
        for call in script.calls("*.evaluate", "*.predict"):
            kinds = script.kinds_of(call.receiver) if call.receiver is not None else ()
            guard = find_single_rank_test(script, call.node) if any(kind in TRAINER_CLASSES for kind in kinds) else None
            if guard is None:
                continue
            yield self.finding(
                self.texts["cause"].format(call=script.place(call.node.func).text, test=script.place(guard).text),
                certainty=Certainty.CERTAIN if run.is_distributed else Certainty.LIKELY,
                spans=(call.place.span(), script.place(guard).span(translated("this test lets only one rank through"))),
            )
