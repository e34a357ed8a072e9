"""What lies between a command line and ``AsyncLLM``: the parser of ``vllm serve``, the configuration, and the server.

The options are those of :data:`~gonogo.virtual.rollout.arguments.ENGINE`; any other can't be rehearsed.
The HTTP server really runs, on localhost only, and has no routes: requests over HTTP can't be rehearsed.
Based on vLLM 0.12.0 and 0.33.0 (vllm/entrypoints/cli/serve.py, vllm/entrypoints/openai/api_server.py,
vllm/engine/arg_utils.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
from types import SimpleNamespace
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.rollout import async_llm
from gonogo.virtual.rollout.arguments import ENGINE, EngineArgs
from gonogo.virtual.rollout.llm import LLM, EngineContext
from gonogo.virtual.rollout.package import ALWAYS, STILL

_SERVER_OPTIONS = ("enable_log_requests", "disable_log_requests", "host", "port", "api_key", "headless",
                  "api_server_count", "master_addr", "master_port", "node_rank", "nnodes", "data_parallel_address",
                  "data_parallel_rpc_port", "data_parallel_size_local", "data_parallel_start_rank",
                  "fully_sharded_loras", "cuda_graph_sizes", "decode_context_parallel_size", "kv_transfer_config",
                  "logprobs_mode", "stream_interval", "profiler", "all2all_backend")  # fmt: skip


class VllmArgumentParser(argparse.ArgumentParser):
    """``FlexibleArgumentParser``: treats ``-`` and ``_`` in option names alike."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Normalize the option names, then parse as argparse does."""
        given = [one.split("=", 1) for one in args or ()]
        words = [word for one in given for word in self._normalize_option_name(one)]
        return super().parse_known_args(words, namespace)

    @staticmethod
    def _normalize_option_name(words: list[str]) -> list[str]:
        if not words[0].startswith("--"):
            return ["=".join(words)]
        return ["--" + words[0][2:].replace("-", "_"), *words[1:]]


class _ValueAction(argparse.Action):
    """Stores True without a value, one value parsed as JSON or else as text, and several as a list."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        read = [_parse_value(one) for one in values]
        setattr(namespace, self.dest, read if len(read) > 1 else read[0] if read else True)


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


class _Serve:
    """``vllm serve`` as a subcommand."""

    name = "serve"

    @staticmethod
    def cmd(args: argparse.Namespace) -> None:
        """Do nothing: in a rehearsal, the program that uses this parser starts the server itself."""

    def validate(self, args: argparse.Namespace) -> None:
        """Do nothing: the engine checks the arguments."""

    def subparser_init(self, subparsers: Any) -> Any:
        """Declare the options."""
        parser = subparsers.add_parser(self.name)
        parser.add_argument("model_tag", nargs="?")
        for name in sorted({*ENGINE, *_SERVER_OPTIONS}):
            parser.add_argument(f"--{name}", dest=name, nargs="*", action=_ValueAction, default=None)
            parser.add_argument(f"--no_{name}", dest=name, action="store_const", const=False)
        return parser


class UsageContext(enum.Enum):
    """What starts an engine."""

    UNKNOWN_CONTEXT = "UNKNOWN_CONTEXT"
    LLM_CLASS = "LLM_CLASS"
    API_SERVER = "API_SERVER"
    OPENAI_API_SERVER = "OPENAI_API_SERVER"
    ENGINE_CONTEXT = "ENGINE_CONTEXT"


class AsyncEngineArgs(EngineArgs):
    """``AsyncEngineArgs``."""

    enable_log_requests = False
    disable_log_stats = False

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> Any:
        """Create the arguments from the options that were given."""
        given = {name: value for name, value in vars(args).items() if name in ENGINE and value is not None}
        return cls(**given)

    def create_engine_config(self, usage_context: Any = None, *_: Any, **__: Any) -> Any:
        """The configuration, with the attributes that programs read."""
        requested = dict(vars(self))
        tp = int(requested.get("tensor_parallel_size") or 1)
        return SimpleNamespace(
            asked=requested,
            model_config=SimpleNamespace(model=requested.get("model"), quantization=requested.get("quantization")),
            parallel_config=SimpleNamespace(tensor_parallel_size=tp, data_parallel_rank_local=0, world_size=tp),
            quant_config=None,
            speculative_config=None,
            weight_transfer_config=None,
            lora_config=None,
        )


_MAY_BE_NONE = dict.fromkeys(("enable_prefix_caching", "enable_chunked_prefill"), bool | None)
"""Fields whose default is decided by the engine."""
AsyncEngineArgs.__dataclass_fields__ = vars(  # type: ignore[attr-defined]
    dataclasses.make_dataclass("Fields", [(name, _MAY_BE_NONE.get(name, Any), None) for name in sorted(ENGINE)])
)["__dataclass_fields__"]


class App:
    """The server's ASGI application for uvicorn: starts and stops, and answers nothing."""

    def __init__(self, rehearsal: EngineContext) -> None:
        self.state = SimpleNamespace()
        self.server_args: Any = None
        self._rehearsal = rehearsal

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] != "lifespan":
            path = str(scope.get("path"))
            why = translated("the program requests {path} over HTTP, which gonogo's stand-in does not answer").format(
                path=path
            )
            raise self._rehearsal.unsupported("vLLM's HTTP server", why)
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def serving_names(rehearsal: EngineContext, llm: type[LLM]) -> dict[str, Any]:
    """Names by module, with the releases that have them."""
    engines = type("Engines", (async_llm._Engines,), {"rehearsal": rehearsal})
    client = type("AsyncLLM", (async_llm.AsyncLLM,), {"of": engines, "__module__": "vllm.v1.engine.async_llm"})
    arguments = type("AsyncEngineArgs", (AsyncEngineArgs,), {"refuse": rehearsal.unsupported, "__module__": "vllm"})

    def build_app(args: Any, supported_tasks: Any = None, model_config: Any = None) -> Any:
        return App(rehearsal)

    async def init_app_state(engine_client: Any, state: Any, args: Any, supported_tasks: Any = None) -> None:
        state.engine_client = engine_client

    def run_headless(args: Any) -> None:
        raise rehearsal.unsupported(
            "vllm.entrypoints.cli.serve.run_headless", translated("an engine on several nodes is not rehearsed")
        )

    class Platform:
        """Stand-in for vLLM's ``current_platform`` on CUDA."""

        device_type, device_name = "cuda", "cuda"

        @staticmethod
        def get_device_uuid(device_id: int = 0) -> str:
            """An identifier from the GPU's number on its node, so that both ends of a socket compute the same."""
            import os

            listed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            shown = [one.strip() for one in listed.split(",") if one.strip()]
            return f"GPU-{shown[device_id] if device_id < len(shown) else device_id}"

        @staticmethod
        def is_cuda() -> bool:
            """Always True."""
            return True

        is_cuda_alike = is_cuda

        @staticmethod
        def is_rocm() -> bool:
            """Always False."""
            return False

    def mark_in_all_releases(**values: Any) -> dict[str, Any]:
        return {name: (value, ALWAYS, STILL) for name, value in values.items()}

    ranks = (1, 8, 16, 32, 64, 128, 256, 320, 512)
    return {
        "vllm.engine.arg_utils": mark_in_all_releases(AsyncEngineArgs=arguments, EngineArgs=arguments),
        "vllm.v1.engine.async_llm": mark_in_all_releases(AsyncLLM=client),
        "vllm.entrypoints.cli.serve": mark_in_all_releases(cmd_init=lambda: [_Serve()], run_headless=run_headless),
        "vllm.entrypoints.openai.api_server": mark_in_all_releases(build_app=build_app, init_app_state=init_app_state),
        "vllm.entrypoints.harmony_utils": {"get_encoding": (lambda: None, (0, 11), (0, 13))},
        "vllm.entrypoints.openai.parser.harmony_utils": {"get_encoding": (lambda: None, (0, 13), STILL)},
        "vllm.inputs": mark_in_all_releases(TokensPrompt=dict),
        "vllm.usage.usage_lib": mark_in_all_releases(UsageContext=UsageContext),
        "vllm.utils.argparse_utils": {"FlexibleArgumentParser": (VllmArgumentParser, (0, 11), STILL)},
        "vllm.utils": {"FlexibleArgumentParser": (VllmArgumentParser, ALWAYS, (0, 12))},
        "vllm.platforms": mark_in_all_releases(current_platform=Platform()),
        "vllm.config.lora": mark_in_all_releases(MaxLoRARanks=ranks),
        "vllm.distributed.parallel_state": {},
        "vllm.model_executor.layers.fused_moe.layer": mark_in_all_releases(FusedMoE=type("FusedMoE", (), {})),
        "vllm.model_executor.layers.linear": mark_in_all_releases(LinearBase=type("LinearBase", (), {})),
        "vllm.model_executor.layers.quantization.fp8": mark_in_all_releases(Fp8Config=type("Fp8Config", (), {})),
        "vllm.model_executor.model_loader.utils": mark_in_all_releases(
            process_weights_after_loading=lambda *_, **__: None
        ),
    }
