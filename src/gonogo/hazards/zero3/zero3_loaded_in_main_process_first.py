import ast
from typing import TypeGuard

from gonogo.hazards.facts.rank_tests import find_single_rank_test
from gonogo.hazards.facts.zero_usage import is_under_zero_condition, stage_span
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._loading import model_loads


class Zero3LoadedInMainProcessFirst(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Models that are loaded in a block that one rank enters before the others."""
        if run.zero_stage != 3 or run.world_size == 1:
            return
        for call in model_loads(script, "from_pretrained", "from_config"):
            block = next(
                (each for each in script.ancestors(call.node) if _is_main_process_first(each, call.node)), None
            )
            test = find_single_rank_test(script, call.node) if block is None else None
            if (block is None and test is None) or is_under_zero_condition(script, call.node):
                continue
            where = block.items[0].context_expr if block is not None else test
            yield self.finding(
                certainty=Certainty.CERTAIN if block is not None else Certainty.LIKELY,
                spans=(
                    call.place.span(),
                    script.place(where).span(translated("one rank at a time")) if where is not None else None,
                    stage_span(run),
                ),
            )


_MAIN_PROCESS_FIRST_FUNCTIONS = (
    "main_process_first",
    "local_main_process_first",
    "is_rank_zero_first",
    "rank0_first",
    "torch_distributed_zero_first",
)


def _is_main_process_first(block: ast.AST, inside: ast.AST) -> TypeGuard[ast.With]:
    if not isinstance(block, ast.With) or block.lineno == getattr(inside, "lineno", 0):
        return False
    call = block.items[0].context_expr
    func = call.func if isinstance(call, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name in _MAIN_PROCESS_FIRST_FUNCTIONS
