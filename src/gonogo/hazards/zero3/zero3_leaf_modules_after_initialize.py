from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated


class Zero3LeafModulesAfterInitialize(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A call of ``set_z3_leaf_modules`` below the one that builds the engine, in the same function."""
        if run.zero_stage != 3 or b"set_z3_leaf_module" not in script.source.data:
            return
        built = list(script.calls("deepspeed.initialize", "accelerate.Accelerator.prepare"))
        for call in script.calls("*.set_z3_leaf_modules", "*.set_z3_leaf_module"):
            function = script.enclosing_function(call.node)
            here = [one for one in built if script.enclosing_function(one.node) is function]
            if not here or any(one.line > call.line for one in here):
                continue
            yield self.finding(
                self.texts["cause"].format(name=call.method, line=here[-1].line),
                spans=(call.place.span(), here[-1].place.span(translated("the engine is built here")), stage_span(run)),
            )
