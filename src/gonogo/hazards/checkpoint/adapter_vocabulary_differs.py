from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign, match_in_evidence
from gonogo.hazards.rule import Certainty, FailureLog


class AdapterVocabularyDiffers(LoggedHazard):
    def certainty_for(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """The sign's certainty, or None if the row widths differ: then the base model is another one."""
        match = match_in_evidence(sign.says, evidence)
        sizes = match.groupdict() if match is not None else {}
        return sign.certainty if sizes and sizes["width"] == sizes["other"] else None
