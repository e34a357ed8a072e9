from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class SafetensorsFileIncomplete(LoggedHazard):
    """A .safetensors file is cut off, empty, or no such file at all.
    ## What happens
    "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer" (newer: "incomplete
    metadata, file not fully covered"), "HeaderTooLarge", "HeaderTooSmall", "InvalidHeaderDeserialization", in
    `safe_open` or `load_file` while weights are loaded.
    ## Why
    The header tells how long the file is. A download or a copy that was broken off, a full disk, or a job that was
    killed while it saved leaves less (MetadataIncompleteBuffer). A Git LFS pointer of a few hundred bytes, where the
    repository was cloned without git-lfs, or an HTML page in place of the file has no header at all (HeaderTooLarge).
    ## Example
    ```sh
    git clone https://huggingface.co/Qwen/Qwen3-8B                  # wrong without git-lfs: pointers of 135 bytes
    hf download Qwen/Qwen3-8B --local-dir Qwen3-8B                  # right
    ```
    ## Cure
    Compare the files' sizes with those on the Hub (or those of the rank that saved), delete the short ones and fetch
    them again. Of a checkpoint that was being saved: take the one before it.
    ## When it is safe
    Where `python -c "from safetensors import safe_open; safe_open('FILE', 'pt')"` says nothing of each file.
    ## Sources
    - https://github.com/openpsi-project/ReaLHF/issues/44: while a PPO run loads its model
    - https://github.com/datalab-to/marker/issues/970: the newer words
    - https://github.com/lyogavin/airllm/issues/137: a partial download, by a maintainer
    """

    name = "safetensors-file-incomplete"
    title = Text("A safetensors file is incomplete or not one at all", "safetensors 文件不完整，或根本不是该格式")
    log_words = ("deserializing header",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"while deserializing header: \W*(?:HeaderTooLarge|HeaderTooSmall|InvalidHeader|header too|invalid)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "The file does not begin with a safetensors header: a Git LFS pointer, an error page, or an empty file "
                "stands in its place.",
                "该文件开头不是 safetensors 头：它是 Git LFS 指针、错误页面或空文件。",
            ),
        ),
        Sign(Pattern(r"Error while deserializing header"), Certainty.CERTAIN),
    )
    cause = Text(
        "The file is shorter than its header says: a download, a copy or a save was broken off.",
        "文件比其头部所说的短：下载、复制或保存被中断。",
    )
    cures = (
        Text(
            "Compare the sizes with those on the Hub, delete the short files and fetch them again (hf download; in a "
            "clone git lfs pull)",
            "与 Hub 上的大小对比，删除偏短的文件后重新下载（hf download；克隆的仓库用 git lfs pull）",
        ),
        Text("Of a checkpoint that was being saved: take the one before it", "若是保存到一半的检查点：改用之前的一个"),
    )
