from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.facts.divergence_fixes import fix_rank_conditional_call
from gonogo.hazards.facts.rank_tests import find_single_rank_test, removable_rank_condition
from gonogo.hazards.facts.zero_usage import is_behind_option, is_engine, source_text
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, Script, translated


class DsCheckpointSavedOnOneRank(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge because only one saves a checkpoint."""
        divergence = rank_divergence(record)
        if divergence is None or divergence.rank_condition is None:
            return
        side, _ = divergence.rank_condition
        if "save_checkpoint" in side.functions:
            yield self.divergence_finding(
                divergence, side, cure=self.texts["call_on_all_ranks"], reason=self.texts["divergence_reason"]
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Run on all ranks what only one does."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_rank_conditional_call(divergence, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """``save_checkpoint`` of an engine, or ``save_state`` of an accelerator, that one rank calls."""
        data = script.source.data
        if (
            run.uses_deepspeed is False
            or run.world_size == 1
            or (b".save_checkpoint(" not in data and b".save_state(" not in data)
        ):
            return
        for call in script.calls("*.save_checkpoint", "accelerate.Accelerator.save_state"):
            if call.method == "save_checkpoint":
                if not is_engine(script, call.receiver):
                    continue
            elif not run.uses_deepspeed:
                continue
            test = find_single_rank_test(script, call.node)
            if test is None:
                continue
            lone = removable_rank_condition(script, call.node)
            edit = script.replacing(lone, script.place(call.node).text) if lone is not None else None
            yield self.finding(
                self.texts["cause"].format(code=source_text(script, call.node.func) + "(…)"),
                certainty=Certainty.LIKELY
                if run.zero_stage == 0 or is_behind_option(script, call.node)
                else Certainty.CERTAIN,
                cure=self.texts["call_on_all_ranks"],
                spans=(call.place.span(), script.place(test).span(translated("only one rank gets here"))),
                fixes=self.fix(translated("Save on all ranks"), edit, safe=False) if edit else None,
            )
