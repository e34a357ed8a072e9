"""Stand-in for ``mpi4py.MPI`` where ``mpirun`` or ``srun`` starts the program: no MPI library connects its ranks here.

Names, signatures and results are those of mpi4py 4.1 (src/mpi4py/MPI.src/Comm.pyx) for its calls with Python objects,
and for reductions of arrays. What a root sends is passed on where it is rehearsed too. Otherwise, as for torch's object
collectives, other ranks are assumed to send what this one sends; ``bcast(None)`` away from the root can't be rehearsed.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Collection
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from gonogo.finding import translated
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.unsupported import Unsupported
from gonogo.virtual.values.assumptions import Assume

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_INSTALLED_ASSUMPTION = translated("mpi4py is installed on the machine, for the MPI that starts the ranks")
_SAME_OBJECTS_ASSUMPTION = translated("every rank gives MPI the objects that this rank gives")
_OTHER_RANK_REASON = translated(
    "its result comes from another rank through MPI and is unknown here: also rehearse rank 0, which usually sends it"
)
_NO_STAND_IN_REASON = translated("of mpi4py, object collectives and reductions are rehearsed; this is another call")


class _Operation:
    """A reduction, which is also a function of two objects."""

    def __init__(self, name: str, combine: Callable[[Any, Any], Any]) -> None:
        self.name = f"MPI_{name}"
        self._combine = combine

    def __call__(self, one: Any, other: Any) -> Any:
        return self._combine(one, other)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": lambda one, other: one + other,
    "PROD": lambda one, other: one * other,
    "MAX": max,
    "MIN": min,
    "LAND": lambda one, other: bool(one) & bool(other),
    "LOR": lambda one, other: bool(one) | bool(other),
    "BAND": lambda one, other: one & other,
    "BOR": lambda one, other: one | other,
}


class _Communicator:
    """``Intracomm`` of all ranks, of those on this node, or of this rank alone."""

    def __init__(
        self,
        rank: int,
        size: int,
        assume: Assume,
        unsupported: Unsupported,
        local: tuple[int, int],
        peers: Peers | None = None,
    ) -> None:
        self.rank, self.size = rank, size
        self._assume, self._unsupported, self._local, self._peers = assume, unsupported, local, peers

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def barrier(self) -> None:
        pass

    Barrier = Free = barrier

    def bcast(self, obj: Any, root: int = 0) -> Any:
        sent = self._sent_by(root, obj)
        if sent is not None:
            return pickle.loads(sent)
        if self.rank != root and self.size > 1:
            if obj is None:
                raise self._unsupported("MPI.Comm.bcast", _OTHER_RANK_REASON)
            self._assume_same()
        return _copied(obj)

    def allgather(self, sendobj: Any) -> list[Any]:
        if self.size > 1:
            self._assume_same()
        if sendobj == _processor_name():  # whose ranks are counted, to learn a rank's number on its node
            node, per_node = self.rank - self._local[0], self._local[1]
            return [
                sendobj if node <= rank < node + per_node else f"{sendobj}-{rank // per_node}"
                for rank in range(self.size)
            ]
        return [_copied(sendobj) for _ in range(self.size)]

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        return self.allgather(sendobj) if self.rank == root else None

    def scatter(self, sendobj: Any, root: int = 0) -> Any:
        if self.rank != root:
            raise self._unsupported("MPI.Comm.scatter", _OTHER_RANK_REASON)
        return _copied(sendobj[self.rank])

    def allreduce(self, sendobj: Any, op: Any = None) -> Any:
        if self.size > 1:
            self._assume_same()
        combine = op if op is not None else _OPERATIONS["SUM"]
        return functools.reduce(combine, (_copied(sendobj) for _ in range(self.size)))

    def reduce(self, sendobj: Any, op: Any = None, root: int = 0) -> Any:
        return self.allreduce(sendobj, op) if self.rank == root else None

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        recvbuf[...] = self.allreduce(recvbuf if isinstance(sendbuf, int) else sendbuf, op)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        if self.rank != root:
            raise self._unsupported("MPI.Comm.Bcast", _OTHER_RANK_REASON)

    def Split_type(self, split_type: Any, key: int = 0, info: Any = None) -> _Communicator:
        return _Communicator(*self._local, self._assume, self._unsupported, self._local)

    def Dup(self, info: Any = None) -> _Communicator:
        return _Communicator(self.rank, self.size, self._assume, self._unsupported, self._local, self._peers)

    Clone = Dup

    def Abort(self, errorcode: int = 0) -> NoReturn:
        sys.exit(errorcode or 1)

    def _sent_by(self, root: int, obj: Any) -> bytes | None:
        """What the root sends, pickled; None if it isn't rehearsed with this rank."""
        members = tuple(range(self.size))
        if self._peers is None or root not in self._peers.ranks or not self._peers.has_rehearsed_peer(members):
            return None
        payload = pickle.dumps(obj) if self.rank == root else None
        sent = self._peers.report_collective(
            "MPI_COMM_WORLD", members, "bcast", root=root, payload=payload, is_root_payload=True
        )
        return sent[0] if sent is not None else None

    def _assume_same(self) -> None:
        self._assume(_SAME_OBJECTS_ASSUMPTION, "peer_objects")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._unsupported(f"MPI.Comm.{name}", _NO_STAND_IN_REASON)


def install(
    assume: Assume, unsupported: Unsupported, absent: Collection[str] = (), peers: Peers | None = None
) -> Callable[[], None]:
    """Make ``mpi4py`` importable in a rank of ``mpirun`` or ``srun``; returns the undo.

    ``absent`` are packages that the run certainly lacks.
    """
    patches = Patches()
    rank, size, local_rank = _number(_RANKS), _number(_SIZES), _number(_LOCAL_RANKS)
    if rank is None or size is None or size < 2 or "mpi4py" in absent:
        return patches.undo
    per_node = _number(("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")) or _tasks_of_node() or size
    if find_spec("mpi4py") is None:
        assume_first = functools.cache(lambda: assume(_INSTALLED_ASSUMPTION))
    else:
        assume_first = functools.cache(lambda: None)

    def told(assumption: Any, kind: Any = "") -> object:
        assume_first()
        return assume(assumption, kind)

    local = (local_rank if local_rank is not None else rank % per_node, per_node)
    package, module = ModuleType("mpi4py"), ModuleType("mpi4py.MPI")
    for one in (package, module):
        one.__spec__ = importlib.machinery.ModuleSpec(one.__name__, None)
    package.__path__ = []
    package.__version__ = "4.1.0"  # type: ignore[attr-defined]
    package.MPI, package.rc = module, ModuleType("rc")  # type: ignore[attr-defined]
    names: dict[str, Any] = {
        "COMM_WORLD": _Communicator(rank, size, told, unsupported, local, peers),
        "COMM_SELF": _Communicator(0, 1, told, unsupported, (0, 1)),
        "Comm": _Communicator,
        "Intracomm": _Communicator,
        "COMM_TYPE_SHARED": 0,
        "IN_PLACE": -1,
        "INFO_NULL": None,
        "Get_processor_name": _processor_name,
        "Is_initialized": lambda: True,
        "Is_finalized": lambda: False,
        "Init": lambda: None,
        "Finalize": lambda: None,
        "Wtime": time.time,
        **{name: _Operation(name, combine) for name, combine in _OPERATIONS.items()},
    }
    module.__dict__.update(names)

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unsupported(f"MPI.{name}", _NO_STAND_IN_REASON)

    module.__getattr__ = missing  # type: ignore[method-assign]
    patches.set_item(sys.modules, "mpi4py", package)
    patches.set_item(sys.modules, "mpi4py.MPI", module)
    return patches.undo


def _tasks_of_node() -> int | None:
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "").partition("(")[0]
    return int(tasks) if tasks.isdecimal() else None


def _number(names: tuple[str, ...]) -> int | None:
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)


def _processor_name() -> str:
    return socket.gethostname()


def _copied(obj: Any) -> Any:
    """As another rank gets it. Raises what pickling raises."""
    return pickle.loads(pickle.dumps(obj))
