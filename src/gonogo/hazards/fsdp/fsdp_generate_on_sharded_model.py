import ast

from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated


class FsdpGenerateOnShardedModel(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """generate() on a model wrapped by FSDP, outside summon_full_params."""
        if b"FullyShardedDataParallel" not in script.source.data or b"summon_full_params" in script.source.data:
            return
        wrapped = {
            target.id
            for call in script.calls("*.FullyShardedDataParallel", "torch.distributed.fsdp.FSDP")
            if isinstance(made := script.statement(call.node), ast.Assign)
            for target in made.targets
            if isinstance(target, ast.Name)
        }
        for call in script.calls("*.generate"):
            model = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            if isinstance(model, ast.Name) and model.id in wrapped:
                yield self.finding(
                    self.cause_in_script.format(name=model.id),
                    certainty=Certainty.LIKELY,
                    confirm=(),
                    spans=call.place.span(),
                )

    cause_in_script = translated(
        "{name} is wrapped by FSDP, but generate() is the inner model's own method: the root's parameters are "
        "not gathered for it."
    )
