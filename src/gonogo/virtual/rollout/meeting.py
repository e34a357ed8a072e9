"""The process group of a trainer and a rollout server: every operation of one side must be matched by the other.

The server's side is derived from HTTP requests. vLLM's own server (vllm/entrypoints/serve/rlhf and
vllm/distributed/weight_transfer, 0.18 to 0.31) joins the group and receives weights before it answers the request;
``trl vllm-serve`` and ``swift rollout`` delegate to a worker and answer at once. So a request to the former hangs if
it is sent from the thread that has to take part in the operation.
"""

from __future__ import annotations

import threading

JOIN_PATHS = {"/init_weight_transfer_engine": True, "/init_communicator": False}
RECEIVE_PATHS = {
    "/update_weights": True, "/update_named_param": False, "/batch_update_named_params": False,
    "/update_flattened_params": False,
}  # fmt: skip
"""By path, True if the server answers only after it has received the weights."""
_POST_SYNC_PATHS = ("/generate", "/chat", "/infer", "/v1/completions", "/v1/chat/completions", "/finish_weight_update")
"""Requests after a weight update, for which the server needs its workers."""
_FROM_ANOTHER_THREAD = (
    "{path} is answered only when the trainer {what}, and this thread does that after the answer: neither ever comes"
)


class RolloutServerNeverMet(RuntimeError):
    """Raised if the trainer would wait forever for its server, or the server for it."""


class WeightSyncGroup:
    """The group of this process and a server. With several servers nothing is checked."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset to the state before any request."""
        self._servers: set[str] = set()
        self._joined: list[int] = []
        """The ids of the threads that joined the group."""
        self._asked_to_join: list[tuple[str, int]] = []
        self._asked: list[tuple[str, int]] = []
        """Requests to receive weights since the server was last used, each with the id of the thread that sent it."""
        self._sent: list[int] = []
        """The ids of the threads that have broadcast since then."""

    def on_request(self, server: str, path: str) -> None:
        """Record a request to a server. Raises RolloutServerNeverMet if one side would wait forever."""
        self._servers.add(server)
        thread = threading.get_ident()
        if path in JOIN_PATHS:
            if self._joined and not self._asked_to_join and self._joined[-1] == thread:
                self._raise_never_met(f"the trainer joins before {path} asks the server to")
            self._asked_to_join.append((path, thread))
        elif path in RECEIVE_PATHS:
            if self._sent and not self._asked and self._sent[-1] == thread:
                self._raise_never_met(f"weights are broadcast before {path} asks the server to receive them")
            self._asked.append((path, thread))
        elif path in _POST_SYNC_PATHS:
            requested, sent, self._asked, self._sent = self._asked, self._sent, [], []
            if self._joined and not self._asked_to_join:
                self._raise_never_met(
                    f"the trainer has joined a group that the server was not asked to join ({', '.join(JOIN_PATHS)})"
                )
            if sent and not requested:
                self._raise_never_met(
                    f"weights are broadcast that no server was asked to receive ({', '.join(RECEIVE_PATHS)})"
                )
            if self._joined and len(sent) < len(requested):  # weights may be sent by other means than a process group
                self._raise_never_met(f"the server waits in {requested[-1][0]} for weights that are not broadcast")

    def on_trainer_joined(self) -> None:
        """The trainer joins. Raises RolloutServerNeverMet if it first waited for a server that answers only after
        joining."""
        self._joined.append(threading.get_ident())
        self._check_not_waiting(JOIN_PATHS, self._asked_to_join, "joins the group")

    def on_trainer_broadcast(self) -> None:
        """The trainer broadcasts. Raises RolloutServerNeverMet if it first waited for a server that answers only
        after that."""
        self._sent.append(threading.get_ident())
        self._check_not_waiting(RECEIVE_PATHS, self._asked, "broadcasts the weights")

    def _check_not_waiting(self, paths: dict[str, bool], requested: list[tuple[str, int]], request_kind: str) -> None:
        if requested and paths[requested[-1][0]] and requested[-1][1] == threading.get_ident():
            self._raise_never_met(_FROM_ANOTHER_THREAD.format(path=requested[-1][0], what=request_kind))

    def _raise_never_met(self, reason: str) -> None:
        if len(self._servers) == 1 and len(self._joined) < 2:
            raise RolloutServerNeverMet(reason)


WEIGHT_SYNC_GROUP = WeightSyncGroup()
