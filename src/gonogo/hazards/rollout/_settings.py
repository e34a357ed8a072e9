"""How a run generates, according to its launch: options of TRL and ms-swift, overrides of verl."""

from __future__ import annotations

import msgspec

from gonogo.hazards.rule import Field, Launch, Run, Span, whole_number

_VERL_PROGRAMS = ("verl.trainer.main_ppo", "verl/trainer/main_ppo.py")
_DEFAULTS = {
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "data.train_batch_size": 1024,
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "actor_rollout_ref.rollout.n": 1,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
    "actor_rollout_ref.rollout.max_num_batched_tokens": 8192,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
}
"""Defaults of verl's trainer/config/ppo_trainer.yaml and the files that it includes."""


def uses_rollout_server(launch: Launch, run: Run) -> bool:
    """Whether the trainer certainly uses a rollout server."""
    mode = run.arguments.get("vllm_mode")
    hosts = (run.arguments.get(name) for name in ("vllm_server_host", "vllm_server_base_url"))
    if mode.known:
        return str(mode.value) == "server"
    return run.arguments.get("use_vllm").truth is True and any(host.known for host in hosts)


def colocation_option(run: Run) -> Field | None:
    """The option by which the launch runs the engine in the trainer's processes, or None if it doesn't say so."""
    mode = run.arguments.get("vllm_mode")
    return mode if mode.known and str(mode.value) == "colocate" else None


class VerlIntegerSetting(msgspec.Struct, frozen=True):
    """An integer of verl's config: the command's override, or the default."""

    value: int
    field: Field

    @property
    def is_overridden(self) -> bool:
        """Whether the command sets it."""
        return self.field.known

    @property
    def span(self) -> Span | None:
        """Where the command sets it; None for a default."""
        return self.field.span() if self.field.known else None


class VerlLaunch:
    """A launch of verl's PPO trainer, whose command overrides its config by ``key=value``."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.complete = run.arguments.complete
        """Whether what the command doesn't name surely has its default."""

    def field(self, key: str) -> Field:
        """The override of a key; absent if there is none."""
        return self._run.arguments.get(key)

    def number(self, key: str) -> VerlIntegerSetting | None:
        """The value of an integer key; None if it is unknown."""
        field = self.field(key)
        if field.known:
            value = whole_number(field)
            return VerlIntegerSetting(value, field) if value is not None else None
        default = _DEFAULTS.get(key)
        return VerlIntegerSetting(default, field) if field.absent and default is not None else None

    @property
    def gpus(self) -> VerlIntegerSetting | None:
        """The number of GPUs on all nodes; its ``field`` is that of ``trainer.n_gpus_per_node``."""
        nodes, each = self.number("trainer.nnodes"), self.number("trainer.n_gpus_per_node")
        return VerlIntegerSetting(nodes.value * each.value, each.field) if nodes and each else None

    @property
    def on_megatron(self) -> bool:
        """Whether the actor runs on Megatron, whose data-parallel size is smaller than the number of GPUs."""
        strategy = self.field("actor_rollout_ref.actor.strategy")
        config = self._run.launch.options.get("config_name", "config_path") if self._run.launch else Field.missing()
        engine = self.field("model_engine")
        return "megatron" in (str(strategy.get("")), str(engine.get(""))) or "megatron" in str(config.get(""))


def find_verl_launch(launch: Launch, run: Run) -> VerlLaunch | None:
    """The launch if it starts verl's PPO trainer, else None."""
    program = launch.program.string
    if program is None or not program.endswith(_VERL_PROGRAMS) or launch.options.get("config_name").known:
        return None
    return VerlLaunch(run)
