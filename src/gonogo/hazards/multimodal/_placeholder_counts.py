"""Placeholders against features: what the message counts, and the limits that cut placeholders off."""

from __future__ import annotations

from gonogo.evidence.log.failure_log import LineMatch, LoggedError
from gonogo.hazards.rule import Field, Pattern, Run

MISMATCH = Pattern(
    r"(?:[Ii]mage|[Vv]ideo|[Aa]udio)s? (?:features|embeds)(?: and|,?) (?:image |video |audio )?tokens do not match"
    r"(?:[:,]? (?:image )?tokens: ?(?P<tokens>\d+),? (?:image )?features:? ?(?P<features>\d+))?"
    r"|Attempted to assign (?P<given>[\d +=]+?) multimodal tokens to (?P<places>\d+) placeholders"
)
"""transformers' and vLLM's refusals."""
POSITIONS_MISMATCH_PATTERN = Pattern(
    r"shape mismatch: value tensor of shape \[3, (?P<needed>\d+)\] cannot be broadcast to indexing result of shape "
    r"\[3, (?P<kept>\d+)\]"
)
"""Qwen-VL's three rows of positions, counted from the sizes of the images, and the tokens that there are."""
CUTOFF_ROUNDING = 64
"""What length limits are multiples of, and lengths of sequences that nothing cut rarely."""
LIMIT = Pattern(
    r"(?:cutoff_len|max_length|max_prompt_length|max_seq_len(?:gth)?|model_max_length)[\"']?[=: ]+[\"']?\d+"
)
"""A length limit, as launches and configs write it."""
FEW = 16
"""Tokens by which a stray placeholder puts the counts apart; truncation takes more."""
PIXELS_PER_TOKEN = 32 * 32
"""The most pixels that one token of the common vision towers stands for (Qwen3-VL; Qwen2-VL: 28 x 28)."""


def token_and_feature_counts(evidence: LineMatch | LoggedError) -> tuple[int, int] | None:
    """The tokens in the text and the features of the images; None where the message doesn't count them."""
    text = evidence.text if isinstance(evidence, LineMatch) else evidence.message
    match = MISMATCH.search(text)
    if match is None:
        return None
    groups = match.groupdict()
    if groups["tokens"] and groups["features"]:
        return int(groups["tokens"]), int(groups["features"])
    if groups["given"] and groups["places"]:
        return int(groups["places"]), int(str(groups["given"]).rpartition("=")[2])
    return None


def first_known_argument(run: Run, *names: str) -> tuple[str, Field] | None:
    """The first of these arguments that the run gives, with its name."""
    return next(((name, field) for name in names if (field := run.arguments.get(name)).known), None)
