from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import LoggedHazard, Text


class MegatronNotImportable(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the missing module."""
        named = match.groupdict().get("module") if match is not None else None
        return self.cause.format(module=named or "megatron.training")
