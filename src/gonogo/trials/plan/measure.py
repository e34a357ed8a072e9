"""Short rehearsals, made by a separate process and cached for later plans."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.untrusted_files import decode_untrusted, read_untrusted, write_shared
from gonogo.finding import UserError, translated
from gonogo.rehearse.launch.python_start import python_module_command
from gonogo.rehearse.launch.worker_environment import reproducible_environment
from gonogo.trials.plan.cache import cache_answer, measurement_key, read_cached_answer
from gonogo.trials.plan.choice import UNCERTAINTY_BY_SOURCE, usable_gpu_memory
from gonogo.trials.plan.launch_files.arguments import (
    learning_rate,
    task_arguments,
    to_command_line_options,
    training_arguments,
)
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.sizing.batches import measured_generations
from gonogo.trials.plan.strategy import (
    Family,
    Strategy,
    deepspeed_config,
    distributed_config,
    fsdp_config,
    launch_environment,
)
from gonogo.trials.plan.task.script import SCRIPT, task_script
from gonogo.trials.plan.task.settings import TaskSettings
from gonogo.virtual.measuring.depth import with_depth
from gonogo.virtual.measuring.jobs import EngineFacts, JobEnded, Measured, MeasurementJob, ModelFacts
from gonogo.virtual.measuring.server import ServerSettings

_MODEL_FILES = ("preprocessor_config.json", "processor_config.json", "tokenizer_config.json", "tokenizer.json",
             "video_preprocessor_config.json", "chat_template.json", "chat_template.jinja")  # fmt: skip
Answer = TypeVar("Answer", ModelFacts, Measured)


class Measurement(msgspec.Struct, frozen=True):
    """One measurement: a strategy, at a depth (0: the complete model), with accumulation reduced to what matters."""

    strategy: Strategy
    depth: int
    seq_len: int
    world_size: int
    steps: int = 2
    real: bool = False
    """Use the accelerator's real capacity, less the uncertainty of the figures; else unlimited memory."""


class NotMeasured(Exception):
    """A rehearsal that produced no figures, and why."""


class Meter:
    """Measures strategies. A context manager: the measuring process starts on first use and ends with the block."""

    def __init__(self, request: PlanRequest, folder: Path, on_done: Callable[[int, int], None]) -> None:
        self._request = request
        # A model with its own code brings untrusted code: it runs confined, as rehearsed programs do.
        brings_code = any(request.model.glob("*.py"))
        self._confinement = Confinement(folder, unconfined=not brings_code)
        self._stack = contextlib.ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="meter-", dir=self._confinement.shared))
        self._places: set[Path] = set()
        self._on_done = on_done
        self._process: subprocess.Popen[bytes] | None = None
        self.config = json.loads((request.model / "config.json").read_bytes())
        self.rehearsed = 0
        """Rehearsals that were made, and not found in the cache."""
        self.reused = 0
        self._class = ""
        self._engine: tuple[EngineFacts, ...] = ()
        self._vocabulary = 0

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._stack.close()

    def facts(self) -> ModelFacts:
        """Describe the model: parameters, layers, sizes. Raises NotMeasured, or UserError if samples are too long."""
        job = self._make_job("facts", Measurement(Strategy(_ANY_FAMILY, False, 1, 1), 0, 16, 1), describe_only=True)
        found = self._answers_or_raise([job], ModelFacts)[0]
        request = self._request
        if request.seq_len > found.positions > 0 and not found.computes_positions:
            raise UserError(
                translated("{name} has {positions} positions, so it can't take {length} tokens; use --seq-len").format(
                    name=request.name, positions=found.positions, length=request.seq_len
                )
            )
        self._class, self._engine, self._vocabulary = found.stored_class, found.engine, found.vocabulary
        return found

    def measure(self, measurements: Sequence[Measurement]) -> list[Measured | NotMeasured]:
        """Rehearse the measurements, in parallel on all cores; returns an answer for each, in the same order."""
        jobs = [self._make_job(_measurement_name(cell), cell) for cell in measurements]
        return self._measure_jobs(jobs, Measured)

    def _answers_or_raise(self, jobs: list[MeasurementJob], kind: type[Answer]) -> list[Answer]:
        found = []
        for answer in self._measure_jobs(jobs, kind):
            if isinstance(answer, NotMeasured):
                raise answer
            found.append(answer)
        return found

    def _measure_jobs(self, jobs: list[MeasurementJob], kind: type[Answer]) -> list[Answer | NotMeasured]:
        keys = {job.name: measurement_key(job, self._request.machine.accelerator, self._folder) for job in jobs}
        answers: dict[str, Answer | NotMeasured] = {}
        for job in jobs:
            found = read_cached_answer(keys[job.name], kind)
            if found is not None:
                answers[job.name] = found
                self.reused += 1
        missing = {job.name: job for job in jobs if job.name not in answers}
        for number, (job, why) in enumerate(self._run(list(missing.values())), 1):
            answers[job.name] = self._read_answer(job, why, keys[job.name], kind)
            self.rehearsed += 1
            self._on_done(number, len(missing))
        return [answers[job.name] for job in jobs]

    def _read_answer(
        self, job: MeasurementJob, error_message: str, key: str, kind: type[Answer]
    ) -> Answer | NotMeasured:
        if error_message.startswith("the process"):
            return NotMeasured(error_message)
        if error_message:
            # A message about the copied config refers to the user's model.
            last = _last_line(Path(f"{job.answer}.log")).replace(str(Path(job.answer).parent), str(self._request.model))
            return NotMeasured(
                last if error_message.startswith("status") and last else ": ".join(filter(None, (error_message, last)))
            )
        data = read_untrusted(job.answer)
        if data is None:
            return NotMeasured("the answer is gone")
        try:
            answer = decode_untrusted(data, kind)
        except ValueError as error:
            return NotMeasured(f"the answer can't be read: {error}")
        with contextlib.suppress(OSError):
            cache_answer(key, data)
        return answer

    def _run(self, jobs: list[MeasurementJob]) -> Iterator[tuple[MeasurementJob, str]]:
        """Yield each job as it ends, with the reason why it has no answer, or ``""``."""
        if not jobs:
            return
        process = self._measuring_process()
        assert process.stdin is not None
        assert process.stdout is not None
        by_name = {job.name: job for job in jobs}
        with contextlib.suppress(BrokenPipeError):
            for job in jobs:
                process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        while by_name:
            line = process.stdout.readline()
            if not line:
                last = _last_line(self._log)
                why = f"the process that rehearses ended with status {process.wait()}: {last}"
                for job in by_name.values():
                    yield job, why
                return
            with contextlib.suppress(ValueError):  # the model's own code can write to it
                ended = decode_untrusted(line, JobEnded)
                if ended.name in by_name:
                    yield by_name.pop(ended.name), ended.why

    def _measuring_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            request = self._request
            count = request.machine.count
            environment = reproducible_environment(os.environ, self._folder / "caches") | {
                "RANK": "0",
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(request.world_size),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
                "CUDA_VISIBLE_DEVICES": ",".join(str(number) for number in range(count)),
            }
            world = self._stack.enter_context(self._confinement.world())
            log = open(self._log, "wb")  # noqa: SIM115  the process's, as long as it lives
            self._process = subprocess.Popen(
                world.command(
                    python_module_command(sys.executable, "gonogo.virtual.measuring.server", dies_with_parent=True)
                ),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=world.environment(environment),
                cwd=self._folder,
            )  # fmt: skip
            log.close()
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            start = ServerSettings(
                request.machine.accelerator.name, str(self._folder), max(1, cores), _modules_to_preload(request.task)
            )
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(start) + b"\n")
        return self._process

    def _make_job(self, name: str, cell: Measurement, *, describe_only: bool = False) -> MeasurementJob:
        request, strategy = self._request, cell.strategy
        place = self._create_folder_once(self._folder / name)
        config = with_depth(self.config, cell.depth) if cell.depth else self.config
        write_shared(place / "config.json", json.dumps(config).encode())
        for file in (*_MODEL_FILES, *(path.name for path in request.model.glob("*.py"))):
            if (request.model / file).exists() and not (place / file).exists():
                (place / file).symlink_to((request.model / file).resolve())
        of_task = request.task is not None and not describe_only
        if strategy.family.fsdp:
            settings = training_arguments(strategy, request)
            if "fsdp_config" in settings:
                settings["fsdp_config"] = fsdp_config(strategy)
            write_shared(place / "arguments.json", json.dumps(settings).encode())
        else:
            written = deepspeed_config(strategy, world_size=cell.world_size, dtype=request.dtype)
            if of_task:
                written["optimizer"]["params"]["lr"] = learning_rate(request)
            write_shared(place / "deepspeed.json", json.dumps(written).encode())
        if of_task:
            arguments = self._task_program_arguments(place, cell)
        else:
            arguments = self._training_program_arguments(place, cell, describe_only)
        return MeasurementJob(
            name=name,
            arguments=tuple(arguments),
            world_size=cell.world_size,
            local_world_size=min(request.machine.count, cell.world_size),
            answer=str(place / "answer.json"),
            timeout=request.timeout,
            steps=cell.steps,
            capacity=int(usable_gpu_memory(request) / (1 + UNCERTAINTY_BY_SOURCE["rehearsed"])) if cell.real else None,
            describe=describe_only,
            program=_OF_TASKS if of_task else _PLAIN,
        )

    @property
    def _log(self) -> Path:
        return self._confinement.scratch / "server.log"

    def _create_folder_once(self, place: Path) -> Path:
        """Create a folder, once; fails if the model's code has put one there."""
        if place not in self._places:
            place.mkdir()
            self._places.add(place)
        return place

    def _training_program_arguments(self, place: Path, cell: Measurement, describe_only: bool) -> list[str]:
        """The arguments of the program that trains repeatedly on one batch, or that describes the model."""
        request, strategy, task = self._request, cell.strategy, self._request.task
        fsdp = strategy.family.fsdp
        settings = ("--arguments", "arguments.json") if fsdp else ("--deepspeed", "deepspeed.json")
        variables = launch_environment(strategy, cell.world_size)
        arguments = [
            "--environment", json.dumps(variables),
            "--distributed", json.dumps(distributed_config(strategy, cell.world_size)),
            "--model", str(place), settings[0], str(place / settings[1]),
            "--seq-len", str(cell.seq_len), "--micro-batch", str(strategy.micro_batch), "--steps", str(cell.steps),
            "--tune", request.tune, "--lora-rank", str(request.lora_rank), "--attention", request.attention,
            *(["--gradient-checkpointing"] if strategy.checkpointing and not fsdp else []),
        ]  # fmt: skip
        if describe_only and task is not None:
            arguments += ["--task", task.task, *(["--engine"] if task.kind.rolls_out else [])]
            arguments += ["--beside", str(self._auxiliary_model_folder(place))] if task.beside is not None else []
        return arguments

    def _task_program_arguments(self, place: Path, cell: Measurement) -> list[str]:
        """Write a task's script and all that it reads; returns the arguments of the program that runs it."""
        request, strategy, task = self._request, cell.strategy, self._request.task
        assert task is not None
        write_shared(place / SCRIPT, task_script(task.task).encode())
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        if not config.get("architectures"):  # TRL reads the class to create from it
            write_shared(place / "config.json", json.dumps(config | {"architectures": [self._class]}).encode())
        settings = training_arguments(strategy, request) | task_arguments(strategy, request)
        settings |= {"deepspeed": str(place / "deepspeed.json"), "output_dir": str(place / "output")}
        settings |= {"max_steps": cell.steps, "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
        if task.task == "gkd":
            settings["lmbda"] = 1.0  # generate in each step: the maximum
        if task.kind.rolls_out:
            once = strategy.micro_batch * strategy.accumulation * cell.world_size
            settings["num_generations"] = measured_generations(once)
        if cell.seq_len != request.seq_len:
            settings |= _length_settings(task, cell.seq_len, settings)
        if task.beside is not None:
            settings["teacher" if task.task == "gkd" else "reward_model"] = str(self._auxiliary_model_folder(place))
        rows = strategy.micro_batch * strategy.accumulation * cell.world_size * (cell.steps + 1)
        return [
            "--script", str(place / SCRIPT), "--task", task.task, "--rows", str(rows),
            "--prompt-len", str(task.prompt_len), "--completion-len", str(cell.seq_len - task.prompt_len),
            *(["--vocabulary", str(self._vocabulary)] if self._vocabulary else []),
            *([] if cell.real else ["--cache-bytes", str(self._cache_bytes(cell))]),
            "--model", str(place), "--tune", request.tune, "--lora_rank", str(request.lora_rank),
            *to_command_line_options(settings),
        ]  # fmt: skip

    def _auxiliary_model_folder(self, place: Path) -> Path:
        """A folder with the config of the reward model or the teacher."""
        task = self._request.task
        assert task is not None
        assert task.beside is not None
        folder = self._create_folder_once(place / "beside")
        write_shared(folder / "config.json", (task.beside / "config.json").read_bytes())
        return folder

    def _cache_bytes(self, cell: Measurement) -> int:
        """Bytes for twice the longest sequence in the cache of an engine that is calculated separately."""
        of_token = max((one.cache_of_token for one in self._engine), default=1)
        return 2 * (cell.seq_len + 4096) * of_token


_ANY_FAMILY = Family(0)
_PLAIN, _OF_TASKS = "gonogo.virtual.measuring.program", "gonogo.virtual.measuring.post_training"


def _length_settings(task: TaskSettings, seq_len: int, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings for sample lengths, for another length than the requested one."""
    completion = seq_len - task.prompt_len
    lengths = {"max_length": seq_len, "vllm_max_model_length": seq_len, "max_completion_length": completion,
               "max_new_tokens": completion}  # fmt: skip
    return {name: length for name, length in lengths.items() if name in settings}


def _modules_to_preload(task: TaskSettings | None) -> tuple[str, ...]:
    """Modules that the measuring process imports once for all rehearsals of a task."""
    if task is None:
        return ()
    return ("trl", "datasets", "peft", *(("trl.experimental.gkd",) if task.task == "gkd" else ()))


def _measurement_name(cell: Measurement) -> str:
    family, strategy, rollout = cell.strategy.family, cell.strategy, cell.strategy.rollout
    words = [
        f"fsdp{family.reshard:d}" if family.fsdp else f"zero{family.zero}", family.optimizer, family.parameters,
        f"buckets{family.bucket}", f"replicas{family.replicas}", f"context{family.context}",
        f"mesh{family.tensor}x{family.experts}",
        "recomputed" if strategy.checkpointing else "kept",
        f"{strategy.micro_batch}x{strategy.accumulation}", f"depth{cell.depth}", f"tokens{cell.seq_len}",
        f"world{cell.world_size}", f"steps{cell.steps}", *(["real"] if cell.real else []),
        *(word for word in (strategy.reference, rollout.engine and f"{rollout.engine}{rollout.gpus}") if word),
        *([f"tp{rollout.tp}", f"share{rollout.share:.2f}", f"sleep{rollout.sleep:d}"] if rollout.share else []),
    ]  # fmt: skip
    return "-".join(words)


def _last_line(log: Path) -> str:
    try:
        lines = (read_untrusted(log) or b"").decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
