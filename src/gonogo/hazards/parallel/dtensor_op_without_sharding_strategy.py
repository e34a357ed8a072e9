from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import LoggedHazard, Text, translated


class DtensorOpWithoutShardingStrategy(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the operator."""
        named = match.groupdict().get("operator") if match is not None else None
        return self.cause.format(operator=named or translated("the operator"))
