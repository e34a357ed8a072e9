"""Compares placeholders with features: the counts in the message, and limits that truncate placeholders."""

from __future__ import annotations

from gonogo.hazards.rule import Field, LineMatch, LoggedError, Pattern, Run

MISMATCH_PATTERN = Pattern(
    r"(?:[Ii]mage|[Vv]ideo|[Aa]udio)s? (?:features|embeds)(?: and|,?) (?:image |video |audio )?tokens do not match"
    r"(?:[:,]? (?:image )?tokens: ?(?P<tokens>\d+),? (?:image )?features:? ?(?P<features>\d+))?"
    r"|Attempted to assign (?P<given>[\d +=]+?) multimodal tokens to (?P<places>\d+) placeholders"
)
"""The errors of transformers and vLLM."""
POSITIONS_MISMATCH_PATTERN = Pattern(
    r"shape mismatch: value tensor of shape \[3, (?P<needed>\d+)\] cannot be broadcast to indexing result of shape "
    r"\[3, (?P<kept>\d+)\]"
)
"""Qwen-VL's three rows of position IDs, computed from the image sizes, do not match the number of tokens."""
LENGTH_LIMIT_MULTIPLE = 64
"""Length limits are multiples of this; the lengths of sequences that were not truncated rarely are."""
LIMIT_PATTERN = Pattern(
    r"(?:cutoff_len|max_length|max_prompt_length|max_seq_len(?:gth)?|model_max_length)[\"']?[=: ]+[\"']?\d+"
)
"""A length limit, as launches and configs write it."""
MAX_STRAY_PLACEHOLDERS = 16
"""A stray placeholder changes the count by up to this many tokens; truncation by more."""
PIXELS_PER_TOKEN = 32 * 32
"""The most pixels per token in common vision towers (Qwen3-VL; Qwen2-VL: 28 x 28)."""


def token_and_feature_counts(evidence: LineMatch | LoggedError) -> tuple[int, int] | None:
    """The tokens in the text and the features of the images; None if the message doesn't have both."""
    text = evidence.text if isinstance(evidence, LineMatch) else evidence.message
    match = MISMATCH_PATTERN.search(text)
    if match is None:
        return None
    groups = match.groupdict()
    if groups["tokens"] and groups["features"]:
        return int(groups["tokens"]), int(groups["features"])
    if groups["given"] and groups["places"]:
        return int(groups["places"]), int(str(groups["given"]).rpartition("=")[2])
    return None


def first_known_argument(run: Run, *names: str) -> tuple[str, Field] | None:
    """The first of these arguments that the run sets, with its name."""
    return next(((name, field) for name in names if (field := run.arguments.get(name)).known), None)
