"""mpi4py in the ranks of mpirun and srun: its calls with objects, as guided-diffusion and DeepSpeed make them."""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gonogo.virtual.collectives import mpi
from gonogo.virtual.unsupported import UnsupportedOperator

VARIABLES = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)


class Ranks:
    """Installs the stand-in for a rank, and collects what it assumes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.assumed: list[str] = []
        self.undo = lambda: None
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)

    def of(self, absent: tuple[str, ...] = (), **variables: str) -> Any:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)
        self.undo = mpi.install(lambda what, kind="": self.assumed.append(what.en), UnsupportedOperator, absent)
        return importlib.import_module("mpi4py.MPI")

    def of_mpirun(self, rank: int, size: int = 16, per_node: int = 8) -> Any:
        return self.of(
            OMPI_COMM_WORLD_RANK=str(rank),
            OMPI_COMM_WORLD_SIZE=str(size),
            OMPI_COMM_WORLD_LOCAL_RANK=str(rank % per_node),
            OMPI_COMM_WORLD_LOCAL_SIZE=str(per_node),
        )


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    found = Ranks(monkeypatch)
    yield found
    found.undo()
    assert "mpi4py" not in sys.modules


def test_rank_and_size(ranks: Ranks) -> None:
    comm = ranks.of_mpirun(9).COMM_WORLD
    assert (comm.Get_rank(), comm.rank, comm.Get_size(), comm.size) == (9, 9, 16, 16)
    comm.Barrier()
    assert ranks.assumed == []
    node = comm.Split_type(sys.modules["mpi4py.MPI"].COMM_TYPE_SHARED)
    assert (node.rank, node.size) == (1, 8)


def test_the_tasks_of_srun(ranks: Ranks) -> None:
    found = ranks.of(SLURM_PROCID="5", SLURM_LOCALID="1", SLURM_STEP_NUM_TASKS="8", SLURM_STEP_TASKS_PER_NODE="4(x2)")
    assert (found.COMM_WORLD.rank, found.COMM_WORLD.size) == (5, 8)
    assert found.COMM_WORLD.Split_type(0).size == 4
    assert (found.COMM_SELF.rank, found.COMM_SELF.size) == (0, 1)


def test_what_the_root_sends(ranks: Ranks) -> None:
    comm = ranks.of_mpirun(0).COMM_WORLD
    assert comm.bcast("localhost", root=0) == "localhost"
    assert comm.scatter(list(range(16))) == 0
    assert comm.gather({"a": 1})[15] == {"a": 1}
    assert "every rank gives MPI the objects that this rank gives" in ranks.assumed


def test_what_another_rank_sends_is_not_known(ranks: Ranks) -> None:
    comm = ranks.of_mpirun(3).COMM_WORLD
    assert comm.bcast("mine") == "mine"  # each rank's own host name, or free port
    assert comm.gather(1) is None
    for call in (lambda: comm.bcast(None), lambda: comm.scatter(None), lambda: comm.Bcast(np.zeros(2))):
        with pytest.raises(UnsupportedOperator, match="another rank"):
            call()


def test_reductions(ranks: Ranks) -> None:
    found = ranks.of_mpirun(1)
    comm = found.COMM_WORLD
    assert comm.allreduce(2) == 32
    assert comm.allreduce(2, op=found.MAX) == 2
    assert comm.reduce(1.5, found.SUM, root=1) == 24.0
    assert comm.reduce(1.5) is None
    total = np.zeros(2)
    comm.Allreduce(np.ones(2), total, op=found.SUM)
    assert total.tolist() == [16.0, 16.0]
    comm.Allreduce(found.IN_PLACE, total)
    assert total.tolist() == [256.0, 256.0]


def test_deepspeed_counts_the_ranks_of_a_node_by_their_names(ranks: Ranks) -> None:
    """deepspeed/comm/comm.py, ``mpi_discovery``."""
    found = ranks.of_mpirun(13)
    name = found.Get_processor_name()
    names = found.COMM_WORLD.allgather(name)
    assert name == socket.gethostname()
    assert sum(other == name for other in names[:13]) == 5
    assert len(set(names)) == 2


def test_other_calls_are_not_rehearsed(ranks: Ranks) -> None:
    found = ranks.of_mpirun(0)
    with pytest.raises(UnsupportedOperator, match=r"MPI\.Comm\.isend"):
        found.COMM_WORLD.isend(1, dest=1)
    with pytest.raises(UnsupportedOperator, match=r"MPI\.Win"):
        _ = found.Win
    with pytest.raises(SystemExit):
        found.COMM_WORLD.Abort(3)


def test_it_is_not_there_without_ranks_or_where_the_run_lacks_it(ranks: Ranks) -> None:
    with pytest.raises(ImportError):
        ranks.of()
    with pytest.raises(ImportError):
        ranks.of(absent=("mpi4py",), OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="8")
