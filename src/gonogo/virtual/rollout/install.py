"""Installs the stand-ins for vLLM: the package, the HTTP server, and the phases of a trainer with rollouts."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from gonogo.evidence.prepared import read_prepared
from gonogo.finding import Text, translated
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.rollout import own_generate, package, phases, serving, transfer
from gonogo.virtual.rollout import rollout_server as server
from gonogo.virtual.rollout.arguments import EngineArgs, SamplingParamsStandIn
from gonogo.virtual.rollout.llm import LLM, EngineContext, LLMEngine, WorkerFactory
from gonogo.virtual.rollout.outputs import CompletionOutput, Logprob, RequestOutput, RequestOutputKind
from gonogo.virtual.unsupported import UnsupportedOperator

_ALWAYS, _STILL = package.ALWAYS, package.STILL


class MissingStandIn(ImportError, UnsupportedOperator):
    """A name of vLLM that the stand-in lacks: also an ImportError, for programs that can do without it."""

    def __init__(self, feature: str, reason: Text) -> None:
        ImportError.__init__(self, f"{feature} can't be rehearsed: {reason.en}")
        self.operator = feature
        self.why = reason


def install(
    mode: VirtualMode,
    lifecycle: Lifecycle,
    plan: WorkerPlan,
    peers: Peers | None = None,
    workers: WorkerFactory | None = None,
) -> Callable[[], None]:
    """Install the stand-ins; returns the undo. vLLM is only replaced on CUDA, and not if it is known to be
    missing."""
    patches = Patches()
    own_generate.install(patches, mode, lifecycle)
    known = read_prepared(Path(plan.prepared)) if plan.prepared else None
    if plan.accelerator.device_type != "cuda" or (known is not None and "vllm" in known.absent):
        return patches.undo
    version, installed = package.stand_in_version(plan.program.partition(".")[0])

    def assume_with_vllm(assumption: Text) -> None:
        if not installed:
            mode.ledger.assume(translated("vLLM {version} is installed on the machine").format(version=version))
        mode.ledger.assume(assumption)

    rehearsal = EngineContext(version, mode.memory, lifecycle, assume_with_vllm, UnsupportedOperator, peers, workers)
    package.VllmPackage(version, _stand_in_names(rehearsal), MissingStandIn).install(patches)
    server.install(patches, lifecycle, mode.ledger.assume, assume_with_vllm, UnsupportedOperator)
    phases.install(patches, lifecycle)
    return patches.undo


def _stand_in_names(rehearsal: EngineContext) -> package.Names:
    """Names by module, with the releases that have them."""
    ports: dict[str, Any] = {"get_ip": lambda: "127.0.0.1", "get_open_port": lambda: 29501}
    engine_class = type("LLM", (LLM,), {"rehearsal": rehearsal, "__module__": "vllm"})
    sampling = type("SamplingParams", (SamplingParamsStandIn,), {"refuse": rehearsal.unsupported, "__module__": "vllm"})
    guided = type("GuidedDecodingParams", (_IgnoredParameters,), {"__module__": "vllm.sampling_params"})
    structured = type("StructuredOutputsParams", (_IgnoredParameters,), {"__module__": "vllm.sampling_params"})

    def mark_in_all_releases(**values: Any) -> dict[str, tuple[Any, tuple[int, int], tuple[int, int]]]:
        """Mark names as part of every vLLM release."""
        return {name: (value, _ALWAYS, _STILL) for name, value in values.items()}

    drives = type("LLMEngine", (LLMEngine,), {"of": engine_class, "__module__": "vllm"})
    arguments = type("EngineArgs", (EngineArgs,), {"refuse": rehearsal.unsupported, "__module__": "vllm"})
    adapters = type("LRUCacheWorkerLoRAManager", (_IgnoredParameters,), {"_load_adapter": lambda *_: None})
    never = (None, _ALWAYS, _ALWAYS)
    outputs = mark_in_all_releases(RequestOutput=RequestOutput, CompletionOutput=CompletionOutput)
    communicator = mark_in_all_releases(PyNcclCommunicator=transfer.PyNcclCommunicator)
    served = serving.serving_names(rehearsal, engine_class)
    client = served["vllm.v1.engine.async_llm"]["AsyncLLM"][0]
    own: dict[str, Any] = {
        "vllm": {
            **mark_in_all_releases(LLM=engine_class, SamplingParams=sampling, LLMEngine=drives, EngineArgs=arguments),
            **mark_in_all_releases(
                AsyncLLMEngine=client, AsyncEngineArgs=served["vllm.engine.arg_utils"]["AsyncEngineArgs"][0]
            ),
            **outputs,
        },
        "vllm.engine.async_llm_engine": {**mark_in_all_releases(AsyncLLMEngine=client), "_log_task_completion": never},
        "vllm.pooling_params": mark_in_all_releases(PoolingParams=_IgnoredParameters),
        "vllm.entrypoints.llm": mark_in_all_releases(LLM=engine_class),
        "vllm.outputs": outputs,
        "vllm.lora.worker_manager": mark_in_all_releases(LRUCacheWorkerLoRAManager=adapters),
        "vllm.lora.lora_model": mark_in_all_releases(LoRAModel=type("LoRAModel", (_IgnoredParameters,), {})),
        "vllm.lora.utils": mark_in_all_releases(get_adapter_absolute_path=str),
        "vllm.config.lora": {"MaxLoRARanks": (Literal[1, 8, 16, 32, 64, 128, 256, 320, 512], (0, 12), _STILL)},
        "vllm.lora.request": mark_in_all_releases(
            LoRARequest=type("LoRARequest", (_IgnoredParameters,), {"__module__": "vllm.lora.request"})
        ),
        "vllm.logprobs": mark_in_all_releases(Logprob=Logprob),
        "vllm.sampling_params": {
            **mark_in_all_releases(SamplingParams=sampling, RequestOutputKind=RequestOutputKind),
            "GuidedDecodingParams": (guided, _ALWAYS, (0, 12)),
            "StructuredOutputsParams": (structured, (0, 10), _STILL),
        },
        "vllm.utils": {
            **{name: (value, _ALWAYS, (0, 12)) for name, value in ports.items()},
            **mark_in_all_releases(random_uuid=lambda: uuid.uuid4().hex),
        },
        "vllm.utils.network_utils": {name: (value, (0, 11), _STILL) for name, value in ports.items()},
        "vllm.distributed.utils": mark_in_all_releases(StatelessProcessGroup=transfer.StatelessProcessGroup),
        "vllm.distributed.device_communicators.pynccl": communicator,
        "vllm.distributed.weight_transfer.nccl_common": {"trainer_init": (transfer.trainer_init, (0, 28), _STILL)},
        "vllm.distributed.weight_transfer.packed_tensor": {
            "packed_nccl_broadcast_producer": (transfer.packed_nccl_broadcast_producer, (0, 18), _STILL)
        },
        "vllm.distributed.weight_transfer.nccl_engine": mark_in_all_releases(
            NCCLWeightTransferEngine=transfer.NCCLWeightTransferEngine,
            NCCLTrainerSendWeightsArgs=transfer.NCCLTrainerSendWeightsArgs,
        ),
    }
    return {name: {**served.get(name, {}), **own.get(name, {})} for name in {**served, **own}}


class _IgnoredParameters:
    """Parameters without effect here, such as constraints on the output's text (which is arbitrary) or adapters."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)
