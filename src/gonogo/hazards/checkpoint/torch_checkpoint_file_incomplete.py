from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TorchCheckpointFileIncomplete(LoggedHazard):
    """A .bin, .pt or .pth file is cut off, empty, or no such file at all.
    ## What happens
    "PytorchStreamReader failed reading zip archive: failed finding central directory", "failed locating file
    data.pkl", "invalid header or archive is corrupted", "_pickle.UnpicklingError: invalid load key, 'v'." (a Git LFS
    pointer begins with "version") or "'<'" (an HTML page), "EOFError: Ran out of input" (an empty file).
    ## Why
    torch.save writes a zip archive whose directory stands at the end: a file that was cut off by a broken download, a
    full disk, or a job that was killed while it saved has none. A rank that reads what another rank is still writing
    sees the same.
    ## Example
    ```python
    if rank == 0: torch.save(state, path)
    state = torch.load(path)                         # wrong: the others read while rank 0 writes
    dist.barrier(); state = torch.load(path)         # right
    ```
    ## Cure
    Compare the file's size with the source's and fetch it again; of a checkpoint that was being saved take the one
    before it; between writing on one rank and reading on others: a barrier, or write to a temporary name and rename.
    ## When it is safe
    Where `python -c "import torch; torch.load('FILE', map_location='meta', mmap=True)"` says nothing.
    ## Sources
    - https://github.com/pytorch/pytorch/blob/main/caffe2/serialize/inline_container.cc: where the words come from
    - https://github.com/gaomingqi/Track-Anything/issues/103: a download that was broken off
    - https://github.com/Akegarasu/lora-scripts/issues/180: a training that begins with such a file
    - https://github.com/togethercomputer/OpenChatKit/issues/58: a corrupt file of weights
    """

    name = "torch-checkpoint-file-incomplete"
    title = Text("A file of torch.save is incomplete or not one at all", "torch.save 的文件不完整，或根本不是该格式")
    log_words = ("PytorchStreamReader", "invalid load key", "Ran out of input", "central directory")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"PytorchStreamReader failed (?:reading|locating|reading file)|failed finding central "
                r"directory|invalid header or archive is corrupted"
            ),
            Certainty.CERTAIN,
        ),
        Sign(Pattern(r"invalid load key, '(?:v|<|\\x00)'"), Certainty.LIKELY),
        Sign(Pattern(r"Ran out of input"), types=("EOFError",), frames=(("torch/serialization.py",),)),
        Sign(Pattern(r"Unable to load weights from pytorch checkpoint file"), Certainty.POSSIBLE),
    )
    cause = Text(
        "The file is no whole archive of torch.save: a download, a copy or a save was broken off, or something else "
        "stands in its place.",
        "该文件不是完整的 torch.save 归档：下载、复制或保存被中断，或是别的内容。",
    )
    cures = (
        Text(
            "Compare its size with the source's and fetch it again (in a clone: git lfs pull); of a checkpoint that "
            "was being saved take the one before it",
            "与来源对比大小并重新下载（克隆的仓库：git lfs pull）；保存到一半的检查点改用之前的一个",
        ),
        Text(
            "Where one rank writes and the others read: a barrier between them",
            "一个 rank 写、其他 rank 读时：中间加 barrier",
        ),
    )
    confirm = Text(
        "python -c \"import torch; torch.load('FILE', mmap=True)\" fails on the file alone",
        "单独执行 python -c \"import torch; torch.load('FILE', mmap=True)\" 也失败",
    )
