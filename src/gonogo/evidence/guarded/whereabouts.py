"""What a rank was doing, by where its main thread stood: in words, with what helps against waiting for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.frame import Frame
from gonogo.finding import Text


class Whereabouts(msgspec.Struct, frozen=True):
    """What a stack says of what is being done, and the cure where that is what others wait for."""

    doing: Text
    cure: Text | None = None


_KNOWN = (
    (
        Pattern(r"utils/data/dataloader\.py.*(?:_next_data|_get_data|_try_get_data|__next__)|data/_utils/fetch\.py"),
        Whereabouts(
            Text("it waits for its next batch (data loading)", "它在等下一个 batch（数据加载）"),
            Text(
                "Make the data come in time on every rank: more or fewer dataloader_num_workers, data on a local disk, "
                "slow samples (long videos, remote files) prepared beforehand",
                "让每个 rank 的数据都能及时到达：调整 dataloader_num_workers、数据放到本地磁盘、提前处理慢样本（长视频"
                "、远程文件）",
            ),
        ),
    ),
    (
        Pattern(r"save_checkpoint|save_pretrained|save_16bit_model|serialization\.py (?:save|_save)|save_file"),
        Whereabouts(
            Text("it saves a checkpoint", "它在保存 checkpoint"),
            Text(
                "Let saving take its time: a larger ddp_timeout, a faster output disk, or no optimizer states "
                "(save_only_model)",
                "给保存留足时间：增大 ddp_timeout、换更快的输出盘，或不保存优化器状态（save_only_model）",
            ),
        ),
    ),
    (
        Pattern(r"torch/utils/file_baton\.py"),
        Whereabouts(
            Text("it waits for the lock of an extension's build", "它在等待扩展编译的锁"),
            Text(
                "Where no process compiles (ps -ef shows no ninja, nvcc or g++), a killed build has left the lock: "
                "stop the run, delete the cache (rm -rf ~/.cache/torch_extensions, or the folder that "
                "TORCH_EXTENSIONS_DIR names), and start again",
                "若没有进程在编译（ps -ef 中没有 ninja、nvcc 或 g++），则锁是被中断的编译留下的：停止训练，删除缓存（"
                "rm -rf ~/.cache/torch_extensions，或 TORCH_EXTENSIONS_DIR 所指的目录），再重新启动",
            ),
        ),
    ),
    (
        Pattern(r"_inductor/|_dynamo/|triton/|cpp_extension\.py|op_builder/|jit_load"),
        Whereabouts(
            Text("it compiles", "它在编译"),
            Text(
                "Compile beforehand on each node, or into a folder that the ranks share (TORCHINDUCTOR_CACHE_DIR, "
                "TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR)",
                "提前在每个节点上编译，或使用各 rank 共享的缓存目录（TORCHINDUCTOR_CACHE_DIR、TRITON_CACHE_DIR、"
                "TORCH_EXTENSIONS_DIR）",
            ),
        ),
    ),
    (
        Pattern(r"datasets/arrow_dataset\.py|datasets/builder\.py|tokenization_utils|main_process_first"),
        Whereabouts(
            Text("it prepares data", "它在预处理数据"),
            Text(
                "Prepare the data before the launch, in a run of its own, so that the ranks read its cache",
                "在启动训练之前单独完成数据预处理，让各 rank 直接读取缓存",
            ),
        ),
    ),
    (
        Pattern(r"huggingface_hub/|requests/|urllib3/|httpx/|http/client\.py|file_download\.py"),
        Whereabouts(
            Text("it waits for the network (a download)", "它在等待网络（下载）"),
            Text(
                "Download beforehand and give the local folder (HF_HUB_OFFLINE=1)",
                "提前下载并给出本地目录（HF_HUB_OFFLINE=1）",
            ),
        ),
    ),
    (
        Pattern(r"pdb\.py|bdb\.py|IPython/|<stdin>"),
        Whereabouts(
            Text("it waits in a debugger or for input", "它停在调试器中或等待输入"),
            Text("Take the breakpoint out, or set it on all ranks", "去掉断点，或在所有 rank 上都设置"),
        ),
    ),
    (
        Pattern(r"in evaluate\b|in evaluation_loop\b|in predict\b|in generate\b"),
        Whereabouts(Text("it evaluates or generates", "它在评估或生成")),
    ),
)


def whereabouts(frames: Sequence[Frame]) -> Whereabouts | None:
    """What the innermost telling frame says; None where no frame is telling."""
    for frame in reversed(frames):
        text = (
            f"{frame.path.replace(chr(92), '/')} in {frame.function} {frame.path.rpartition('/')[2]} {frame.function}"
        )
        for pattern, known in _KNOWN:
            if pattern.search(text):
                return known
    last = frames[-1] if frames else None
    if last is not None and "sleep(" in last.text:
        return Whereabouts(
            Text("it sleeps", "它在 sleep"),
            Text("Take the sleep out, or sleep on all ranks alike", "去掉 sleep，或让所有 rank 一样地等待"),
        )
    return None


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code; a library's where there is none."""
    for owner in ("user", "library"):
        for frame in reversed(frames):
            if frame.owner == owner:
                return frame
    return frames[-1] if frames else None
