from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Pattern

_TOKENIZATION_MISMATCH_PATTERN = Pattern(r"tokenization mismatch: (?P<counted>\d{1,6}) vs\.? (?P<there>\d{1,6})")

_NO_LOSS_PATTERN = Pattern(r"'loss': (?:0\.0,|nan)")


class LlavaTokenizationMismatch(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """The warning, and how often it occurs."""
        lines = tuple(log.find_all(_TOKENIZATION_MISMATCH_PATTERN))
        if not lines:
            return
        match = _TOKENIZATION_MISMATCH_PATTERN.search(lines[0].text)
        yield self.log_finding(
            lines[0],
            self.texts["cause"].format(counted=str(match.group("counted")), there=str(match.group("there")))
            if match is not None
            else self.title,
            certainty=Certainty.LIKELY if log.says(_NO_LOSS_PATTERN) else Certainty.POSSIBLE,
        )
