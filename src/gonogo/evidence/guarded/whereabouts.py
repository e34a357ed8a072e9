"""Describe what a rank is doing from the stack of its main thread, and how to avoid that others wait for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gonogo.evidence.patterns import Pattern
from gonogo.finding import Text, translated
from gonogo.finding.frame import Frame


class StackActivity(msgspec.Struct, frozen=True):
    """The activity that a stack shows, and the cure if others wait for it."""

    doing: Text
    cure: Text | None = None


_KNOWN_FRAMES = (
    (
        Pattern(r"utils/data/dataloader\.py.*(?:_next_data|_get_data|_try_get_data|__next__)|data/_utils/fetch\.py"),
        StackActivity(
            translated("waiting for its next batch (data loading)"),
            translated(
                "Speed up data loading on every rank: tune dataloader_num_workers, put the data on a local "
                "disk, preprocess slow samples (long videos, remote files)"
            ),
        ),
    ),
    (
        Pattern(r"save_checkpoint|save_pretrained|save_16bit_model|serialization\.py (?:save|_save)|save_file"),
        StackActivity(
            translated("saving a checkpoint"),
            translated(
                "Allow more time for saving: a larger ddp_timeout, a faster output disk, or no optimizer "
                "states (save_only_model)"
            ),
        ),
    ),
    (
        Pattern(r"torch/utils/file_baton\.py"),
        StackActivity(
            translated("waiting for the lock of an extension build"),
            translated(
                "If no process is compiling (ps -ef shows no ninja, nvcc or g++), the lock is left over from "
                "a killed build: stop the run, delete the cache (rm -rf ~/.cache/torch_extensions, or the "
                "folder in TORCH_EXTENSIONS_DIR), and start again"
            ),
        ),
    ),
    (
        Pattern(r"_inductor/|_dynamo/|triton/|cpp_extension\.py|op_builder/|jit_load"),
        StackActivity(
            translated("compiling"),
            translated(
                "Compile in advance on each node, or share the compile cache between ranks "
                "(TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR)"
            ),
        ),
    ),
    (
        Pattern(r"datasets/arrow_dataset\.py|datasets/builder\.py|tokenization_utils|main_process_first"),
        StackActivity(
            translated("preprocessing data"),
            translated("Preprocess the data in a separate run before the launch, so that the ranks read the cache"),
        ),
    ),
    (
        Pattern(r"huggingface_hub/|requests/|urllib3/|httpx/|http/client\.py|file_download\.py"),
        StackActivity(
            translated("waiting for the network (a download)"),
            translated("Download in advance and use the local folder (HF_HUB_OFFLINE=1)"),
        ),
    ),
    (
        Pattern(r"pdb\.py|bdb\.py|IPython/|<stdin>"),
        StackActivity(
            translated("waiting in a debugger or for input"),
            translated("Remove the breakpoint, or set it on all ranks"),
        ),
    ),
    (
        Pattern(r"in evaluate\b|in evaluation_loop\b|in predict\b|in generate\b"),
        StackActivity(translated("evaluating, or generating text")),
    ),
)


def activity_in_stack(frames: Sequence[Frame]) -> StackActivity | None:
    """What a process is doing, by the innermost recognized frame of its stack; None if none is recognized."""
    for frame in reversed(frames):
        text = (
            f"{frame.path.replace(chr(92), '/')} in {frame.function} {frame.path.rpartition('/')[2]} {frame.function}"
        )
        for pattern, known in _KNOWN_FRAMES:
            if pattern.search(text):
                return known
    last = frames[-1] if frames else None
    if last is not None and "sleep(" in last.text:
        return StackActivity(
            translated("sleeping (time.sleep)"), translated("Remove the sleep, or sleep for the same time on all ranks")
        )
    return None


def innermost_user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code, or else of a library, or else the innermost frame."""
    for owner in ("user", "library"):
        for frame in reversed(frames):
            if frame.owner == owner:
                return frame
    return frames[-1] if frames else None
