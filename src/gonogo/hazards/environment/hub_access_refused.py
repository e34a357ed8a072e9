from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class HubAccessRefused(LoggedHazard):
    """The Hub refuses a repository: it is gated, private or misspelt, and no token that may read it was sent.
    ## What happens
    "OSError: You are trying to access a gated repo. Make sure to have access to it at https://huggingface.co/…";
    "GatedRepoError: 401 Client Error", "403 Client Error", "Access to model … is restricted"; "RepositoryNotFoundError:
    401 Client Error … If you are trying to access a private or gated repo, make sure you are authenticated".
    ## Why
    Llama, Gemma, Mistral and others are given after their terms were accepted on the model's page, with an account's
    token. A process of a container, of another node or of a scheduler has no token of yours, unless HF_TOKEN is
    passed on. For a repository that does not exist the Hub says 401 as well.
    ## Example
    ```sh
    torchrun train.py --model_name_or_path meta-llama/Llama-3.1-8B    # wrong without a token
    HF_TOKEN=hf_... torchrun train.py --model_name_or_path meta-llama/Llama-3.1-8B    # right, once access was granted
    ```
    ## Cure
    Accept the terms on the model's page, wait until access is granted; `hf auth login`, or HF_TOKEN in the
    environment of all nodes (a fine-grained token needs leave to read gated repositories). Check the spelling of the
    name. Or download it once and name the folder.
    ## When it is safe
    Where the files lie in a folder or in the cache.
    ## Sources
    - https://github.com/TinyLLaVA/TinyLLaVA_Factory/issues/130: 401, and a token as its cure
    - https://github.com/huggingface/autotrain-advanced/issues/365: access was granted, and the process had no token
    - https://github.com/georgian-io/LLM-Finetuning-Toolkit/issues/158: logged in, and the terms not accepted
    """

    name = "hub-access-refused"
    title = Text("The Hub refuses access to a gated or private repository", "Hub 拒绝访问受限或私有仓库")
    log_words = (
        "gated repo",
        "GatedRepoError",
        "is restricted",
        "is a gated repository",
        "private or gated",
        "not a valid model identifier",
    )
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"You are trying to access a gated repo|Cannot access gated repo|GatedRepoError: 40[13]|Access to "
                r"model \S+ is "
                r"restricted|is a gated repository\. Make sure to request access|awaiting a review from the repo "
                r"authors"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(
                r"If you are trying to access a private or gated repo, make sure you are authenticated"
                r"|RepositoryNotFoundError: 401|Invalid (?:user token|username or password|credentials in "
                r"Authorization)"
                r"|is not a local folder and is not a valid model identifier listed on"
            )
        ),
    )
    cause = Text(
        "The Hub did not hand out the repository: it is gated or private, or has another name, and the process "
        "sent no token "
        "that may read it.",
        "Hub 没有给出该仓库：它是受限或私有的，或名称有误，而进程没有发送有权读取的 token。",
    )
    cures = (
        Text(
            "Accept the terms on the model's page; hf auth login, or HF_TOKEN in the environment of every node and "
            "container",
            "在模型页面接受条款；hf auth login，或在每个节点与容器的环境中设置 HF_TOKEN",
        ),
        Text(
            "Check the name's spelling; a folder that was meant has to exist on this node",
            "检查名称拼写；若本意是目录，它必须在本节点上存在",
        ),
        Text("Or download it once and name the folder", "或事先下载，并使用该目录"),
    )
    confirm = Text(
        "hf download NAME config.json fails in the same environment", "同一环境中 hf download NAME config.json 失败"
    )
