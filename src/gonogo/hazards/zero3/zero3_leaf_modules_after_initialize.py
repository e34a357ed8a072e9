from gonogo.hazards.facts.zero_files import stage_span
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text


class Zero3LeafModulesAfterInitialize(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A call of it below the one that builds the engine, in the same function."""
        if run.zero_stage != 3 or b"set_z3_leaf_module" not in script.source.data:
            return
        built = list(script.calls("deepspeed.initialize", "accelerate.Accelerator.prepare"))
        for call in script.calls("*.set_z3_leaf_modules", "*.set_z3_leaf_module"):
            function = script.enclosing_function(call.node)
            here = [one for one in built if script.enclosing_function(one.node) is function]
            if not here or any(one.line > call.line for one in here):
                continue
            yield self.finding(
                Text(
                    "{name} is after the engine is built (line {line}): the experts inside have their own hooks "
                    "already, and are still gathered one by one.",
                    "{name} 在引擎建立（第 {line} 行）之后才调用：内部的专家已各自挂上钩子，仍会逐个聚合。",
                ).format(name=call.method, line=here[-1].line),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=Text("Call it before the engine is built", "在建立引擎之前调用"),
                spans=(
                    call.place.span(),
                    here[-1].place.span(Text("the engine is built here", "在此建立引擎")),
                    stage_span(run),
                ),
                confirm=Text("The model has no other engine", "该模型没有其他引擎"),
            )
