"""Installs the stand-in for Ray: functions that would need its daemons are implemented by the rehearsal.

Decorators, options with their checks, exceptions, scheduling strategies and ids stay Ray's own. Replaced are what
``ray._private.worker`` exports to ``ray`` (``init``, ``get``, ``put``, ``wait``, …), ``ActorClass._remote`` and
``RemoteFunction._remote``, placement groups, and queries of the cluster's state. Based on ray 2.60.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.cuda.state import VirtualCuda
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.memory.tracking import DeviceRecord, MemoryRecord
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.ray import blocking, groups, meeting, object_transfer, own_threads, transfer_queue, workers
from gonogo.virtual.ray.actors import Actor
from gonogo.virtual.ray.cluster import Cluster, PendingPlacement
from gonogo.virtual.ray.context import RuntimeContext
from gonogo.virtual.ray.handles import handle_class
from gonogo.virtual.ray.process import ClusterDevices
from gonogo.virtual.ray.references import reference_class, wait_until_available
from gonogo.virtual.ray.resources import sum_resources
from gonogo.virtual.ray.tasks import CallRunner, required_resources, runtime_env_variables, scheduling_strategy
from gonogo.virtual.ray.wait_limit import WaitLimit
from gonogo.virtual.ray.waits import WaitingGets
from gonogo.virtual.unsupported import Unsupported, UnsupportedOperator
from gonogo.virtual.values.assumptions import Assume

ADDRESS = "127.0.0.1"
_RAY_CLUSTER_ASSUMPTION = translated(
    "Ray's cluster has the GPUs of the machine that was given, all of them free; its processes are rehearsed one at a "
    "time"
)


_MAX_IDLE = 15
"""Seconds, and number of checks, without any activity after which no process is expected to continue."""
_MAX_POLLS = 60
"""The same where some processes look again and again whether something has happened."""


class RayInstallation:
    """The installed stand-in as the session sees it: the devices of the whole cluster."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self.undo = undo
        self.cluster: Cluster | None = None

    def devices_and_processes(
        self, program_devices: dict[Any, DeviceRecord]
    ) -> tuple[dict[Any, DeviceRecord], list[str]]:
        """All devices by cluster-wide number and all processes if Ray has started, else the program's own devices."""
        if self.cluster is None or self.cluster.driver is None:
            return program_devices, []
        names = self.cluster.names
        return self.cluster.machine.all_devices(), [f"{name} x {count}" for name, count in names.items()]

    def start_engine_workers(
        self, count: int, backend: Any, unsupported_error: Unsupported
    ) -> list[workers.WorkerProcess] | None:
        """The worker processes that vLLM's engine starts in an actor, or None outside of Ray."""
        if self.cluster is None or self.cluster.driver is None:
            return None
        return workers.start_engine_workers(self.cluster, "vLLM worker", count, backend, unsupported_error)


def install(
    memory: MemoryRecord, lifecycle: Lifecycle, cuda: VirtualCuda, plan: WorkerPlan, assume: Assume
) -> RayInstallation:
    """Patch Ray when the program imports it."""
    patches = Patches()
    installed = RayInstallation(patches.undo)

    def replace_ray_api(ray: Any) -> None:
        if not hasattr(getattr(ray, "actor", None), "ActorClass"):
            patches.set(ray, "init", _raise_unsupported)  # an unknown version of Ray
            return
        machine = ClusterDevices(memory, lifecycle, cuda, plan.devices or plan.local_world_size)
        cluster = installed.cluster = Cluster(machine, 1, plan.accelerator.name, assume)
        _RayApi(patches, ray, cluster).install()

    patches.on_undo(after_import("ray", replace_ray_api))
    return installed


def _raise_unsupported(*_: Any, **__: Any) -> Any:
    raise UnsupportedOperator(
        "ray.init", translated("the names in this Ray differ from those in the release that gonogo's stand-in replaces")
    )


class _RayApi:
    """Ray's functions, implemented on the cluster of the rehearsal."""

    def __init__(self, patches: Patches, ray: Any, cluster: Cluster) -> None:
        self.patches = patches
        self.ray = ray
        self.cluster = cluster
        self.reference = reference_class(ray, cluster.turns)
        self.runner = CallRunner(cluster, ray, self.reference)
        self.handle = handle_class(ray)
        cluster.passed = (self.reference, self.handle)
        self.actors: list[Actor] = []
        self.waiting = WaitingGets()

    def install(self) -> None:
        """Replace the functions."""
        ray, patches = self.ray, self.patches
        worker = ray._private.worker
        functions = {
            name: getattr(self, name)
            for name in ("init", "shutdown", "is_initialized", "get", "put", "wait", "kill", "cancel", "get_actor",
                         "get_gpu_ids", "get_runtime_context", "nodes", "cluster_resources", "available_resources",
                         "timeline")
        }  # fmt: skip
        for name, function in functions.items():
            for module in (ray, worker):
                if hasattr(module, name):
                    patches.set(module, name, function)
        known = SimpleNamespace(address=f"{ADDRESS}:6379")
        patches.set(type(worker.global_worker), "gcs_client", known)
        patches.set(ray.runtime_context, "get_runtime_context", self.get_runtime_context)
        for name in ("nodes", "cluster_resources", "available_resources"):
            patches.set(ray._private.state, name, functions[name])
        patches.set(ray._private.state, "available_resources_per_node", self.available_resources_per_node)
        patches.set(ray._private.services, "get_node_ip_address", lambda *_, **__: ADDRESS)
        patches.set(ray.util, "get_node_ip_address", lambda: ADDRESS)
        patches.on_undo(after_import("ray.util.state", lambda module: patches.set(module, "get_actor", self.state_of)))
        create, run = self._create_actor, self._run_remote_function

        def create_actor(remote_class: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            return create(remote_class, args, kwargs, options)

        def run_remote_function(
            remote_function: Any,
            args: Any = None,
            kwargs: Any = None,
            serialized_runtime_env_info: Any = None,
            **options: Any,
        ) -> Any:
            return run(remote_function, args, kwargs, options)

        patches.set(ray.actor.ActorClass, "_remote", create_actor)
        patches.set(ray.remote_function.RemoteFunction, "_remote", run_remote_function)
        replaced = groups.replacements(ray, self.cluster, self.reference, self._connect, self._current_group)
        groups.install(patches, ray, replaced, self.cluster)

    def init(self, address: str | None = None, **options: Any) -> Any:
        """``ray.init``."""
        known = self.ray.__name__
        if self.cluster.joined:
            if options.get("ignore_reinit_error"):
                return self._connection_context()
            raise RuntimeError(
                "Maybe you called ray.init twice by accident? This error can be suppressed by passing in "
                f"'ignore_reinit_error=True' or by calling 'ray.shutdown()' prior to 'ray.init()'. ({known})"
            )
        if str(address or "").startswith("ray://"):
            raise UnsupportedOperator(
                f"ray.init({address!r})",
                translated("Ray Client connects to a cluster on another machine, which a rehearsal does not"),
            )
        if options.get("local_mode"):
            raise UnsupportedOperator(
                "ray.init(local_mode=True)",
                translated("gonogo's stand-in for Ray does not support tasks in local mode"),
            )
        self.cluster.assume(_RAY_CLUSTER_ASSUMPTION, "cluster")
        if self.cluster.driver is None:
            blocking.install(self.patches, self.cluster.turns)
            own_threads.install(self.patches, self.cluster.turns)
            object_transfer.share_memory(self.patches)
            _copy_tensordicts(self.patches)
            transfer_queue.install(self.patches)
            meeting.install(self.patches, self.cluster.turns)
        self.cluster.start(
            options.get("num_cpus"),
            options.get("num_gpus"),
            dict(options.get("resources") or {}),
            runtime_env_variables(options),
            str(options.get("namespace") or ""),
        )
        return self._connection_context()

    def _connection_context(self) -> Any:
        info = {"node_ip_address": ADDRESS, "address": f"{ADDRESS}:6379", "gcs_address": f"{ADDRESS}:6379",
                "session_dir": "/tmp/ray", "webui_url": "", "node_id": self.cluster.nodes[0].id}  # fmt: skip
        return SimpleNamespace(address_info=info, dashboard_url="", disconnect=self.shutdown)

    def _connect(self) -> None:
        """Call ``init`` implicitly at the first call that needs it, as Ray does."""
        if not self.cluster.joined:
            self.init()

    def shutdown(self, *_: Any, **__: Any) -> None:
        """``ray.shutdown``: end all actors."""
        for actor in self.actors:
            actor.kill()
        self.cluster.joined = False

    def is_initialized(self) -> bool:
        """``ray.is_initialized``."""
        return self.cluster.joined

    def get(self, object_refs: Any, *, timeout: float | None = None, **_: Any) -> Any:
        """``ray.get``. Durations here differ from a GPU's, so a timeout only counts if the result would never
        arrive."""
        self._connect()
        if isinstance(object_refs, list | tuple):
            return [self.get(one, timeout=timeout) for one in object_refs]
        if not isinstance(object_refs, self.reference):
            raise ValueError(
                f"Invalid type of object refs, {type(object_refs)}, is given. 'object_refs' must either be an "
                "ObjectRef or a list of ObjectRefs. "
            )
        answer = object_refs.answer  # type: ignore[attr-defined]
        turns = self.cluster.turns
        patience, more_patience = WaitLimit(turns, _MAX_IDLE, _MAX_IDLE), WaitLimit(turns, _MAX_POLLS, _MAX_POLLS)
        if timeout is None:
            self.waiting.enter(answer)
        try:
            while not wait_until_available(answer, turns, 1.0, is_progress=False):
                is_over, must_end = patience.is_over(), more_patience.is_over()
                if is_over:
                    answer.never = answer.never or answer.if_nobody_runs()
                if answer.never:
                    if timeout is not None:
                        raise self.ray.exceptions.GetTimeoutError(f"Get timed out: {answer.never}")
                    raise self.ray.exceptions.ActorUnschedulableError(answer.never)
                if is_over and timeout is None:
                    found = self.waiting.describe(self.actors)
                    if found.kind == "forever" or must_end:
                        turns.end(found)
        finally:
            self.waiting.leave()
        return answer.receive_copy()

    def put(self, value: Any, **_: Any) -> Any:
        """``ray.put``."""
        self._connect()
        if isinstance(value, self.reference):
            raise TypeError(
                "Calling 'put' on an ray.ObjectRef is not allowed. If you really want to do this, you can wrap the "
                "ray.ObjectRef in a list and call 'put' on it."
            )
        reference = self.reference()
        reference.answer.set(self.cluster.pack(value))
        return reference

    def wait(
        self, ray_waitables: Sequence[Any], *, num_returns: int = 1, timeout: float | None = None, **_: Any
    ) -> tuple[list[Any], list[Any]]:
        """``ray.wait``."""
        if isinstance(ray_waitables, self.reference):
            raise TypeError("wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got a single one")
        waiting = list(ray_waitables)
        if num_returns > len(waiting):
            raise ValueError("num_returns cannot be greater than the number of ray_waitables provided to ray.wait.")
        for one in waiting:
            if sum(each.answer.done for each in waiting) >= num_returns:
                break
            wait_until_available(one.answer, self.cluster.turns, timeout)
        ready = [one for one in waiting if one.answer.done][:num_returns]
        return ready, [one for one in waiting if not any(one is other for other in ready)]

    def kill(self, actor: Any, *, no_restart: bool = True) -> None:
        """``ray.kill``."""
        actor._actor.kill()

    def cancel(self, *_: Any, **__: Any) -> None:
        """``ray.cancel``: running tasks continue."""
        raise UnsupportedOperator("ray.cancel", translated("gonogo's stand-in for Ray does not have this function"))

    def timeline(self, filename: str | None = None) -> Any:
        """``ray.timeline``: always empty."""
        return [] if filename is None else None

    def get_actor(self, name: str, namespace: str | None = None) -> Any:
        """``ray.get_actor``."""
        self._connect()
        found = self.cluster.named.get((self.cluster.namespace if namespace is None else namespace, name))
        if found is None or found._actor.dead is not None:
            raise ValueError(
                f"Failed to look up actor with name '{name}'. This could because 1. You are trying to look up a named "
                "actor you didn't create. 2. The named actor died. 3. You did not use a namespace matching the "
                "namespace of the actor."
            )
        return found

    def get_gpu_ids(self) -> list[int]:
        """``ray.get_gpu_ids``."""
        current = self.cluster.machine.current
        return list(current.gpus) if current is not None else []

    def get_runtime_context(self) -> RuntimeContext:
        """``ray.get_runtime_context``."""
        self._connect()
        return RuntimeContext(self.cluster, self._actor_of)

    def _actor_of(self, process: Any) -> Actor | None:
        return next((actor for actor in self.actors if actor.process is process), None)

    def _current_group(self) -> Any:
        """``ray.util.get_current_placement_group``."""
        actor = self._actor_of(self.cluster.machine.current)
        return None if actor is None else actor.group

    def nodes(self) -> list[dict[str, Any]]:
        """``ray.nodes``."""
        return [
            {"NodeID": node.id, "Alive": True, "NodeManagerAddress": ADDRESS, "NodeManagerHostname": "localhost",
             "NodeName": ADDRESS, "Resources": dict(node.total), "Labels": {}, "alive": True}
            for node in self.cluster.nodes
        ]  # fmt: skip

    def cluster_resources(self) -> dict[str, float]:
        """``ray.cluster_resources``."""
        return sum_resources([node.total for node in self.cluster.nodes])

    def available_resources(self) -> dict[str, float]:
        """``ray.available_resources``."""
        return {
            name: count
            for name, count in sum_resources([node.free for node in self.cluster.nodes]).items()
            if count > 0
        }

    def available_resources_per_node(self) -> dict[str, dict[str, float]]:
        """``ray._private.state.available_resources_per_node``."""
        return {node.id: {name: count for name, count in node.free.items() if count > 0} for node in self.cluster.nodes}

    def state_of(self, id: str, *_: Any, **__: Any) -> Any:
        """``ray.util.state.get_actor``."""
        actor = next((one for one in self.actors if one.handle._ray_actor_id.hex() == id), None)
        return None if actor is None else SimpleNamespace(state="DEAD" if actor.dead else "ALIVE", actor_id=id)

    def _run_remote_function(self, remote_function: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        self._connect()
        return self.runner.start_task(
            remote_function._function, remote_function._function.__name__, args, kwargs, options
        )

    def _create_actor(self, remote_class: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        self._connect()
        cluster, metadata = self.cluster, remote_class.__ray_metadata__
        name, space = options.get("name"), options.get("namespace")
        key = (cluster.namespace if space is None else str(space), str(name))
        known = cluster.named.get(key) if name else None
        if known is not None and known._actor.dead is None:
            if options.get("get_if_exists"):
                return known
            raise ValueError(
                f"The name {name} (namespace={key[0]}) is already taken. Please use a different name or get the "
                f"existing actor using ray.get_actor('{name}')"
            )
        short = metadata.class_name.rpartition(".")[2]
        creation = self.runner.create_call(f"{short}.__init__", args, kwargs, {})
        actor = Actor(self.runner, metadata.modified_class, short, options, creation)
        actor.wanted = required_resources(options, cpus=0.0)
        actor.handle = self.handle(self.runner, actor)
        self.actors.append(actor)
        if name:
            cluster.named[key] = actor.handle
        cluster.place_or_queue(
            PendingPlacement(short, actor.wanted, scheduling_strategy(options), actor.start, actor.mark_unschedulable)
        )
        return actor.handle


def _copy_tensordicts(patches: Patches) -> None:
    """Patch tensordict's ``consolidate``, which copies all tensors into one storage before they are sent.

    The values of one storage are known or unknown as a whole, so token ids and masks would become unknown along with
    the scores. The copy keeps a storage per tensor, with the same total size.
    """

    def patch_consolidate(module: Any) -> None:
        original = module.TensorDictBase.consolidate

        def consolidate(self: Any, filename: Any = None, **options: Any) -> Any:
            if filename is not None or options.get("inplace") or options.get("return_early"):
                return original(self, filename, **options)
            return self.clone() if options.get("device") is None else self.to(options["device"])

        patches.set(module.TensorDictBase, "consolidate", consolidate)

    patches.on_undo(after_import("tensordict.base", patch_consolidate))
