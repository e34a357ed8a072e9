"""Facts from other releases of a failing package: when a name, an argument or the line that raised changed."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class UpstreamFact(msgspec.Struct, frozen=True):
    """One fact about a package's releases."""

    package: str
    version: str
    """The release that the run used."""
    symbol: str
    """The symbol that was looked up: ``transformers.modeling_utils:PreTrainedModel``."""
    said: Text
    releases: tuple[str, ...] = ()
    """Releases that differ from the run's in this, the nearest first: candidates to try."""
    neighbours: tuple[str, ...] = ()
    """For each of them, the adjacent release that is like the run's: the change was made between the two."""
    changelog: str = ""
    """The line of the package's own changelog that mentions it, with its release."""
