"""Fix for modules that call submodules a different number of times on each rank: ZeRO-3 leaf modules."""

import ast
from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import RankDivergence
from gonogo.evidence.script.identifiers import uses_name
from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.finding.divergence import CollectiveCall
from gonogo.finding.frame import Frame
from gonogo.hazards.facts.divergence_fixes import script_at
from gonogo.hazards.rule import Edit, Fix, Hazard, Run, Script, translated

_SET_LEAF_MODULES_FIX = translated("Let ZeRO-3 gather each {block} as a unit: set_z3_leaf_modules")


def fix_with_leaf_modules(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Add ``set_z3_leaf_modules``, before training, for a class whose forward calls experts or modules in a loop."""
    if not divergence.gathers_weights:
        return
    blocks = [block for _, call in divergence.sides_in_calls if (block := _find_block_class(run, call)) is not None]
    for block in dict.fromkeys(blocks):
        for script in run.scripts:
            for made in script.calls("deepspeed.initialize", *TRAINER_CLASSES):
                statement = script.statement(made.node)
                model = made.passed_keyword("model")
                if statement is None or model is None:
                    continue
                text = f'deepspeed.utils.set_z3_leaf_modules({script.place(model.value).text}, ["{block}"])'
                edits: list[Edit | None] = [script.inserting_before(statement, text)]
                if not script.imports("deepspeed"):
                    edits.append(script.inserting_import("import deepspeed"))
                yield Hazard.fix(_SET_LEAF_MODULES_FIX.format(block=block), *edits, safe=False)
                return


def _find_block_class(run: Run, call: CollectiveCall) -> str | None:
    """The innermost class on a call's stack whose forward calls modules in a loop."""
    frames = [frame for frame in call.frames if frame.function == "forward" and frame.owner != "torch"]
    return next(
        (name for frame in reversed(frames) if (name := _class_with_looping_forward(run, frame)) is not None), None
    )


def _class_with_looping_forward(run: Run, frame: Frame) -> str | None:
    """The class whose forward is in a loop at a frame, other than a loop over layers that all ranks run."""
    script: Script | None = script_at(run, frame.path)
    for node in script.nodes(ast.ClassDef) if script is not None else ():
        if script is None or not node.lineno <= frame.line <= (node.end_lineno or 0):
            continue
        loops: list[tuple[ast.For | ast.ListComp, ast.expr]] = [(one, one.iter) for one in script.nodes(ast.For)]
        loops += [(one, one.generators[0].iter) for one in script.nodes(ast.ListComp)]
        for loop, iterated in loops:
            inside = node.lineno <= loop.lineno <= frame.line <= (loop.end_lineno or 0)
            if inside and not uses_name(iterated, "layers"):
                return node.name
    return None
