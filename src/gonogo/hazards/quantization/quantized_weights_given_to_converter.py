from gonogo.evidence.failure.message import parse_shape_sizes
from gonogo.hazards.log_rule import LoggedHazard, log_mentions
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Pattern, Text

_QUANTIZATION_PATTERN = Pattern(r"(?i)nvfp4|mxfp4|\bawq\b|gptq|[-_]int[48]\b|bnb-4bit|[-_]4bit|w4a16|quantized")


class QuantizedWeightsGivenToConverter(LoggedHazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A shape mismatch that looks like packed weights; likelier if the log mentions a quantized checkpoint."""
        quantized = log_mentions(log, _QUANTIZATION_PATTERN)
        for error in log.errors:
            # Only the first line of a message may carry a rank's prefix (or lack it).
            text = "\n".join([error.message, *(line.text for line in log.lines_after(error.raised.at, 4))])
            match = self.patterns["shape_mismatch"].search(text) or (
                self.patterns["size_mismatch"].search(error.message) if quantized else None
            )
            if match is None or not _looks_packed(str(match.group("expected")), str(match.group("got"))):
                continue
            yield self.log_finding(
                error,
                self.cause.format(
                    told=Text(
                        f" ([{match.group('got')}] for [{match.group('expected')}])",
                        f"（[{match.group('got')}] 对 [{match.group('expected')}]）",
                    )
                ),
                certainty=Certainty.LIKELY if quantized or "megatron param" in text else Certainty.POSSIBLE,
            )
            return


def _looks_packed(expected: str, got: str) -> bool:
    """Whether exactly one dimension differs, being a half, a quarter or an eighth of the expected one."""
    wanted, found = (parse_shape_sizes(sizes) for sizes in (expected, got))
    if len(wanted) != len(found):
        return False
    shares = [one / other for one, other in zip(wanted, found, strict=True) if one != other and other]
    return len(shares) == 1 and shares[0] in (2, 4, 8)
