"""A trainer and a rollout server in one group: what either side does has to be met by the other, or both wait.

The server's side is what it was asked for over HTTP. vLLM's own server (vllm/entrypoints/serve/rlhf and
vllm/distributed/weight_transfer, 0.18 to 0.31) joins, and receives, before it answers the request; ``trl vllm-serve``
and ``swift rollout`` hand it to a worker and answer at once. So a request to the first that is sent from the thread
that has to meet it is never answered.
"""

from __future__ import annotations

import threading

JOIN_PATHS = {"/init_weight_transfer_engine": True, "/init_communicator": False}
RECEIVE_PATHS = {
    "/update_weights": True, "/update_named_param": False, "/batch_update_named_params": False,
    "/update_flattened_params": False,
}  # fmt: skip
"""By path, whether the server answers only when it is done."""
_POST_SYNC_PATHS = ("/generate", "/chat", "/infer", "/v1/completions", "/v1/chat/completions", "/finish_weight_update")
"""What is asked for once a synchronisation is over, and needs the server's workers."""
_FROM_ANOTHER_THREAD = (
    "{path} is answered only when the trainer {what}, and this thread does that after the answer: neither ever comes"
)


class RolloutServerNeverMet(RuntimeError):
    """Raised where the trainer would wait for its server for ever, or the server for it."""


class WeightSyncGroup:
    """The group of this process and a server. With several servers nothing is compared."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """No server was asked for anything."""
        self._servers: set[str] = set()
        self._joined: list[int] = []
        """The threads that joined."""
        self._asked_to_join: list[tuple[str, int]] = []
        self._asked: list[tuple[str, int]] = []
        """Requests for weights since the server was last used, each with the thread that sent it."""
        self._sent: list[int] = []
        """The threads of the broadcasts since then."""

    def request(self, server: str, path: str) -> None:
        """A server is asked for something. Raises RolloutServerNeverMet where one side waits for the other."""
        self._servers.add(server)
        thread = threading.get_ident()
        if path in JOIN_PATHS:
            if self._joined and not self._asked_to_join and self._joined[-1] == thread:
                self._raise(f"the trainer joins before {path} asks the server to")
            self._asked_to_join.append((path, thread))
        elif path in RECEIVE_PATHS:
            if self._sent and not self._asked and self._sent[-1] == thread:
                self._raise(f"weights are broadcast before {path} asks the server to receive them")
            self._asked.append((path, thread))
        elif path in _POST_SYNC_PATHS:
            asked, sent, self._asked, self._sent = self._asked, self._sent, [], []
            if self._joined and not self._asked_to_join:
                self._raise(
                    f"the trainer has joined a group that the server was not asked to join ({', '.join(JOIN_PATHS)})"
                )
            if sent and not asked:
                self._raise(f"weights are broadcast that no server was asked to receive ({', '.join(RECEIVE_PATHS)})")
            if self._joined and len(sent) < len(asked):  # weights may go by other ways than a group's
                self._raise(f"the server waits in {asked[-1][0]} for weights that are not broadcast")

    def joined(self) -> None:
        """The trainer joins. Raises RolloutServerNeverMet where it has waited for the server's answer before."""
        self._joined.append(threading.get_ident())
        self._check(JOIN_PATHS, self._asked_to_join, "joins the group")

    def sent(self) -> None:
        """The trainer broadcasts. Raises RolloutServerNeverMet where it has waited for the server's answer before."""
        self._sent.append(threading.get_ident())
        self._check(RECEIVE_PATHS, self._asked, "broadcasts the weights")

    def _check(self, paths: dict[str, bool], asked: list[tuple[str, int]], request_kind: str) -> None:
        if asked and paths[asked[-1][0]] and asked[-1][1] == threading.get_ident():
            self._raise(_FROM_ANOTHER_THREAD.format(path=asked[-1][0], what=request_kind))

    def _raise(self, reason: str) -> None:
        if len(self._servers) == 1 and len(self._joined) < 2:
            raise RolloutServerNeverMet(reason)


WEIGHT_SYNC_GROUP = WeightSyncGroup()
