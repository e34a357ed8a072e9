import ast
from collections.abc import Iterator

from gonogo.evidence.dumps.collective_mismatch import find_mismatch
from gonogo.evidence.rehearsal.rank_divergence import RankDivergence, rank_divergence
from gonogo.hazards.collective import _recorded as recorded
from gonogo.hazards.facts.divergence_fixes import fix_dict_order, script_at
from gonogo.hazards.facts.zero_usage import is_engine
from gonogo.hazards.rule import Certainty, FailureLog, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, translated

_SAME_DTYPE_FIX = translated("Make the tensor {dtype} on every rank")
_ALL_GRADIENTS = translated(
    "Add the sum of all parameters, multiplied by zero, to the loss, so that each has a gradient on every rank"
)


def same_dtype_fixes(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Set the dtype of ``torch.tensor(…)``, which otherwise depends on each rank's own values."""
    types = {call.dtype for _, call in divergence.sides_in_calls if call.dtype}
    floating = next((name for name in sorted(types) if "float" in name), None)
    if len(types) < 2 or floating is None:
        return
    for _, call in divergence.sides_in_calls[:1]:
        frame = call.innermost("user")
        script = script_at(run, frame.path) if frame is not None else None
        if script is None or frame is None:
            return
        for each in script.calls("torch.distributed.*"):
            if not each.node.lineno <= frame.line <= (each.node.end_lineno or 0) or not each.node.args:
                continue
            made = script.bound_to(each.node.args[0])
            if isinstance(made, ast.Call) and script.qualified(made.func) in ("torch.tensor", "torch.as_tensor"):
                edit = script.setting_keyword(made, "dtype", f"torch.{floating.removeprefix('torch.')}")
                if edit is not None:
                    yield Hazard.fix(_SAME_DTYPE_FIX.format(dtype=floating), edit, safe=False)


def all_gradient_fixes(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Add all parameters times zero to the loss, under ZeRO-1 and ZeRO-2, where each rank has whole parameters."""
    if divergence.zero_stage == 3 or not any("reduce" in call.operator for _, call in divergence.sides_in_calls):
        return
    for _, call in divergence.sides_in_calls[:1]:
        frame = call.innermost("user")
        script = script_at(run, frame.path) if frame is not None else None
        if script is None or frame is None:
            return
        for each in script.calls("*.backward"):
            statement = script.statement(each.node)
            loss = each.node.args[0] if each.node.args else None
            if loss is None or not is_engine(script, each.receiver) or statement is None or each.receiver is None:
                continue
            if statement.lineno <= frame.line <= (statement.end_lineno or 0):
                engine = script.place(each.receiver).text
                term = f" + 0.0 * sum(parameter.sum() for parameter in {engine}.parameters())"
                text = script.place(loss).text
                text = text if isinstance(loss, (ast.Name, ast.Call, ast.Attribute, ast.BinOp)) else f"({text})"
                edit = script.replacing(loss, text + term)
                if edit is not None:
                    yield Hazard.fix(_ALL_GRADIENTS, edit, safe=False)


class CollectiveSizesDiffer(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The same operator in one group, with different sizes, dtypes or reductions."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        if divergence.divergence.kind == "other-size":
            yield self.divergence_finding(divergence, divergence.most_informative_side(), cure=self.cures)

    def in_log(self, log: FailureLog) -> Findings:
        """Flight Recorder dumps whose calls with the same number have different sizes or dtypes."""
        unlike = find_mismatch(log.dumps)
        if unlike is not None and unlike.kind == "other-size":
            yield self.finding(
                recorded.describe_mismatch(unlike),
                certainty=Certainty.LIKELY,
                spans=recorded.span_in_waiting_dump(unlike),
                ranks=(*unlike.waiting, *unlike.others),
                confirm=recorded.CHECK_MISSING_RANK_LOGS,
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Use the same order, dtype or gradients on every rank."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_dict_order(divergence, run)
            yield from same_dtype_fixes(divergence, run)
            yield from all_gradient_fixes(divergence, run)
