from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ExpandableSegmentsCudaIpc(LoggedHazard):
    """CUDA IPC to a colocated engine needs pidfd_getfd with expandable segments, and kernel or container refuse it.
    ## What happens
    "pidfd_getfd: Operation not permitted", "pidfd_open: Operation not permitted", "The kernel on this machine does not
    support the pidfd_open syscall needed to use IPC for CUDA tensors when expandable_segments:True is set", in
    `_new_shared_cuda` or `rebuild_cuda_tensor`.
    ## Why
    Memory of expandable segments is made by cuMemCreate, and is passed on as a file descriptor: the receiver fetches it
    by `pidfd_getfd`, for which containers need CAP_SYS_PTRACE (or ptrace_scope 0), and kernels before 5.6 have no such
    call.
    ## Example
    ```sh
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True    # wrong, where weights go to the engine by CUDA IPC
    unset PYTORCH_CUDA_ALLOC_CONF                              # right
    ```
    ## Cure
    Train without it: `PYTORCH_CUDA_ALLOC_CONF` (or `PYTORCH_ALLOC_CONF`) without `expandable_segments:True`; or `docker
    run --cap-add=SYS_PTRACE`; `TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0` in torch releases that know it.
    ## When it is safe
    Where engine and trainer are one process, or weights go by NCCL.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/165685: the minimal reproduction
    - https://github.com/verl-project/verl/issues/3377: verl with SGLang
    - https://github.com/OpenRLHF/OpenRLHF/issues/957: an older kernel, and enable_pytorch_expandable_segments
    - https://github.com/alibaba/ROLL/issues/417: pidfd_open in ROLL's worker
    """

    name = "expandable-segments-cuda-ipc"
    title = Text(
        "expandable_segments makes CUDA IPC need a system call that is refused",
        "expandable_segments 使 CUDA IPC 依赖被拒绝的系统调用",
    )

    log_words = ("pidfd_open", "pidfd_getfd", "expandable_segments")
    ends_at = (
        ("torch/storage.py", "_new_shared_cuda"),
        ("torch/multiprocessing/reductions.py", "_share_cuda_"),
        ("torch/multiprocessing/reductions.py", "rebuild_cuda_tensor"),
    )
    anywhere = True
    signs = (
        Sign(
            Pattern(r"pidfd_open syscall needed to use IPC for CUDA tensors when expandable_segments"),
            Certainty.CERTAIN,
        ),
        Sign(Pattern(r"pidfd_(?:open|getfd): ?(?:Operation not permitted|Function not implemented|Bad file|Invalid)")),
        Sign(Pattern(r"pidfd_(?:open|getfd)"), certainty=Certainty.LIKELY),
        Sign(
            types=("",),
            frames=(
                ("_new_shared_cuda", "rebuild_cuda_tensor"),
                ("update_weights_from_tensor", "update_weight", "serialized_named_tensors"),
            ),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "Weights are handed to another process by CUDA IPC, and the trainer's allocator uses expandable "
        "segments: their file descriptor has to be fetched by pidfd_getfd, which this kernel or "
        "container refuses.",
        "权重通过 CUDA IPC 交给另一进程，而训练器的分配器使用可扩展段：其文件描述符需用 pidfd_getfd "
        "取得，而本内核或容器拒绝。",
    )
    cures = (
        Text(
            "Take expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF) of the "
            "trainer's workers",
            "从训练 worker 的 PYTORCH_CUDA_ALLOC_CONF（PYTORCH_ALLOC_CONF）中去掉 expandable_segments:True",
        ),
        Text(
            "Or let the container do it: --cap-add=SYS_PTRACE, kernel 5.6 or newer",
            "或让容器允许：--cap-add=SYS_PTRACE，内核 5.6 或更新",
        ),
    )
    confirm = (
        Text(
            "PYTORCH_CUDA_ALLOC_CONF of the sender's process has expandable_segments:True",
            "发送进程的 PYTORCH_CUDA_ALLOC_CONF 含 expandable_segments:True",
        ),
    )
