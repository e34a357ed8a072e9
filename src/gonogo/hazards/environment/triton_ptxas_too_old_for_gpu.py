from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import LoggedHazard, Text, translated


class TritonPtxasTooOldForGpu(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the architecture that is named."""
        named = match.groupdict().get("arch") if match is not None else None
        return self.cause.format(arch=named or translated("of this GPU"))
