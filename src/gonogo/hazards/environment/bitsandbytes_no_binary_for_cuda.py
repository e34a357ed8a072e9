from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import LoggedHazard, Text, translated


class BitsandbytesNoBinaryForCuda(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the CUDA version from the library's name."""
        digits = str(match.groupdict().get("cuda") or "") if match is not None else ""
        return self.cause.format(cuda=f"{digits[:-1]}.{digits[-1]}" if digits else translated("this torch"))
