import ast

from gonogo.evidence.script.identifiers import last_name
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Text, translated


class VisibleDevicesSetInScript(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A constant CUDA_VISIBLE_DEVICES with fewer GPUs than processes per node, set on the way to training."""
        if b"CUDA_VISIBLE_DEVICES" not in script.source.data or run.launch is None:
            return
        processes = run.launch.processes_per_node.number
        if processes is None or processes < 2:
            return
        for statement in script.nodes(ast.Assign):
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Subscript) or not isinstance(value, ast.Constant):
                continue
            name = script.field(target.slice).value
            if name != "CUDA_VISIBLE_DEVICES" or last_name(target.value) != "environ":
                continue
            gpus = [one for one in str(value.value).split(",") if one.strip()]
            if len(gpus) >= processes or script.guarded_by(statement):
                continue
            edit = script.removing_statement(statement)
            yield self.finding(
                self.texts["cause"].format(
                    processes=processes,
                    shown=Text(f"GPU {', '.join(gpus)}", f"GPU {', '.join(gpus)}") if gpus else translated("no GPU"),
                ),
                certainty=Certainty.CERTAIN if isinstance(script.parent(statement), ast.Module) else Certainty.LIKELY,
                spans=(
                    script.place(statement).span(),
                    run.launch.place.span(translated("the launch starts {n} processes per node").format(n=processes)),
                ),
                fixes=self.fix(translated("Leave the choice to the launch command"), edit)
                if edit is not None
                else None,
            )
