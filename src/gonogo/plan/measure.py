"""Short rehearsals, asked of the process that makes them, and kept for the next time."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import gonogo
from gonogo.atomic import write_atomically
from gonogo.errors import UserError
from gonogo.finding import Text
from gonogo.plan.choice import BANDS, capacity_of
from gonogo.plan.request import PlanRequest
from gonogo.plan.strategy import Family, Strategy, Tune, deepspeed_config
from gonogo.rehearse.environment import fixed_environment
from gonogo.rehearse.python_start import python_module
from gonogo.virtual.measuring.depth import with_depth
from gonogo.virtual.measuring.jobs import Ended, Facts, Job, Measured
from gonogo.virtual.measuring.server import SAID, Start

_STACK = ("torch", "deepspeed", "transformers", "accelerate", "peft", "bitsandbytes", "flash-attn")
_NEEDED: dict[Tune, tuple[str, ...]] = {"lora": ("peft",), "qlora": ("peft", "bitsandbytes")}
_OF_MODEL = ("preprocessor_config.json", "processor_config.json", "tokenizer_config.json", "tokenizer.json",
             "video_preprocessor_config.json", "chat_template.json", "chat_template.jinja")  # fmt: skip
Answer = TypeVar("Answer", Facts, Measured)


class Cell(msgspec.Struct, frozen=True):
    """One thing to measure: a strategy, at a depth (0: the model as it is), with accumulation cut to what matters."""

    strategy: Strategy
    depth: int
    seq_len: int
    world_size: int
    steps: int = 2
    real: bool = False
    """On an accelerator of the size that it has, less what figures may be off by; else on one of boundless memory."""


class NotMeasured(Exception):
    """A rehearsal that came to no figures, and why."""


class Meter:
    """Measures cells. A context manager: the process that rehearses is started when first needed, and ended after."""

    def __init__(self, request: PlanRequest, folder: Path, on_done: Callable[[int, int], None]) -> None:
        self._request = request
        self._folder = folder
        self._on_done = on_done
        self._process: subprocess.Popen[bytes] | None = None
        self.config = json.loads((request.model / "config.json").read_bytes())
        self._versions = _versions()
        self.rehearsed = 0
        """Rehearsals that were made, and not found in the cache."""
        self.reused = 0

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def facts(self) -> Facts:
        """What the model is made of. Raises NotMeasured."""
        job = self._job("facts", Cell(Strategy(_ANY, False, 1, 1), 0, 16, 1), describe=True)
        return self._answered([job], Facts)[0]

    def measure(self, cells: Sequence[Cell]) -> list[Measured | NotMeasured]:
        """Rehearse the cells, as many at once as there are cores; an answer for each, in their order."""
        jobs = [self._job(_name(cell), cell) for cell in cells]
        return self._answers(jobs, Measured)

    def _answered(self, jobs: list[Job], kind: type[Answer]) -> list[Answer]:
        found = []
        for answer in self._answers(jobs, kind):
            if isinstance(answer, NotMeasured):
                raise answer
            found.append(answer)
        return found

    def _answers(self, jobs: list[Job], kind: type[Answer]) -> list[Answer | NotMeasured]:
        keys = {job.name: self._key(job) for job in jobs}
        answers: dict[str, Answer | NotMeasured] = {}
        for job in jobs:
            kept = _kept(keys[job.name], kind)
            if kept is not None:
                answers[job.name] = kept
                self.reused += 1
        missing = {job.name: job for job in jobs if job.name not in answers}
        for number, (job, why) in enumerate(self._run(list(missing.values())), 1):
            answers[job.name] = self._read(job, why, keys[job.name], kind)
            self.rehearsed += 1
            self._on_done(number, len(missing))
        return [answers[job.name] for job in jobs]

    def _read(self, job: Job, why: str, key: str, kind: type[Answer]) -> Answer | NotMeasured:
        if why.startswith("the process"):
            return NotMeasured(why)
        if why:
            last = _last_line(Path(f"{job.answer}.log"))
            return NotMeasured(last if why == f"status {SAID}" and last else ": ".join(filter(None, (why, last))))
        data = Path(job.answer).read_bytes()
        with contextlib.suppress(OSError):
            _keep(key, data)
        return msgspec.json.decode(data, type=kind)

    def _run(self, jobs: list[Job]) -> Iterator[tuple[Job, str]]:
        """Each job as it ends, with why it has no answer, or ``""``."""
        if not jobs:
            return
        process = self._started()
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
                last = _last_line(self._folder / "server.log")
                why = f"the process that rehearses ended with status {process.wait()}: {last}"
                for job in by_name.values():
                    yield job, why
                return
            ended = msgspec.json.decode(line, type=Ended)
            yield by_name.pop(ended.name), ended.why

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            request = self._request
            count = request.machine.count
            environment = fixed_environment(os.environ, self._folder / "caches") | {
                "RANK": "0",
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(request.world_size),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
                "CUDA_VISIBLE_DEVICES": ",".join(str(number) for number in range(count)),
            }
            log = open(self._folder / "server.log", "wb")  # noqa: SIM115  the process's, as long as it lives
            self._process = subprocess.Popen(
                python_module(sys.executable, "gonogo.virtual.measuring.server", dies_with_parent=True),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=self._folder,
            )  # fmt: skip
            log.close()
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            start = Start(request.machine.accelerator.name, str(self._folder), max(1, cores))
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(start) + b"\n")
        return self._process

    def _job(self, name: str, cell: Cell, *, describe: bool = False) -> Job:
        request = self._request
        place = self._folder / name
        place.mkdir(parents=True, exist_ok=True)
        config = with_depth(self.config, cell.depth) if cell.depth else self.config
        (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for file in (*_OF_MODEL, *(path.name for path in request.model.glob("*.py"))):
            if (request.model / file).exists() and not (place / file).exists():
                (place / file).symlink_to((request.model / file).resolve())
        written = deepspeed_config(cell.strategy, world_size=cell.world_size, dtype=request.dtype)
        (place / "deepspeed.json").write_text(json.dumps(written), encoding="utf-8")
        strategy = cell.strategy
        arguments = [
            "--model", str(place), "--deepspeed", str(place / "deepspeed.json"), "--seq-len", str(cell.seq_len),
            "--micro-batch", str(strategy.micro_batch), "--steps", str(cell.steps), "--tune", request.tune,
            "--lora-rank", str(request.lora_rank), "--attention", request.attention,
            *(["--gradient-checkpointing"] if strategy.checkpointing else []),
        ]  # fmt: skip
        return Job(
            name=name,
            arguments=tuple(arguments),
            world_size=cell.world_size,
            local_world_size=min(request.machine.count, cell.world_size),
            answer=str(place / "answer.json"),
            timeout=request.timeout,
            steps=cell.steps,
            capacity=int(capacity_of(request) / (1 + BANDS["rehearsed"])) if cell.real else None,
            describe=describe,
        )

    def _key(self, job: Job) -> str:
        """Everything that an answer hangs on: the files' contents, not their places."""
        place = Path(job.answer).parent
        contents = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(place.iterdir())
            if path.suffix in (".json", ".py", ".jinja") and path.name != "answer.json"
        }
        told: dict[str, Any] = {
            "files": contents,
            "arguments": [argument.replace(str(place), "") for argument in job.arguments],
            "world": [job.world_size, job.local_world_size, job.describe, job.capacity],
            "accelerator": msgspec.to_builtins(self._request.machine.accelerator),
            "environment": {name: value for name, value in os.environ.items() if name.startswith(_MATTERS)},
            "versions": self._versions,
        }
        text = json.dumps(told, sort_keys=True).replace(str(self._folder), "")
        return hashlib.sha256(text.encode()).hexdigest()


_ANY = Family(0)
_MATTERS = ("PYTORCH_", "DEEPSPEED_", "DS_", "ACCELERATE_", "TRANSFORMERS_")


def _name(cell: Cell) -> str:
    family, strategy = cell.strategy.family, cell.strategy
    words = [
        f"zero{family.zero}", family.optimizer, family.parameters, "recomputed" if strategy.checkpointing else "kept",
        f"{strategy.micro_batch}x{strategy.accumulation}", f"depth{cell.depth}", f"tokens{cell.seq_len}",
        f"world{cell.world_size}", f"steps{cell.steps}", *(["real"] if cell.real else []),
    ]  # fmt: skip
    return "-".join(words)


def _versions() -> dict[str, str]:
    found = {"python": sys.version, "gonogo": gonogo.__version__, "source": _source_stamp()}
    for name in _STACK:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _source_stamp() -> str:
    """Of the code that measures: a change in it makes what was kept worthless."""
    root = Path(gonogo.__file__).parent
    digest = hashlib.sha256()
    for folder in ("virtual", "evidence", "data"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".json"):
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/gonogo/plan``, or the same below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gonogo" / "plan"


def _kept(key: str, kind: type[Answer]) -> Answer | None:
    try:
        return msgspec.json.decode((cache_folder() / f"{key}.json").read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _keep(key: str, data: bytes) -> None:
    """Keep an answer: whole or not at all, whoever else keeps the same."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{key}.json", data)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""


def check_packages(tune: Tune) -> None:
    """Raise UserError where a package is missing that the way of tuning needs."""
    for name in _NEEDED.get(tune, ()):
        if importlib.util.find_spec(name) is None:
            raise UserError(
                Text(
                    en="--tune {tune} needs {name}, which is not installed for {python}: pip install {name}",
                    zh="--tune {tune} 需要 {name}，而 {python} 没有安装：pip install {name}",
                ).format(tune=tune, name=name, python=sys.executable)
            )


def check_model(path: Path, name: str) -> None:
    """Raise UserError where the folder has no config.json that can be read."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise UserError(
            Text(
                en="{name}: {file} can't be read ({why}): name a folder with the model's config.json",
                zh="{name}：无法读取 {file}（{why}）：请指定含有 config.json 的模型目录",
            ).format(name=name, file=file, why=error.strerror)
        ) from error
    except ValueError as error:
        raise UserError(
            Text(en="{file} is no JSON: {why}", zh="{file} 不是合法的 JSON：{why}").format(file=file, why=error)
        ) from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise UserError(
            Text(
                en="{file} names no model_type: it is no transformers configuration",
                zh="{file} 没有 model_type：不是 transformers 的模型配置",
            ).format(file=file)
        )
