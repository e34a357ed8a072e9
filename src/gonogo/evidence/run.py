"""One run, as far as its files describe it: launch, configs, scripts, versions, model; each may be unknown."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy
from functools import cached_property

import msgspec

from gonogo.evidence.config.accelerate import AccelerateConfig
from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.config.model import ModelConfig
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.field import Field
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.script.reachability import ReachableCode, reachable_from
from gonogo.evidence.script.script import Script
from gonogo.evidence.training_arguments import Arguments


class ImportOutsideSysPath(msgspec.Struct, frozen=True, eq=False):
    """An import of a module in a folder of the project that isn't on the launch's ``sys.path``."""

    name: str
    folder: str
    script: Script
    node: ast.Import | ast.ImportFrom
    surely: bool
    """True if nothing that the files leave open could put the folder there."""
    optional: bool = False
    """True if the program catches the ImportError and continues without the module."""


class Run:
    """Everything known about one run. A file that belongs to no launch is a run of its own, with the rest unknown."""

    def __init__(
        self,
        environment: Environment,
        *,
        launch: Launch | None = None,
        config: DeepSpeedConfig | None = None,
        config_field: Field | None = None,
        accelerate: AccelerateConfig | None = None,
        arguments: Arguments | None = None,
        scripts: tuple[Script, ...] = (),
        model: ModelConfig | None = None,
        off_path: tuple[ImportOutsideSysPath, ...] = (),
    ) -> None:

        self.environment = environment
        self.launch = launch
        self.config = config
        self.config_field = config_field or Field.not_known()
        """Where the run names its DeepSpeed config; absent where it surely uses none."""
        self.accelerate = accelerate
        self.arguments = arguments or Arguments.unknown()
        self.scripts = scripts
        self.model = model
        self.off_path = off_path
        self._said: dict[tuple[bytes, ...], bool] = {}

    def any_script_contains(self, *words: bytes) -> bool:
        """Whether any of the run's scripts contains any of the words; cached."""
        if words not in self._said:
            self._said[words] = any(word in one.source.data for one in self.scripts for word in words)
        return self._said[words]

    def with_declared_environment(self) -> Run | None:
        """The same run with only what the project's files say of its versions; None if nothing else was assumed."""
        if self.environment.declared is None:
            return None
        other = copy(self)
        other.environment = self.environment.declared
        return other

    def in_alternative_environments(self) -> Iterator[Run]:
        """The same run in each environment that the project's other files declare."""
        for environment in self.environment.alternatives:
            other = copy(self)
            other.environment = environment
            yield other

    @cached_property
    def reachable_code(self) -> ReachableCode:
        """The lines of its scripts that the launch can reach; without a launch, from its first script."""
        return reachable_from(self.scripts, self.launch.entry_function if self.launch is not None else "")

    @property
    def framework(self) -> str | None:
        """``"ms-swift"``, ``"llamafactory"``, ``"trl"``, ``"axolotl"``; None for the user's own script."""
        return self.launch.framework if self.launch is not None else None

    @property
    def zero_stage(self) -> int | None:
        """The ZeRO stage; 0 without ZeRO or DeepSpeed; None if unknown."""
        if self.config is not None:
            return self.config.zero_stage
        return 0 if self.uses_deepspeed is False else None

    @property
    def uses_deepspeed(self) -> bool | None:
        """Whether DeepSpeed is used; None if unknown."""
        if self.config is not None:
            return True
        if self.accelerate is not None:
            return self.accelerate.enables_deepspeed
        if self.config_field.known:
            return True
        return False if self.config_field.absent and self.launch is not None else None

    @property
    def world_size(self) -> int | None:
        """Number of processes over all nodes; None if unknown."""
        if self.launch is None:
            return None
        size = self.launch.world_size.number
        return size if isinstance(size, int) else None

    @property
    def is_distributed(self) -> bool | None:
        """Whether the launcher sets up distributed training, rather than a single process; None if unknown."""
        if self.launch is None:
            return None
        if self.launch.launcher in ("deepspeed", "torchrun", "torch.distributed.launch"):
            return True
        size = self.world_size
        if size is not None and size > 1:
            return True
        return False if size == 1 and self.launch.launcher == "python" else None
