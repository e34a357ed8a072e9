from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_HUB = r"(?:huggingface\.co|hf-mirror\.com|hf\.co|modelscope\.cn)"


class HubRateLimited(LoggedHazard):
    """The Hub answers that it was asked too often.
    ## What happens
    "HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/…", often only with two
    nodes and more: one works.
    ## Why
    The Hub limits requests of one address or account in a time. Every rank asks it for models, tokenizers and data
    sets, also for those that are in the cache, to learn whether they are the newest; nodes behind one address share
    the limit.
    ## Example
    ```sh
    torchrun --nnodes 16 train.py                                         # wrong: 128 processes ask the Hub
    HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 torchrun --nnodes 16 train.py  # right, with the cache filled before
    ```
    ## Cure
    Load everything once per file system, then export HF_HUB_OFFLINE=1 and HF_DATASETS_OFFLINE=1 for the run, or
    name local folders. Log in (hf auth login): accounts have a higher limit. Let one process load first.
    ## When it is safe
    Offline, with a filled cache.
    ## Sources
    - https://github.com/allenai/OLMo/issues/550: two nodes of eight GPUs; cache and HF_DATASETS_OFFLINE
    """

    name = "hub-rate-limited"
    title = Text("The Hugging Face Hub refuses: too many requests", "Hugging Face Hub 拒绝访问：请求过于频繁")
    log_words = ("Too Many Requests", "429 Client Error", "429 thrown")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                rf"429 Client Error: (?:Too Many Requests )?for url: ?https?://[\w.-]*{_HUB}"
                rf"|429 Client Error: Too Many Requests for url: ?https?://[\w.-]*{_HUB}"
                rf"|HTTP Error 429 thrown while requesting \w+ https?://[\w.-]*{_HUB}"
                rf"|'429 Too Many Requests' for url '?https?://[\w.-]*{_HUB}"
            ),
            unless=Pattern(r"Retrying in \d"),
        ),
    )
    cause = Text(
        "The Hub was asked too often in a time by this address or account: every process of every node asks it.",
        "该地址或账号在一段时间内请求 Hub 过于频繁：每个节点的每个进程都会请求。",
    )
    cures = (
        Text(
            "Load models and data once into the cache (HF_HOME) of each file system, then export HF_HUB_OFFLINE=1 "
            "HF_DATASETS_OFFLINE=1 for the run",
            "先把模型与数据加载到每个文件系统的缓存（HF_HOME），运行时 export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1",
        ),
        Text(
            "Or hf auth login, for a higher limit, and one process that loads before the others",
            "或用 hf auth login 获得更高的限额，并让一个进程先加载",
        ),
    )
    confirm = Text("The same run works on one node, or some minutes later", "同样的运行在单节点上，或几分钟后可以成功")
