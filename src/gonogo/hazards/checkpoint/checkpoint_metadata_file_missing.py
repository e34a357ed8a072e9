from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_ABSENT = Pattern(
    r"(?:No such file or directory|[Cc]an(?:no|')t find|not found|does not (?:exist|contain)|[Mm]issing).{0,200}"
    r"(?P<file>\.metadata\b|fsdp_config\.json|metadata\.json|common\.pt\b)"
    r"|(?P<named>\.metadata\b|fsdp_config\.json|common\.pt\b).{0,60}(?:not found|does not exist|is missing)"
)


class CheckpointMetadataFileMissing(LoggedHazard):
    """A merger looks for .metadata, metadata.json, common.pt or fsdp_config.json beside the shards.
    ## What happens
    `FileNotFoundError: ... '.../pytorch_model_fsdp_0/.metadata'`, `... 'fsdp_config.json'`, `... 'common.pt'`, or
    `CheckpointException: ... metadata is None`, when a checkpoint is merged, converted or loaded on other nodes.
    ## Why
    The shards of torch.distributed.checkpoint are of no use without `.metadata`, which rank 0 alone writes, last of
    all: a run that was killed while saving, node-local folders, a copy without hidden files (`cp dir/*`), or a tool
    for another format all miss it.
    ## Example
    ```sh
    cp -r ckpt/pytorch_model_fsdp_0/* merged/           # wrong: the hidden .metadata stays behind
    cp -r ckpt/pytorch_model_fsdp_0/. merged/           # right
    accelerate merge-weights ckpt/pytorch_model_fsdp_0 out
    ```
    ## Cure
    Give the folder that holds .metadata (pytorch_model_fsdp_0 inside the checkpoint), copied whole, hidden files
    too. Use the merger of the framework that wrote it (verl.model_merger, slime's converters), or the checkpoint
    before it, where the save was cut off. On several nodes: save to a shared file system.
    ## When it is safe
    Where all nodes write to one shared folder and the save ended.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/2848: accelerate merge-weights
    - https://github.com/huggingface/accelerate/issues/3010: .metadata on one node alone
    - https://github.com/zz1358m/SofT-GRPO-master/issues/2: verl's own files given to accelerate's merger
    - https://github.com/THUDM/slime/pull/1101: an FSDP checkpoint has no common.pt
    """

    name = "checkpoint-metadata-file-missing"
    title = Text(
        "A converter needs a file of metadata that this checkpoint lacks",
        "转换工具需要的元数据文件在这份 checkpoint 中不存在",
    )
    log_words = (".metadata", "fsdp_config.json", "metadata.json", "common.pt")
    anywhere = True
    signs = (
        Sign(
            says=_ABSENT,
            types=(
                "FileNotFoundError",
                "OSError",
                "AssertionError",
                "CheckpointException",
                "CheckpointingException",
                "ValueError",
            ),
        ),
        Sign(
            says=Pattern(r"(?:metadata is None|No metadata file|not a distributed checkpoint)"),
            types=("AssertionError", "CheckpointException", "CheckpointingException", "ValueError"),
            lines=False,
        ),
        Sign(
            cut=(("checkpoint/filesystem.py", "read_metadata"), ("dist_checkpointing/", "load_content_metadata")),
            within=2,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The tool looks for a file of metadata that this checkpoint does not have{told}.",
        "工具要找的元数据文件在这份 checkpoint 中不存在{told}。",
    )
    cures = (
        Text(
            "Give the folder that holds .metadata (pytorch_model_fsdp_0 inside the checkpoint), copied "
            "whole, hidden files too",
            "指定含有 .metadata 的目录（checkpoint 内的 pytorch_model_fsdp_0），并完整复制，包括隐藏文件",
        ),
        Text(
            "Use the merger of the framework that wrote it (verl.model_merger, slime's converters), or the "
            "checkpoint before it, where the save was cut off",
            "使用写出它的框架的合并工具（verl.model_merger、slime 的转换脚本）；若保存被中断，使用更早的 checkpoint",
        ),
        Text("On several nodes: save to a shared file system", "多节点：保存到共享文件系统"),
    )
    confirm = Text("ls -a of the folder does not show the file", "对该目录 ls -a 看不到该文件")

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the file that is named."""
        groups = match.groupdict() if match is not None else {}
        named = groups.get("file") or groups.get("named")
        return self.cause.format(told=Text(f": {named}", f"：{named}") if named else "")
