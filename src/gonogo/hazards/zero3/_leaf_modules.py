"""A block of experts made one unit of ZeRO-3's gathering, in the program's own code."""

import ast
from collections.abc import Iterator

from gonogo.evidence.rehearsal.frame import Frame
from gonogo.evidence.rehearsal.rank_divergence import RankDivergence
from gonogo.hazards.facts.all_ranks import script_at
from gonogo.hazards.rule import Fix, Hazard, Run, Script, Text

_LEAVES = Text(
    "Let ZeRO-3 gather each {block} as one: set_z3_leaf_modules",
    "让 ZeRO-3 把每个 {block} 作为整体聚合：set_z3_leaf_modules",
)


def made_leaves(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """``set_z3_leaf_modules`` before the engine is made, for the class whose forward calls the experts."""
    for _, call in divergence.calls:
        frames = [frame for frame in call.frames if frame.function == "forward" and frame.owner != "torch"]
        block = next((name for frame in reversed(frames) if (name := _class_at(run, frame)) is not None), None)
        if block is None or "expert" not in (call.module or ""):
            continue
        for script in run.scripts:
            for made in script.calls("deepspeed.initialize"):
                statement = script.statement(made.node)
                model = made.passed("model")
                if statement is None or model is None or not script.imports("deepspeed"):
                    continue
                text = f'deepspeed.utils.set_z3_leaf_modules({script.place(model.value).text}, ["{block}"])'
                edit = script.inserting_before(statement, text)
                if edit is not None:
                    yield Hazard.fix(_LEAVES.format(block=block), edit, safe=False)
                return


def _class_at(run: Run, frame: Frame) -> str | None:
    """The class whose forward holds experts and stands at a frame."""
    script: Script | None = script_at(run, frame.path)
    for node in script.nodes(ast.ClassDef) if script is not None else ():
        if node.lineno <= frame.line <= (node.end_lineno or 0) and script is not None:
            return node.name if "experts" in script.place(node).text else None
    return None
