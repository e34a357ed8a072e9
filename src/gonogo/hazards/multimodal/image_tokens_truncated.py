from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.log_rule import LoggedHazard, Sign, log_mentions, match_in_evidence
from gonogo.hazards.multimodal._placeholder_counts import (
    LENGTH_LIMIT_MULTIPLE,
    LIMIT_PATTERN,
    MAX_STRAY_PLACEHOLDERS,
    MISMATCH_PATTERN,
    PIXELS_PER_TOKEN,
    POSITIONS_MISMATCH_PATTERN,
    first_known_argument,
    token_and_feature_counts,
)
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, translated, whole_number


class ImageTokensTruncated(LoggedHazard):
    signs = (
        Sign(
            Pattern(r"Likely due to `?truncation=|Mismatch in `\w+` token count between text and `input_ids`"),
            Certainty.CERTAIN,
        ),
        Sign(MISMATCH_PATTERN),
        Sign(
            Pattern(
                r"number of (?:image|video) tokens is \d+ while the number of (?:image|video)s? given to the model is"
            ),
            Certainty.POSSIBLE,
        ),
        Sign(Pattern(r"number of image start tokens and image end tokens should be the same")),
        Sign(POSITIONS_MISMATCH_PATTERN),
    )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: LineMatch | LoggedError) -> Certainty | None:
        """Fewer tokens than features were truncated; more tokens count only if a limit is known to be small."""
        if sign.says is POSITIONS_MISMATCH_PATTERN:
            match = match_in_evidence(POSITIONS_MISMATCH_PATTERN, evidence)
            needed, kept = (int(match.group(name)) for name in ("needed", "kept")) if match is not None else (0, 0)
            if needed <= kept:
                return None
            return (
                Certainty.LIKELY
                if kept % LENGTH_LIMIT_MULTIPLE == 0 or log_mentions(log, LIMIT_PATTERN)
                else Certainty.POSSIBLE
            )
        if sign.says is not MISMATCH_PATTERN:
            return sign.certainty
        counts = token_and_feature_counts(evidence)
        if counts is None:
            return Certainty.POSSIBLE
        tokens, features = counts
        if tokens < features:
            return Certainty.LIKELY
        limited = log_mentions(log, LIMIT_PATTERN)
        if limited and tokens - features > MAX_STRAY_PLACEHOLDERS:
            return Certainty.LIKELY
        return None if features and tokens % features == 0 else Certainty.POSSIBLE  # each twice

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """One image of the largest allowed size that exceeds the length limit."""
        limit = first_known_argument(run, "cutoff_len", "max_prompt_length", "data.max_prompt_length", "max_seq_length")
        pixels = first_known_argument(run, "image_max_pixels", "max_pixels", "data.max_pixels")
        if limit is None or pixels is None:
            return
        length, most = whole_number(limit[1]), whole_number(pixels[1])
        if length is None or most is None or most // PIXELS_PER_TOKEN <= length:
            return
        yield self.finding(
            self.texts["cause"].format(
                pixels=pixels[0], tokens=most // PIXELS_PER_TOKEN, limit=limit[0], length=length
            ),
            certainty=Certainty.POSSIBLE,
            spans=(limit[1].span(), pixels[1].span(), launch.place.span()),
            confirm=translated("The data has images of that size"),
        )
