from gonogo.evidence.patterns import Match
from gonogo.hazards.multimodal._placeholder_counts import (
    MAX_STRAY_PLACEHOLDERS,
    MISMATCH_PATTERN,
    token_and_feature_counts,
)
from gonogo.hazards.rule import Certainty, FailureLog, LineMatch, LoggedError, LoggedHazard, Pattern, Sign, Text

_COMPLETION_CODE_PATHS = ("dp_actor.py", "/verl/workers/", "grpo_trainer.py", "rloo_trainer.py", "openrlhf/")
"""Code in which a trainer runs the model on its own completions."""


class ImagePlaceholdersMalformed(LoggedHazard):
    signs = (
        Sign(
            Pattern(
                r"[Nn]umber of (?:images?|videos?|audios?)(?: \(?\d+\)?)? (?:does"
                r"|do) not match (?:the )?number of (?:<\w+>|\w+) (?:tokens|placeholders)"
                r"|[Nn]umber of (?:image|video) (?:tokens|placeholders).{0,60}(?:does not match|not equal|!="
                r"|but).{0,40}(?:images|videos)"
                r"|(?:len\(images\)|images) .{0,30}is less than the number of <image> tokens"
                r"|[Ii]mage tags?.{0,40}(?:does not|not) match"
            )
        ),
        Sign(types=("IndexError", "StopIteration"), frames=(("get_rope_index",),)),
        # vLLM itself names a second cause: a processor of another model.
        Sign(
            Pattern(
                r"Expected there to be \d+ prompt (?:updates|placeholders|replacements) corresponding to \d+ (?:image"
                r"|video|audio)"
            ),
            Certainty.POSSIBLE,
        ),
        Sign(types=("",), frames=(("get_rope_index",), ("grid_thw[",)), certainty=Certainty.POSSIBLE),
        Sign(Pattern(r"Assertion `totalElements <= srcSize` failed"), Certainty.POSSIBLE),
        Sign(MISMATCH_PATTERN),
    )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: LineMatch | LoggedError) -> Certainty | None:
        """A few extra tokens are stray placeholders; fewer tokens than features are more likely due to truncation."""
        if isinstance(evidence, LoggedError) and "too many indices" in evidence.message:
            return None  # a mask of another shape, which is not about placeholders
        if sign.says is not MISMATCH_PATTERN:
            return sign.certainty
        counts = token_and_feature_counts(evidence)
        if counts is None:
            return Certainty.POSSIBLE
        tokens, features = counts
        if _counts_unmerged_patches(tokens, features):
            return Certainty.LIKELY
        if tokens > features and isinstance(evidence, LoggedError) and evidence.passes(*_COMPLETION_CODE_PATHS):
            return Certainty.POSSIBLE  # the model may have generated the token itself, and the data may be correct
        return (
            Certainty.LIKELY if 0 < tokens - features <= MAX_STRAY_PLACEHOLDERS or not features else Certainty.POSSIBLE
        )

    def format_cause(self, match: Match | None) -> Text:
        """The cause, with a special text if there is one placeholder for each unmerged patch."""
        groups = match.groupdict() if match is not None else {}
        tokens, features = (int(groups.get(name) or 0) for name in ("tokens", "features"))
        if not _counts_unmerged_patches(tokens, features):
            return self.cause
        return self.texts["patches_counted_cause"].format(tokens=tokens, features=features, times=tokens // features)


def _counts_unmerged_patches(tokens: int, features: int) -> bool:
    """Whether there are as many placeholders per feature as a vision tower merges patches: 2 x 2, 3 x 3, 4 x 4."""
    return features > 0 and tokens in (4 * features, 9 * features, 16 * features)
