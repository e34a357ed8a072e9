"""The memory that a job asks slurm for against what ZeRO-Offload keeps in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.field import whole_number
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty, Finding, Text

if TYPE_CHECKING:
    from gonogo.evidence.environment.environment import Environment
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.run import Run
    from gonogo.hazards.hazard import Hazard

_ASKED = Pattern(r"(?i)^(\d+(?:\.\d+)?)([kmgt])?b?$")
_BILLIONS = Pattern(r"(?i)(?:^|[-_/])(\d{1,3}(?:\.\d+)?)b(?:$|[-_/.])")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_ADAM = 12
"""Bytes a trained parameter: a float32 copy, and Adam's two moments."""


def asked_memory(hazard: Hazard, launch: Launch, run: Run) -> Iterator[Finding]:
    """A finding where ``--mem`` is less than the offloaded optimizer states of a full fine-tune alone."""
    field = launch.slurm.get("mem")
    if field is None or run.config is None or run.model is None:
        return
    if run.config.offload("optimizer").get() != "cpu" or _trains_adapters(launch, run):
        return
    asked = _bytes(str(field.get("")))
    named = _BILLIONS.search(run.model.name)
    nodes = whole_number(launch.nodes) or 1
    if not asked or named is None:
        return
    billions = float(named.group(1))
    needed = int(billions * 1e9 * _ADAM / nodes)
    if needed <= asked:
        return
    yield hazard.finding(
        Text(
            en="The job asks for {asked:.0f} GiB a node. The optimizer states of {billions:g} billion parameters, "
            "offloaded to the CPU, take {needed:.0f} GiB of it on each of {nodes} node(s): slurm kills the job.",
            zh="作业每个节点申请 {asked:.0f} GiB。{billions:g}B 参数的优化器状态卸载到 CPU，在 {nodes} 个节点上各占 "
            "{needed:.0f} GiB：slurm 会杀死作业。",
        ).format(asked=asked / 2**30, billions=billions, needed=needed / 2**30, nodes=nodes),
        certainty=Certainty.LIKELY,
        cure=(
            Text(
                "Ask for the node's memory (--mem=0) or more nodes, or offload less",
                "申请节点的全部内存（--mem=0）或更多节点，或减少卸载",
            ),
        ),
        spans=(field.span(), run.config.offload("optimizer").span()),
        confirm=(Text("All parameters are trained", "训练全部参数"),),
    )


def _bytes(text: str) -> int:
    match = _ASKED.search(text)
    return int(float(match.group(1)) * _UNITS[(match.group(2) or "m").lower()]) if match else 0


def _trains_adapters(launch: Launch, run: Run) -> bool:
    names = (*launch.options.names(), *run.arguments.names())
    if any("lora" in name.lower() or "peft" in name.lower() for name in names):
        return True
    kinds = ("train_type", "tuner_type", "finetuning_type")
    if any(str(run.arguments.get(name).get("full")).lower() != "full" for name in kinds):
        return True
    if run.framework == "ms-swift" and all(name not in names for name in kinds):
        return True  # LoRA is its default
    return any(b"peft" in script.source.data or b"requires_grad" in script.source.data for script in run.scripts)


def memory_findings(hazard: Hazard, environment: Environment, run: Run, cure: tuple[Text, ...]) -> Iterator[Finding]:
    """A finding where a machine has less memory than the offloaded optimizer states of a full fine-tune alone."""
    limit, states = environment.host_memory.number, _offloaded_states(run)
    if limit is None or states is None or states[1] <= limit:
        return
    billions, needed, nodes = states
    yield hazard.finding(
        Text(
            en="The machine has {limit:.0f} GiB of memory. The optimizer states of {billions:g} billion parameters, "
            "offloaded to the CPU, take {needed:.0f} GiB on each of {nodes} node(s): the kernel kills the run.",
            zh="机器内存为 {limit:.0f} GiB。{billions:g}B 参数的优化器状态卸载到 CPU，在 {nodes} 个节点上各占 "
            "{needed:.0f} GiB：内核会杀死训练。",
        ).format(limit=limit / 2**30, billions=billions, needed=needed / 2**30, nodes=nodes),
        certainty=Certainty.LIKELY,
        cure=cure,
        spans=(
            run.config.offload("optimizer").span() if run.config is not None else None,
            environment.host_memory.span(),
        ),
        confirm=(Text("All parameters are trained", "训练全部参数"),),
    )


def _offloaded_states(run: Run) -> tuple[float, int, int] | None:
    """The model's billions of parameters by its name, the bytes of offloaded states a node, the nodes.

    None where the optimizer is not offloaded to the CPU, adapters are trained, or the size isn't known.
    """
    if run.config is None or run.config.offload("optimizer").get() != "cpu":
        return None
    billions = billions_trained(run)
    if billions is None or run.launch is None:
        return None
    nodes = whole_number(run.launch.nodes) or 1
    return billions, int(billions * 1e9 * _ADAM / nodes), nodes


def billions_trained(run: Run) -> float | None:
    """How many billions of parameters a full fine-tune trains, by the model's name; None where that isn't known."""
    if run.launch is None or run.model is None or _trains_adapters(run.launch, run):
        return None
    named = _BILLIONS.search(run.model.name)
    return float(named.group(1)) if named is not None else None
