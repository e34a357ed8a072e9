from gonogo.evidence.rehearsal.failures import first_few_names
from gonogo.hazards.facts.parameter_names import group_by_module
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord


class ParametersWithoutGradient(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Parameters without gradients on every rank that completed a step; before that, no gradient is expected."""
        stepped = [rank for rank in record.ranks if rank.steps > 0]
        without = [set(rank.parameters_without_gradient) | set(rank.unused_parameters) for rank in stepped]
        everywhere = set.intersection(*without) if without else set()
        listed = dict.fromkeys(name for rank in stepped for name in rank.parameters_without_gradient)
        names = [name for name in listed if name in everywhere and ".experts." not in name]
        if not names:
            return
        adapters = [name for name in names if "lora_" in name or "adapter" in name]
        reconnect = self.texts["reconnect_cure"].format(module=names[0].rpartition(".")[0] or "?")
        inputs = self.texts["checkpointing_cure"]
        yield self.finding(
            self.texts["cause"].format(count=len(names), names=first_few_names(group_by_module(names))),
            cure=(inputs, reconnect) if adapters else (reconnect, inputs),
            ranks=tuple(rank.rank for rank in stepped),
            module=names[0].rpartition(".")[0] or None,
            parameter=names[0],
        )
