import ast

from gonogo.evidence.script.identifiers import same_code
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated


class Fsdp2MethodOutsideForward(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """generate() on a model passed to fully_shard, without register_fsdp_forward_method."""
        if b"fully_shard" not in script.source.data or b"register_fsdp_forward_method" in script.source.data:
            return
        sharded = [
            call.node.args[0]
            for call in script.calls(
                "torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard"
            )
            if call.node.args
        ]
        for call in script.calls("*.generate"):
            model = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            if model is None or b".unshard()" in script.source.data:
                continue
            if not any(same_code(model, one) for one in sharded):
                continue
            yield self.finding(
                self.cause_in_script.format(name=script.place(model).text),
                certainty=Certainty.LIKELY,
                cure=self.cures[:2],
                confirm=(),
                spans=call.place.span(),
            )

    cause_in_script = translated(
        "{name} is sharded by fully_shard, whose hooks run only in forward: generate() sees sharded parameters."
    )
