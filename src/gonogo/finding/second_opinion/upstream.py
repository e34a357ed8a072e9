"""What other releases of a failing package show: where a name, an argument or the line that raised came or went."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class UpstreamFact(msgspec.Struct, frozen=True):
    """One fact of a package's releases."""

    package: str
    version: str
    """The release that the run had."""
    symbol: str
    """What was looked for: ``transformers.modeling_utils:PreTrainedModel``."""
    said: Text
    releases: tuple[str, ...] = ()
    """Releases that differ from the run's in it, the nearest first: what to try."""
    neighbours: tuple[str, ...] = ()
    """For each of them the release next to it that is as the run's: the change lies between the two."""
    changelog: str = ""
    """The line of the package's own changelog that names it, with its release."""
