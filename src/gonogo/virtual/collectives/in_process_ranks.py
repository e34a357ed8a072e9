"""Ranks that are rehearsed in this very process, as Ray's workers are: what one of them broadcasts, the others get."""

from __future__ import annotations

from typing import Any


class InProcessRanks:
    """Whoever runs several ranks in one process answers here; else nobody does."""

    ask: Any = staticmethod(lambda group, operator, **what: None)
    """Given a group and what is sent to it, the objects by member; None where nobody can say."""
    root_sends: Any = staticmethod(lambda key, is_root, payload, waits: None)
    """Given a broadcast's members, root and sizes and, at its root, a tensor's value: what the root sent.

    Without ``waits`` only where it has sent already."""
    meet: Any = staticmethod(lambda members: None)
    """Given a barrier's members, returns when all of them are there."""
    all_send: Any = staticmethod(lambda members, what, payload: None)
    """Given a collective's members, which one it is, and this rank's tensors: what each sent, when all of them came.

    Empty is what isn't known."""
