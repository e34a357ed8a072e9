import ast
from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.finding.divergence import Side
from gonogo.hazards.facts.divergence_fixes import fix_rank_conditional_call
from gonogo.hazards.facts.rank_tests import find_single_rank_test, removable_rank_condition
from gonogo.hazards.facts.zero_usage import is_behind_option, is_engine, source_text, stage_span
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, Script, translated

_GATHER_CALLS = (
    *("deepspeed.zero.GatheredParameters", "deepspeed.utils.safe_get_full_fp32_param"),
    *("deepspeed.utils.safe_get_full_grad", "deepspeed.utils.safe_get_full_optimizer_state"),
    *("accelerate.Accelerator.get_state_dict", "accelerate.Accelerator.save_model"),
)


_SAVES_WEIGHTS = frozenset(
    {"save_16bit_model", "save_fp16_model", "_zero3_consolidated_16bit_state_dict", "save_pretrained", "save_model"}
)


class Zero3WeightsGatheredOnOneRank(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge because only one gathers weights."""
        divergence = rank_divergence(record)
        if divergence is None or divergence.rank_condition is None:
            return
        side, _ = divergence.rank_condition
        if divergence.zero_stage == 3 and _gathers_full_weights(side):
            yield self.divergence_finding(
                divergence, side, cure=self.texts["call_on_all_ranks"], reason=self.texts["divergence_reason"]
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Run on all ranks what only one does."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_rank_conditional_call(divergence, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """Gathers that only one rank calls."""
        if run.zero_stage != 3 or run.world_size == 1:
            return
        for call in script.calls(*_GATHER_CALLS, "*.save_16bit_model", "*.save_fp16_model", "*.save_model"):
            if call.method.startswith("save_") and not _is_gathering_save(script, call.node):
                continue
            test = find_single_rank_test(script, call.node)
            if test is None:
                continue
            lone = removable_rank_condition(script, call.node)
            edit = script.replacing(lone, script.place(call.node).text) if lone is not None else None
            yield self.finding(
                self.texts["cause"].format(code=source_text(script, call.node.func) + "(…)"),
                certainty=Certainty.LIKELY if is_behind_option(script, call.node) else Certainty.CERTAIN,
                cure=self.texts["call_on_all_ranks"],
                spans=(
                    call.place.span(),
                    script.place(test).span(translated("only one rank gets here")),
                    stage_span(run),
                ),
                fixes=self.fix(translated("Call the gather on all ranks"), edit, safe=False) if edit else None,
            )


def _gathers_full_weights(side: Side) -> bool:
    """Whether the side's call gathers full weights, explicitly or to save them."""
    by_hand = side.call is not None and any(
        frame.function == "__enter__" and frame.path.endswith("partition_parameters.py") for frame in side.call.frames
    )
    return by_hand or bool(_SAVES_WEIGHTS & set(side.functions))


def _is_gathering_save(script: Script, node: ast.Call) -> bool:
    """Whether a save method belongs to an engine, an Accelerator or a Trainer."""
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    if receiver is None:
        return False
    kinds = script.kinds_of(receiver)
    return is_engine(script, receiver) or any(kind.endswith(("Trainer", "accelerate.Accelerator")) for kind in kinds)
