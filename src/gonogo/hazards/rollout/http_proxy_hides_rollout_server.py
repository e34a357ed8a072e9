from gonogo.hazards.rollout._settings import uses_server
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_PROXY_SPEAKS = Pattern(
    r"ProxyError|Unable to connect to proxy|Cannot connect to proxy|Tunnel connection failed|ERR_ACCESS_DENIED"
    r"|(?i:squid|proxy) (?i:error|authentication required)|407 Proxy"
)
_ROLLOUT = Pattern(r"vllm_client|/health/?\b|/get_world_size|/init_communicator|sglang_router|rollout|vllm_server")
_PROXY_SET = Pattern(r"(?i)\b(?:https?|all)_proxy\s*=\s*[\"']?\w")


class HttpProxyHidesRolloutServer(LoggedHazard):
    """`http_proxy` sends the trainer's requests for the rollout server to a proxy, which does not know it.
    ## What happens
    "Server is not up yet" though it is; "ProxyError", 502, 503 or an HTML page of a proxy where JSON was expected; or
    the weight-update group times out at (127.0.0.1, 51216), since the request that was to open it never arrived.
    ## Why
    TRL, ms-swift, verl and vLLM's clients use `requests`, `httpx` or `aiohttp`, which obey
    `http_proxy`/`https_proxy`/`all_proxy` for localhost and private addresses too, unless `no_proxy` names them.
    ## Example
    ```sh
    export http_proxy=http://10.20.0.3:3128                                           # wrong, alone
    export http_proxy=http://10.20.0.3:3128 no_proxy=localhost,127.0.0.1,10.0.0.5     # right
    ```
    ## Cure
    `export no_proxy=localhost,127.0.0.1,0.0.0.0,::1,<addresses of the nodes>` (NO_PROXY too), or unset the proxy
    variables for the training.
    ## When it is safe
    Where no proxy is set, or `no_proxy` covers the server's host.
    ## Sources
    - https://github.com/modelscope/ms-swift/issues/5545: the group at 127.0.0.1:51216 times out because of a proxy
    - https://github.com/huggingface/trl/issues/4538: the same time-out on one machine
    - https://requests.readthedocs.io/en/latest/user/advanced/#proxies: which variables requests obeys
    """

    name = "http-proxy-hides-rollout-server"
    title = Text("A proxy stands between the trainer and the rollout server", "训练器与 rollout 服务之间隔着代理")

    log_words = ("client socket has", "51216", "ProxyError", "proxy", "Server is not up yet")
    ends_at = (("trl/extras/vllm_client.py", "requests.get(url)"),)
    anywhere = True
    signs = (
        Sign(_PROXY_SPEAKS, beside=_ROLLOUT),
        Sign(
            Pattern(r"client socket has (?:timed out|failed to connect).*\(?(?:127\.0\.0\.1|localhost)[,:] ?51216"),
            beside=_PROXY_SET,
        ),
        Sign(Pattern(r"Server is not up yet\. Retrying|vLLM server can't be reached"), beside=_PROXY_SET),
        Sign(
            Pattern(
                r"(?:client socket has (?:timed out|failed to connect)|failed to connect).*(?:127\.0\.0\.1"
                r"|localhost)[,:] ?51216"
            ),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The request that was to reach the rollout server did not: with http_proxy set, requests for "
        "localhost and private addresses go to the proxy unless no_proxy names them.",
        "本应到达 rollout 服务的请求没有到达：设置了 http_proxy 时，若 no_proxy 未列出，对 localhost "
        "与内网地址的请求也会发往代理。",
    )
    cures = (
        Text(
            "export no_proxy=localhost,127.0.0.1,0.0.0.0,HOST NO_PROXY=localhost,127.0.0.1,0.0.0.0,HOST; or "
            "unset http_proxy https_proxy all_proxy",
            "export no_proxy=localhost,127.0.0.1,0.0.0.0,HOST NO_PROXY=localhost,127.0.0.1,0.0.0.0,HOST；"
            "或 unset http_proxy https_proxy all_proxy",
        ),
    )
    confirm = (
        Text(
            "env | grep -i proxy shows one, and curl --noproxy '*' http://HOST:8000/health/ answers where "
            "curl without it does not",
            "env | grep -i proxy 有输出，且 curl --noproxy '*' http://HOST:8000/health/ 有应答而不带该选项时没有",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A proxy that the script exports, a server on this machine, and no exception for it."""
        if (
            not uses_server(launch, run)
            or not launch.variable("no_proxy").absent
            or not launch.variable("NO_PROXY").absent
        ):
            return
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            field = launch.variable(name)
            if field.known and str(field.value).strip():
                yield self.finding(
                    Text(
                        "{name} is set and no_proxy is not: the trainer asks the proxy for the rollout server of "
                        "its own machine or network.",
                        "设置了 {name} 而没有 no_proxy：训练器会向代理请求本机或内网的 rollout 服务。",
                    ).format(name=name),
                    certainty=Certainty.LIKELY,
                    cure=self.cures,
                    spans=(field.span(), launch.place.span()),
                    confirm=self.confirm,
                )
                return
