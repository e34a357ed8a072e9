"""``ray.get_runtime_context()``: identity and placement of the calling process."""

from __future__ import annotations

from typing import Any

from gonogo.finding import translated
from gonogo.virtual.ray.cluster import JOB_ID, Cluster
from gonogo.virtual.unsupported import UnsupportedOperator


class RuntimeContext:
    """Mirrors the names in ray/runtime_context.py."""

    def __init__(self, cluster: Cluster, find_actor: Any) -> None:
        self._cluster = cluster
        self._actor_of = find_actor

    def _current_process(self) -> Any:
        return self._cluster.machine.current

    def get_job_id(self) -> str:
        """The job's id, the same for every process."""
        return JOB_ID

    def get_node_id(self) -> str:
        """The id of the process's node."""
        return str(self._cluster.nodes[self._current_process().node].id)

    def get_worker_id(self) -> str:
        """The process's id: 56 hexadecimal digits."""
        return f"{self._current_process().number:056x}"

    def get_task_id(self) -> str | None:
        """The task's id; the driver has one as well."""
        return f"{self._current_process().number:048x}"

    def get_actor_id(self) -> str | None:
        """The actor's id, or None outside of one."""
        actor = self._actor_of(self._current_process())
        return None if actor is None else actor.id.hex()

    def get_actor_name(self) -> str | None:
        """The actor's name, which may be empty."""
        actor = self._actor_of(self._current_process())
        return None if actor is None else str(actor.options.get("name") or "")

    def get_placement_group_id(self) -> str | None:
        """The id of the placement group, or None outside of one."""
        actor = self._actor_of(self._current_process())
        return None if actor is None or actor.group is None else str(actor.group.id.hex())

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The assigned GPUs."""
        return {"GPU": [str(gpu) for gpu in self._current_process().gpus]}

    get_resource_ids = get_accelerator_ids

    def get_assigned_resources(self) -> dict[str, float]:
        """The assigned resources."""
        actor = self._actor_of(self._current_process())
        return {} if actor is None else dict(actor.wanted)

    def get_runtime_env_string(self) -> str:
        """Always ``"{}"``: the job's own runtime_env is not reported."""
        return "{}"

    job_id = property(get_job_id)
    node_id = property(get_node_id)
    namespace = property(lambda self: self._cluster.namespace)
    gcs_address = property(lambda self: "127.0.0.1:6379")
    runtime_env = property(lambda self: {})
    was_current_actor_reconstructed = property(lambda self: False)

    @property
    def current_actor(self) -> Any:
        """The handle of the calling actor."""
        actor = self._actor_of(self._current_process())
        if actor is None:
            raise RuntimeError("This method is only available in an actor.")
        return actor.handle

    def get(self) -> dict[str, Any]:
        """All fields as a dict."""
        return {"job_id": self.get_job_id(), "node_id": self.get_node_id(), "namespace": self._cluster.namespace}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedOperator(
            f"ray.get_runtime_context().{name}", translated("gonogo's stand-in for Ray does not have this function")
        )
