from gonogo.hazards.rule import Certainty, FailureLog, LineMatch, LoggedError, LoggedHazard, Pattern, Sign

_ASLEEP_PATTERN = Pattern(r"to fall asleep|POST /sleep|Sleep mode freed|CuMemAllocator: sleep freed")
_WAKE_UP_PATTERN = Pattern(r"to wake up|POST /wake_up")
_ILLEGAL_PATTERN = Pattern(r"an illegal memory access was encountered")


class RolloutEngineSleptWhileRequestsRun(LoggedHazard):
    signs = (
        Sign(
            Pattern(
                r"release_memory_occupation should be called only when|[Cc]annot (?:sleep|release memory).* (?:running"
                r"|ongoing|unfinished|pending) requests?"
            ),
            certainty=Certainty.CERTAIN,
        ),
        Sign(_ILLEGAL_PATTERN, beside=_ASLEEP_PATTERN),
        Sign(
            Pattern(
                r"Dumping input data for V1 LLM engine|EngineDeadError|EngineCore encountered (?:a fatal error"
                r"|an issue)"
            ),
            beside=_ASLEEP_PATTERN,
        ),
    )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: LineMatch | LoggedError) -> Certainty | None:
        """None unless the engine was put to sleep before the failure and not woken up in between."""
        if sign.beside is None:
            return sign.certainty
        asleep, awake = log.find(_ASLEEP_PATTERN), log.find(_WAKE_UP_PATTERN)
        line = evidence.line if isinstance(evidence, LineMatch) else evidence.raised.at
        if asleep is None or asleep.line.number > line.number:
            return None
        woken = awake is not None and asleep.line.number < awake.line.number < line.number
        return Certainty.POSSIBLE if woken else sign.certainty
