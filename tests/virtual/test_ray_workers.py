"""Ray's workers as ranks: a plain program with a placement group and actors that train, and what Ray refuses."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtual.forked import output_of, rehearse_all

from gonogo.virtual.ray.context import RuntimeContext
from gonogo.virtual.ray.groups import replacements
from gonogo.virtual.ray.install import _RayApi
from gonogo.virtual.ray.workers import _bundles_with_gpu, _check_indices

START = """
    import asyncio, os
    import ray, torch
    import torch.distributed as dist
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote
    class Trainer:
        def __init__(self, rank, world):
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
            self.rank = rank
        def setup(self):
            assert not dist.is_initialized()
            dist.init_process_group("nccl")
            assert (dist.get_rank(), torch.cuda.device_count()) == (self.rank, 1)
            told = [{"by": self.rank}]
            dist.broadcast_object_list(told, src=1)
            assert told == [{"by": 1}]
            model = torch.nn.Linear(1 << (20 - self.rank), 4).cuda()
            self.model = torch.nn.parallel.DistributedDataParallel(model)
            self.optimizer = torch.optim.AdamW(self.model.parameters())
            return os.environ["CUDA_VISIBLE_DEVICES"], ray.get_gpu_ids(), os.environ["OF_JOB"], os.environ.get("OWN")
        def train(self, batch):
            loss = self.model(batch.cuda()).square().mean()
            loss.backward(); self.optimizer.step(); self.optimizer.zero_grad()
            return {"loss": loss.detach().cpu(), "ids": torch.arange(3), "rank": self.rank}
        def fails(self):
            raise ValueError("of this worker")

    class Member:
        def __init__(self, rank, world):
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
            self.rank = rank

    @ray.remote
    class Server:
        def __init__(self):
            self.open = asyncio.Event()
        async def wait(self):
            await self.open.wait()
            return "opened"
        async def release(self):
            self.open.set()

    def actors(world, cpus=1):
        group = placement_group([{"GPU": 1, "CPU": cpus}] * world, strategy="STRICT_PACK")
        ray.get(group.ready())
        return [
            Trainer.options(
                num_gpus=1, runtime_env={"env_vars": {"OWN": str(rank)}},
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
            ).remote(rank, world)
            for rank in range(world)
        ]
"""
PROGRAMS = {
    "trains": """
        ray.init(runtime_env={"env_vars": {"OF_JOB": "yes"}})
        assert ray.cluster_resources()["GPU"] == 8
        workers = actors(2)
        assert ray.get([one.setup.remote() for one in workers]) == [
            ("0", [0], "yes", "0"), ("1", [1], "yes", "1")], ray.get(workers[0].setup.remote())
        assert "OWN" not in os.environ and not dist.is_initialized()
        for step in range(2):
            found = ray.get([w.train.remote(torch.randn(2, 1 << (20 - r))) for r, w in enumerate(workers)])
            assert [one["rank"] for one in found] == [0, 1]
            assert found[0]["loss"].device.type == "cpu" and found[0]["ids"].tolist() == [0, 1, 2]
        assert ray.available_resources()["GPU"] == 6
        """,
    "waits_for_others": """
        ray.init()
        server = Server.options(name="server").remote()
        waits = server.wait.remote()
        assert ray.wait([waits], timeout=0.1) == ([], [waits])
        ray.get(ray.get_actor("server").release.remote())
        assert ray.get(waits) == "opened"
        @ray.remote
        def add(a, b):
            return a + b
        assert ray.get(add.remote(add.remote(1, 2), ray.put(3))) == 6
        with __import__("pytest").raises(ValueError, match="of this worker"):
            ray.get(Trainer.remote(0, 1).fails.remote())
        """,
    "fails_at_its_start": """
        @ray.remote
        class Broken:
            def __init__(self):
                raise KeyError("of its start")
            async def asked(self):
                return 1
        ray.init()
        ray.get(Broken.remote().asked.remote())
        """,
    "what_a_class_refers_to": """
        def made(settings):
            @ray.remote
            class Worker:
                def take(self):
                    return settings.pop("size")
            return Worker
        kind = made({"size": 3})
        ray.init()
        assert ray.get([kind.remote().take.remote() for _ in range(2)]) == [3, 3]
        """,
    "in_threads": """
        from concurrent.futures import ThreadPoolExecutor
        @ray.remote
        class Reader:
            async def read(self, name):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(None, str.upper, name)
        ray.init()
        readers = [Reader.remote() for _ in range(6)]
        asked = [reader.read.remote(f"row {n}") for n in range(8) for reader in readers]
        assert ray.get(asked)[-1] == "ROW 7"
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(abs, range(-3, 0))) == [3, 2, 1]
        """,
    "more_than_there_is": """
        ray.init()
        actors(9)
        """,
    "twice": """
        ray.init()
        ray.init()
        """,
    "worker_fails": """
        ray.init()
        ray.get(Trainer.remote(0, 1).fails.remote())
        """,
    "not_sent": """
        import threading
        ray.init()
        ray.get(Trainer.remote(0, threading.Lock()).fails.remote())
        """,
    "a_rank_never_comes": """
        from gonogo.virtual.ray import meeting
        meeting._SECONDS = 0.5
        @ray.remote
        class Alone(Member):
            def enter(self):
                dist.init_process_group("nccl")
                if self.rank == 0:
                    dist.barrier()
        ray.init()
        ray.get([one.enter.remote() for one in [Alone.options(num_gpus=1).remote(rank, 2) for rank in range(2)]])
        """,
    "a_rank_comes_late": """
        import time
        from concurrent.futures import ThreadPoolExecutor
        from gonogo.virtual.ray import meeting
        meeting._SECONDS = 0.5
        @ray.remote
        class Late(Member):
            def enter(self):
                dist.init_process_group("nccl")
                end = time.monotonic() + 2.0 * self.rank
                while time.monotonic() < end:
                    sum(range(1000))
                if self.rank:
                    def works():
                        end = time.monotonic() + 2.0
                        while time.monotonic() < end:
                            sum(range(1000))
                    with ThreadPoolExecutor(1) as pool:
                        pool.submit(works).result()
                count = torch.tensor([7 if self.rank else 0]).cuda()
                dist.broadcast(count, 1)
                dist.barrier()
                return count.item()
            async def in_a_thread(self):
                await asyncio.to_thread(dist.barrier)
                return dist.get_rank()
        ray.init()
        late = [Late.options(num_gpus=1).remote(rank, 2) for rank in range(2)]
        assert ray.get([one.enter.remote() for one in late]) == [7, 7]
        assert ray.get([one.in_a_thread.remote() for one in late]) == [0, 1]
        """,
    "counts_of_all": """
        @ray.remote
        class Slice(Member):
            def positions(self):
                dist.init_process_group("nccl")
                own = torch.arange(4).cuda() + 4 * self.rank
                parts, whole = [torch.empty_like(own) for _ in range(2)], own.new_empty(8)
                dist.all_gather(parts, own)
                dist.all_gather_into_tensor(whole, own)
                most = torch.tensor(3 + self.rank).cuda()
                dist.all_reduce(most, dist.ReduceOp.MAX)
                for _ in range(self.rank):
                    dist.all_reduce(torch.randn(2).cuda(), async_op=True)  # nobody waits for values of weights
                return torch.cat(parts).tolist(), whole.tolist(), most.item()
        ray.init()
        slices = [Slice.options(num_gpus=1).remote(rank, 2) for rank in range(2)]
        assert ray.get([one.positions.remote() for one in slices]) == [(list(range(8)), list(range(8)), 4)] * 2
        """,
    "a_loop_of_its_own": """
        import threading
        NUMBER = None
        async def number():
            seen = [NUMBER]
            for _ in range(20):
                await asyncio.sleep(0.001)
                seen.append(NUMBER)
            return seen
        @ray.remote
        class Client:
            def __init__(self, own):
                global NUMBER
                NUMBER = own
                self.loop = asyncio.new_event_loop()
                threading.Thread(target=self.loop.run_forever, daemon=True).start()
            def read(self):
                return asyncio.run_coroutine_threadsafe(number(), self.loop).result()
        ray.init()
        clients = [Client.remote(number) for number in range(3)]
        for _ in range(3):
            assert ray.get([one.read.remote() for one in clients]) == [[0] * 21, [1] * 21, [2] * 21]
        assert NUMBER is None
        """,
    "of_another_machine": """
        ray.init("ray://head:10001")
        """,
}


@pytest.mark.slow
def test_workers_of_ray_are_ranks(tmp_path: Path) -> None:
    programs = {name: START.replace("\n    ", "\n") + inspect.cleandoc(text) for name, text in PROGRAMS.items()}
    records = rehearse_all(tmp_path, programs, stack="import torch\n")
    trained = records["trains"]
    assert trained.outcome == "completed", output_of(tmp_path, "trains")
    assert trained.workers == ["Trainer x 2"]
    weights = {device.device: device.by_category["optimizer"] >> 20 for device in trained.devices}
    assert weights == {"cuda:0": 32, "cuda:1": 16}
    assert trained.steps == 2
    for name in ("waits_for_others", "what_a_class_refers_to", "in_threads", "a_rank_comes_late", "a_loop_of_its_own",
                 "counts_of_all"):  # fmt: skip
        assert records[name].outcome == "completed", output_of(tmp_path, name)
    refused = {
        "more_than_there_is": "is infeasible: 9 bundle(s)",
        "twice": "Maybe you called ray.init twice by accident?",
        "worker_fails": "of this worker",
        "fails_at_its_start": "of its start",
        "not_sent": "cannot pickle '_thread.lock' object",
    }
    for name, words in refused.items():
        failure = records[name].failure
        assert failure is not None, output_of(tmp_path, name)
        assert words in failure.message, output_of(tmp_path, name)
    worker = records["worker_fails"].failure
    assert worker is not None
    assert worker.type == "ValueError"
    assert [missing.what for missing in records["of_another_machine"].unsupported] == ["ray.init('ray://head:10001')"]
    waits = records["a_rank_never_comes"]
    assert [missing.what for missing in waits.unsupported] == ["barrier"], output_of(tmp_path, "a_rank_never_comes")


def test_engines_that_do_not_fit_their_placement_group_are_refused_as_vllm_does() -> None:
    def group(*gpus: float) -> Any:
        return SimpleNamespace(bundle_specs=[{"CPU": 1.0, **({"GPU": one} if one else {})} for one in gpus])

    assert _bundles_with_gpu(group(0, 1, 0, 1), 2) == [1, 3]
    with pytest.raises(ValueError, match=r"Required number of devices: 3\. Total number of devices: 2\."):
        _bundles_with_gpu(group(1, 1), 3)
    with pytest.raises(ValueError, match="cannot have more than 1 GPU"):
        _bundles_with_gpu(group(2, 2), 2)
    _check_indices([2, 3], 2)
    with pytest.raises(AssertionError, match="same size as the world size"):
        _check_indices([1], 2)
    with pytest.raises(AssertionError, match="duplicate values"):
        _check_indices([1, 1], 2)


def test_stand_in_takes_what_ray_takes() -> None:
    import ray

    def names(function: object) -> set[str]:
        found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        return {one.name for one in found if one.kind is not one.VAR_KEYWORD and not one.name.startswith("_")}

    for name in ("get", "put", "wait", "kill", "get_actor", "timeline", "nodes", "cluster_resources"):
        asked, given = inspect.signature(getattr(_RayApi, name)), names(getattr(ray, name))
        free = any(one.kind is one.VAR_KEYWORD for one in asked.parameters.values())
        assert free or given <= set(asked.parameters), name
        assert {one for one in names(getattr(_RayApi, name)) if one != "self"} <= given, name
    module = inspect.getmodule(ray.util.placement_group)
    for name, function in replacements(ray, None, object, None, lambda: None).items():  # type: ignore[arg-type]
        assert names(function) <= names(getattr(module, name)) | {"handle", "group_id"}, name
    context = {name for name in dir(ray.runtime_context.RuntimeContext) if not name.startswith("_")}
    assert {name for name in dir(RuntimeContext) if not name.startswith("_")} <= context
    for owner, name in ((ray.actor.ActorClass, "_remote"), (ray.remote_function.RemoteFunction, "_remote")):
        assert {"args", "kwargs"} <= set(inspect.signature(getattr(owner, name)).parameters)
