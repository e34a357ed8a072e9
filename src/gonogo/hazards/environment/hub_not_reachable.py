from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class HubNotReachable(LoggedHazard):
    """What is loaded by name is not cached, and this machine can't reach the Hugging Face Hub.
    ## What happens
    "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached
    files"; "LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub"; "Max retries
    exceeded … host='huggingface.co'"; "OfflineModeIsEnabled"; "ConnectionError: Couldn't reach 'NAME' on the Hub".
    ## Why
    Compute nodes often have no way out, or only by a proxy; HF_HUB_OFFLINE=1 (or TRANSFORMERS_OFFLINE,
    HF_DATASETS_OFFLINE) forbids it. A name that is meant as a folder and does not exist there is looked up on the Hub
    too. A cache of another user, node or HF_HOME does not count.
    ## Example
    ```sh
    HF_HUB_OFFLINE=1 torchrun train.py --model_name_or_path Qwen/Qwen3-8B    # wrong where nothing is cached
    hf download Qwen/Qwen3-8B --local-dir /data/Qwen3-8B    # right: before, where there is a network
    ```
    ## Cure
    Download before, on a machine with a network, into a folder that all nodes see, and name that folder. Or set HF_HOME
    to the cache that has it, https_proxy, or HF_ENDPOINT to a mirror; unset HF_HUB_OFFLINE.
    ## When it is safe
    Where all that a run loads lies in folders or in the cache of every node.
    ## Sources
    - https://github.com/xyz9911/FLAME/issues/2: the offline variable was set in the code
    - https://github.com/BaranziniLab/KG_RAG/issues/46: LocalEntryNotFoundError, without a network
    - https://github.com/instructlab/community/issues/426: training on a machine without a network
    """

    name = "hub-not-reachable"
    title = Text(
        "The Hugging Face Hub can't be reached, and the files are not cached",
        "无法访问 Hugging Face Hub，且本地没有缓存",
    )
    log_words = (
        "couldn't connect to",
        "locate the file on the Hub",
        "Max retries exceeded",
        "OfflineModeIsEnabled",
        "offline mode is enabled",
        "Couldn't reach",
        "local_files_only",
        "outgoing traffic has been disabled",
    )
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"We couldn't connect to 'https?://[^']+' to load|An error happened while trying to locate the "
                r"files? on the "
                r"Hub|Cannot find the requested files in the (?:disk|local) cache and outgoing traffic has been "
                r"disabled"
                r"|cannot find the (?:requested files|appropriate snapshot folder) (?:for the specified revision )"
                r"?(?:in|on) "
                r"the local (?:cache|disk)|Cannot reach https?://\S+: offline mode is enabled"
                r"|OfflineModeIsEnabled|Couldn't reach .{1,200} on the Hub"
            )
        ),
        Sign(
            Pattern(
                r"host='(?:huggingface\.co|hf-mirror\.com|cdn-lfs[\w.-]*|cas-\w+[\w.-]*|(?:www\.)?modelscope\.cn)"
                r"'.{0,80}"
                r"Max retries exceeded|'(?:huggingface\.co|hf-mirror\.com)', port=443\): (?:Max retries|Read timed out)"
            ),
            unless=Pattern(r"Retrying in|thrown while requesting HEAD .{0,300}\n.{0,300}Retrying"),
        ),
    )
    cause = Text(
        "What the run loads by name is not in this machine's cache, and the Hub could not be asked (no network, a "
        "proxy, or "
        "offline mode).",
        "运行按名称加载的内容不在本机缓存中，而又无法访问 Hub（没有网络、需要代理，或处于离线模式）。",
    )
    cures = (
        Text(
            "Download it before, where there is a network (hf download NAME --local-dir FOLDER), and name the "
            "folder on all "
            "nodes",
            "事先在有网络的机器上下载（hf download NAME --local-dir 目录），并在所有节点上使用该目录",
        ),
        Text(
            "Or set HF_HOME to the cache that has it, https_proxy, or HF_ENDPOINT to a mirror; unset HF_HUB_OFFLINE",
            "或把 HF_HOME 指向已有缓存，设置 https_proxy，或把 HF_ENDPOINT 设为镜像；取消 HF_HUB_OFFLINE",
        ),
        Text(
            "Where a folder was meant: check that the path exists on this node, from the working directory of the run",
            "若本意是本地目录：确认该路径在本节点上存在（相对于运行的工作目录）",
        ),
    )
    confirm = Text(
        "curl -I https://huggingface.co from the node fails, or HF_HUB_OFFLINE is 1",
        "在该节点上 curl -I https://huggingface.co 失败，或 HF_HUB_OFFLINE 为 1",
    )
