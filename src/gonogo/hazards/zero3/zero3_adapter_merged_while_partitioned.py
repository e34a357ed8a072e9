from gonogo.hazards.facts.zero_usage import is_in_gathered_parameters, is_under_zero_condition, source_text, stage_span
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._loading import is_zero3_configured_at


class Zero3AdapterMergedWhilePartitioned(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Merges outside of ``GatheredParameters``, once ZeRO-3 is on."""
        if run.zero_stage != 3 or b".merge_" not in script.source.data:
            return
        for call in script.calls("*.merge_and_unload", "*.merge_adapter"):
            if is_in_gathered_parameters(script, call.node) or is_under_zero_condition(script, call.node):
                continue
            known = is_zero3_configured_at(script, call.node)
            if known is False or (known is None and not script.imports("deepspeed")):
                continue
            yield self.finding(
                self.texts["cause"].format(code=source_text(script, call.node.func) + "()"),
                cure=(
                    translated("Save the adapter, and merge it in a separate process without ZeRO-3"),
                    self.texts["cure"].format(
                        model=source_text(script, call.receiver) if call.receiver is not None else "model"
                    ),
                ),
                spans=(call.place.span(), stage_span(run)),
            )
