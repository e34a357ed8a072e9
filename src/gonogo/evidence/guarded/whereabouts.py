"""What a rank was doing, by where its main thread stood: in words, with what helps against waiting for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.evidence.patterns import Pattern
from gonogo.finding import Text
from gonogo.finding.frame import Frame


class Whereabouts(msgspec.Struct, frozen=True):
    """What a stack says of what is being done, and the cure where that is what others wait for."""

    doing: Text
    cure: Text | None = None


_KNOWN = (
    (
        Pattern(r"utils/data/dataloader\.py.*(?:_next_data|_get_data|_try_get_data|__next__)|data/_utils/fetch\.py"),
        Whereabouts(
            Text("waiting for its next batch (data loading)", "在等下一个 batch（数据加载）"),
            Text(
                "Speed up data loading on every rank: tune dataloader_num_workers, put the data on a local "
                "disk, preprocess slow samples (long videos, remote files)",
                "让每个 rank 的数据都能及时到达：调整 dataloader_num_workers、数据放到本地磁盘、提前处理慢样本（长视频"
                "、远程文件）",
            ),
        ),
    ),
    (
        Pattern(r"save_checkpoint|save_pretrained|save_16bit_model|serialization\.py (?:save|_save)|save_file"),
        Whereabouts(
            Text("saving a checkpoint", "在保存 checkpoint"),
            Text(
                "Allow more time for saving: a larger ddp_timeout, a faster output disk, or no optimizer "
                "states (save_only_model)",
                "给保存留足时间：增大 ddp_timeout、换更快的输出盘，或不保存优化器状态（save_only_model）",
            ),
        ),
    ),
    (
        Pattern(r"torch/utils/file_baton\.py"),
        Whereabouts(
            Text("waiting for the lock of an extension build", "在等待扩展编译的锁"),
            Text(
                "If no process is compiling (ps -ef shows no ninja, nvcc or g++), the lock is left over from "
                "a killed build: stop the run, delete the cache (rm -rf ~/.cache/torch_extensions, or the "
                "folder in TORCH_EXTENSIONS_DIR), and start again",
                "若没有进程在编译（ps -ef 中没有 ninja、nvcc 或 g++），则锁是被中断的编译留下的：停止训练，删除缓存（"
                "rm -rf ~/.cache/torch_extensions，或 TORCH_EXTENSIONS_DIR 所指的目录），再重新启动",
            ),
        ),
    ),
    (
        Pattern(r"_inductor/|_dynamo/|triton/|cpp_extension\.py|op_builder/|jit_load"),
        Whereabouts(
            Text("compiling", "在编译"),
            Text(
                "Compile in advance on each node, or share the compile cache between ranks "
                "(TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR)",
                "提前在每个节点上编译，或使用各 rank 共享的缓存目录（TORCHINDUCTOR_CACHE_DIR、TRITON_CACHE_DIR、"
                "TORCH_EXTENSIONS_DIR）",
            ),
        ),
    ),
    (
        Pattern(r"datasets/arrow_dataset\.py|datasets/builder\.py|tokenization_utils|main_process_first"),
        Whereabouts(
            Text("preprocessing data", "在预处理数据"),
            Text(
                "Preprocess the data in a separate run before the launch, so that the ranks read the cache",
                "在启动训练之前单独完成数据预处理，让各 rank 直接读取缓存",
            ),
        ),
    ),
    (
        Pattern(r"huggingface_hub/|requests/|urllib3/|httpx/|http/client\.py|file_download\.py"),
        Whereabouts(
            Text("waiting for the network (a download)", "在等待网络（下载）"),
            Text(
                "Download in advance and use the local folder (HF_HUB_OFFLINE=1)",
                "提前下载并给出本地目录（HF_HUB_OFFLINE=1）",
            ),
        ),
    ),
    (
        Pattern(r"pdb\.py|bdb\.py|IPython/|<stdin>"),
        Whereabouts(
            Text("waiting in a debugger or for input", "停在调试器中或等待输入"),
            Text("Remove the breakpoint, or set it on all ranks", "去掉断点，或在所有 rank 上都设置"),
        ),
    ),
    (
        Pattern(r"in evaluate\b|in evaluation_loop\b|in predict\b|in generate\b"),
        Whereabouts(Text("evaluating or generating", "在评估或生成")),
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
            Text("sleeping (time.sleep)", "在 sleep"),
            Text("Remove the sleep, or sleep the same time on all ranks", "去掉 sleep，或让所有 rank 等待同样的时间"),
        )
    return None


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code; a library's where there is none."""
    for owner in ("user", "library"):
        for frame in reversed(frames):
            if frame.owner == owner:
                return frame
    return frames[-1] if frames else None
