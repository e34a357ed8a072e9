from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_ANOTHER_KIND = Text(
    "The server at that address does not know TRL's endpoints (get_world_size, init_communicator): "
    "it is a plain vLLM server, not trl vllm-serve.",
    "该地址上的服务没有 TRL 的接口（get_world_size、init_communicator）：它是普通的 vLLM 服务，而不是 trl vllm-serve。",
)


class RolloutServerNotStarted(LoggedHazard):
    """`use_vllm` in server mode needs a rollout server that is started by itself, and none answers.
    ## What happens
    "Server is not up yet. Retrying in 2.0 seconds..." again and again, then "The vLLM server can't be reached at
    http://0.0.0.0:8000 after 240.0 seconds. Make sure the server is running by running `trl vllm-serve`"; or "Request
    failed: 404" where a plain `vllm serve` answers at that port.
    ## Why
    Since TRL 0.16, `use_vllm=True` talked to a server of TRL's by default (newer releases default to colocate): `trl
    vllm-serve`, in ms-swift `swift rollout`, on other GPUs. A server that is still loading, that died, has another
    port, or a proxy in between look the same.
    ## Example
    ```sh
    accelerate launch grpo.py --use_vllm True --vllm_mode server                      # wrong: no server runs
    CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model Qwen/Qwen3-4B &                     # right
    CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch grpo.py --use_vllm True --vllm_mode server
    ```
    ## Cure
    Start the server on its own GPUs (`trl vllm-serve`, not `vllm serve`) and wait until it says "Application startup
    complete", give host and port to the trainer; or `vllm_mode="colocate"` to have the engine in the trainer's
    processes.
    ## When it is safe
    In colocate mode no server is needed.
    ## Sources
    - https://github.com/huggingface/open-r1/issues/568: Server is not up yet: no server had been started
    - https://github.com/huggingface/open-r1/issues/543: the same after an upgrade of TRL
    - https://github.com/unslothai/unsloth/issues/2962: unsloth with vllm_mode left at server
    - https://github.com/huggingface/trl/issues/3587: 404: a server that is not TRL's
    - https://github.com/vllm-project/vllm/issues/27928: vLLM's own server has no get_world_size
    - https://github.com/PrimeIntellect-ai/verifiers/issues/510: what such a server logs
    """

    name = "rollout-server-not-started"
    title = Text("The trainer finds no rollout server of the kind that it needs", "训练器没有找到所需的 rollout 服务")

    log_words = ("Server is not up yet", "vLLM server can't be reached", "get_world_size", "init_communicator")
    ends_at = (("trl/extras/vllm_client.py", "init_communicator"), ("trl/extras/vllm_client.py", "check_server"))
    traces = ("Request failed: 404",)
    anywhere = True
    signs = (
        Sign(Pattern(r"vLLM server can't be reached at|Make sure the server is running by running `?trl vllm-serve")),
        Sign(Pattern(r"Server is not up yet\. Retrying")),
        Sign(Pattern(r"Request failed: 404"), frames=(("vllm_client", "init_communicator"),), cause=_ANOTHER_KIND),
        Sign(
            Pattern(
                r"/?(?:get_world_size|init_communicator|update_named_param)\b.{0,40}\b404\b"
                r"|\b404\b.{0,80}/(?:get_world_size|init_communicator)\b"
            ),
            cause=_ANOTHER_KIND,
        ),
        Sign(
            Pattern(r"Max retries exceeded with url: /(?:health|get_world_size|init_communicator)|Connection refused"),
            frames=(("vllm_client", "check_server", "VLLMClient"),),
        ),
        Sign(types=("",), frames=(("vllm_client",), ("check_server",)), certainty=Certainty.LIKELY),
    )
    cause = Text(
        "The trainer asks a rollout server for its health and gets no answer: none was started, it is "
        "still loading or has died, or it has another address or port.",
        "训练器在询问 rollout 服务的状态而得不到应答：服务未启动、仍在加载或已退出，或地址、端口不同。",
    )
    cures = (
        Text(
            "Start it first, on GPUs of its own: CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model … (ms-swift: "
            "swift rollout); wait for “Application startup complete”",
            "先在单独的 GPU 上启动它：CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model …（ms-swift：swift "
            "rollout）；等待 “Application startup complete”",
        ),
        Text('Or vllm_mode="colocate", which needs no server', '或设 vllm_mode="colocate"，无需服务'),
    )
    confirm = (
        Text(
            "curl http://HOST:8000/get_world_size/ from the trainer's machine gets no answer, or 404 (with proxies "
            "unset)",
            "在训练机上执行 curl http://HOST:8000/get_world_size/（不经代理）没有应答，或为 404",
        ),
    )
