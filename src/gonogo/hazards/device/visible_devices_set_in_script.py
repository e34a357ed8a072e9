import ast

from gonogo.evidence.script.identifiers import last_name
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Text


class VisibleDevicesSetInScript(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A constant that names fewer GPUs than a node has processes, set on the way to training."""
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
                Text(
                    "Each of the {processes} processes of a node sees {shown} only, and has its local rank's GPU taken "
                    "away.",
                    "每个节点的 {processes} 个进程都只能看到 {shown}，local rank 对应的 GPU 因此不可见。",
                ).format(
                    processes=processes,
                    shown=Text(f"GPU {', '.join(gpus)}", f"GPU {', '.join(gpus)}")
                    if gpus
                    else Text("no GPU", "零张 GPU"),
                ),
                certainty=Certainty.CERTAIN if isinstance(script.parent(statement), ast.Module) else Certainty.LIKELY,
                cure=Text("Remove it, and choose the GPUs where the run is launched", "删除它，并在启动处选择 GPU"),
                spans=(
                    script.place(statement).span(),
                    run.launch.place.span(
                        Text("starts {n} processes per node", "每个节点启动 {n} 个进程").format(n=processes)
                    ),
                ),
                fixes=self.fix(Text("Leave the choice to the launch", "由启动命令选择"), edit)
                if edit is not None
                else None,
            )
