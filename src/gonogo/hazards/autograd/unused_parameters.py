from gonogo.evidence.rehearsal.failures import first_few_names
from gonogo.hazards.autograd._never_used import unused_layers
from gonogo.hazards.facts.parameter_names import group_by_module
from gonogo.hazards.facts.training_script import calls_that_train, creating_calls, run_mentions
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, Run, Script, translated

# Code that accesses modules other than by name, or excludes them.
_INTROSPECTION_MARKERS = (
    *(b"requires_grad", b"getattr(", b".children()", b".modules()", b"named_children", b"named_modules", b"_modules"),
    *(b"register_forward", b"load_state_dict", b"__getattr__"),
)


class UnusedParameters(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A layer that a trained module builds and the project never uses again; plain DDP has its own hazard."""
        if b"nn.Module" not in script.source.data or run_mentions(run, script, *_INTROSPECTION_MARKERS):
            return
        for call, node in calls_that_train(script):
            if call.method == "DistributedDataParallel":
                continue
            made = creating_calls(script, node)
            for owner, layer, statement in unused_layers(script, run, {one.name for one in made}):
                yield self.finding(
                    self.texts["cause_in_script"].format(owner=owner.name, layer=layer),
                    cure=translated("Do not build a layer that forward does not use, or use the layer there"),
                    spans=(
                        owner.script.place(statement).span(),
                        script.place(call.node.func).span(translated("trained here")),
                    ),
                    parameter=f"{layer}.weight",
                )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Parameters that no rank has used, among ranks that completed a step; before that, nothing is used yet."""
        stepped = [rank for rank in record.ranks if rank.steps > 0]
        everywhere = set.intersection(*(set(rank.unused_parameters) for rank in stepped)) if stepped else set()
        listed = stepped[0].unused_parameters if stepped else []
        names = [name for name in listed if name in everywhere and ".experts." not in name]
        if not names:
            return
        yield self.finding(
            self.texts["cause_in_rehearsal"].format(count=len(names), names=first_few_names(group_by_module(names))),
            ranks=tuple(rank.rank for rank in stepped),
            module=names[0].rpartition(".")[0] or None,
            parameter=names[0],
        )
