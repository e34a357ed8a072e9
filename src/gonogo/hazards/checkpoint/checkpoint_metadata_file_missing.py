from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import LoggedHazard, Text


class CheckpointMetadataFileMissing(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the name of the missing file."""
        groups = match.groupdict() if match is not None else {}
        named = groups.get("file") or groups.get("named")
        return self.cause.format(told=Text(f": {named}", f"：{named}") if named else "")
