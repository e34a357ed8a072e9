"""Ranks that are rehearsed in the same process, such as Ray workers: what one of them broadcasts, the others get."""

from __future__ import annotations

from typing import Any


class InProcessRanks:
    """Hooks for a runner of several ranks in one process; by default they do nothing."""

    exchange_objects: Any = staticmethod(lambda group, operator, **what: None)
    """Called with a group and what is sent to it; returns the objects by member, or None if unknown."""
    root_sends: Any = staticmethod(lambda key, is_root, payload, waits: None)
    """Called for a broadcast; returns what the root sent.

    Arguments: the broadcast's members, root and sizes as a key; whether this rank is the root; the tensor's value at
    the root. If ``waits`` is False, it returns a value only if the root has already sent it.
    """
    wait_for_members: Any = staticmethod(lambda members: None)
    """Called with a barrier's members; returns when all of them have arrived."""
    all_send: Any = staticmethod(lambda members, what, payload: None)
    """Called with a collective's members, its description, and this rank's tensors; returns what each member sent.

    Waits for all of them. Unknown values are empty.
    """
