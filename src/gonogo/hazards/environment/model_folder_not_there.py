from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_PATH = r"(?P<path>(?:\.{0,2}/|~|[A-Za-z]:\\|[^'/\s]+/[^'/\s]+/)[^'\n]*)"
_TELL = Text(
    "ls the path on the node, and in the container, where the rank runs",
    "在该 rank 所在的节点和容器中执行 ls 查看该路径",
)


class ModelFolderNotThere(LoggedHazard):
    """A path is given as the model, and there is no such folder where the process runs.
    ## What happens
    "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/data/models/Qwen3-8B'",
    "OSError: Incorrect path_or_model_id: '/data/models/Qwen3-8B'", "Can't load tokenizer for '/data/…'". The message
    speaks of the Hub; the cause is the disk.
    ## Why
    What is no folder is taken for a repository's name. The path is misspelt; relative, and the program was started from
    elsewhere; it begins with `~`, which only a shell resolves; it is not mounted in the container, or lies on another
    node's disk; the download or the stage that should have written it failed. Where the folder is there, a file that is
    asked of it isn't (peft: adapter_config.json).
    ## Example
    ```python
    AutoModelForCausalLM.from_pretrained("~/models/Qwen3-8B")                        # wrong
    AutoModelForCausalLM.from_pretrained(os.path.expanduser("~/models/Qwen3-8B"))    # right
    ```
    ## Cure
    Name an absolute path that every node and container has; mount it (`-v /data:/data`); expand `~`. Look into it:
    config.json and the tokenizer's files have to be there.
    ## When it is safe
    A name of the Hub, such as Qwen/Qwen3-8B, or a folder that is there on all nodes.
    ## Sources
    - https://github.com/huggingface/trl/issues/3604: a path that another node or container did not have
    - https://github.com/PRIME-RL/TTRL/issues/25: a path with ~ in verl's options
    - https://github.com/microsoft/LMOps/issues/71: the model was never downloaded there
    - https://github.com/QwenAudio/FunMusic/issues/27: a relative path
    - https://github.com/X-Square-Robot/wall-x/issues/43: config.json appended to the name
    """

    name = "model-folder-not-there"
    title = Text("The model's path is no folder where the process runs", "进程所在之处没有该模型路径")
    log_words = ("Repo id must", "Incorrect path_or_model_id", "is the correct path to a directory")
    anywhere = True
    signs = (
        Sign(Pattern(rf"Repo id must (?:be in the form|use alphanumeric chars)[^\n]*: '{_PATH}'")),
        Sign(Pattern(rf"Incorrect path_or_model_id: '{_PATH}'")),
        Sign(
            Pattern(
                r"Can't load (?:tokenizer|image processor|feature extractor|processor|the model|the configuration|"
                rf"the configuration of)\b[^\n]*'{_PATH}' is the correct path to a directory"
            ),
            Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "{path} is no folder with such files where this process runs, so that it is taken for a repository's name.",
        "在该进程所在之处，{path} 不是含有这些文件的目录，因此被当作仓库名。",
    )
    cures = (
        Text(
            "Check the path on every node and in the container (ls {path}); give an absolute one, mounted there",
            "在每个节点和容器中检查该路径（ls {path}）；使用已挂载的绝对路径",
        ),
        Text(
            "Expand ~ (os.path.expanduser, or $HOME in the shell): libraries don't",
            "展开 ~（os.path.expanduser，或在 shell 中用 $HOME）：库不会展开它",
        ),
    )
    confirm = _TELL

    def in_script(self, script: Script, run: Run) -> Findings:
        """A path with ``~`` that nothing resolves."""
        for call in script.calls("*.from_pretrained", "vllm.LLM", "*.snapshot_download"):
            given = call.argument(0)
            if given.string is not None and given.string.startswith("~/"):
                yield self.finding(
                    Text(
                        "`{path}` is not resolved by Python: it is taken for the name of a repository, and refused.",
                        "Python 不会展开 `{path}`：它会被当作仓库名而遭拒绝。",
                    ).format(path=given.string),
                    certainty=Certainty.LIKELY,
                    cure=self.cures[1],
                    spans=call.place.span(),
                    confirm=self.confirm,
                )
