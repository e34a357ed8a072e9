from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class PolicyUsedWhileOffloaded(LoggedHazard):
    """A custom loop trains or scores with a policy whose weights were offloaded after the sync with the engine.
    ## What happens
    "train() was called while the policy weights are offloaded to CPU", "… was called while the model parameters are
    still on CPU. Call prepare_for_lp_inference()"; in older releases "CUDA error: an illegal memory access was
    encountered", or operands on cuda and cpu.
    ## Why
    Colocated frameworks move the policy to the CPU between phases (`offload_after_refit`, `finish_inference`,
    param_offload). A loop of one's own that leaves out the matching step calls CUDA kernels on CPU memory.
    ## Example
    ```python
    policy.offload_after_refit(); policy.train(batch)                                   # wrong
    policy.offload_after_refit(); policy.prepare_for_training(); policy.train(batch)    # right
    ```
    ## Cure
    Call `prepare_for_training()` before `train()` and `prepare_for_lp_inference()` before `get_logprobs()` (NeMo-RL);
    in verl load the model to the GPU (`load_fsdp_model_to_gpu`) where param_offload is on.
    ## When it is safe
    Where the policy stays on the GPU.
    ## Sources
    - https://github.com/NVIDIA-NeMo/RL/issues/1141: the illegal memory access that a skipped step gives
    - https://github.com/NVIDIA-NeMo/RL/pull/2392: the message of newer releases
    - https://github.com/NVIDIA-NeMo/RL/pull/3690: the same for all workers
    """

    name = "policy-used-while-offloaded"
    title = Text("The policy is used while its weights are still on the CPU", "策略模型的权重仍在 CPU 上时就被使用")

    log_words = ("offloaded to CPU", "still on CPU", "illegal memory access")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"was called while the (?:policy weights are offloaded|model parameters are still on CPU)"
                r"|Call prepare_for_(?:training|lp_inference)\(\)"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(r"illegal memory access"),
            frames=(("nemo_rl", "policy_worker"), ("get_logprobs", "train", "score")),
            certainty=Certainty.LIKELY,
        ),
        Sign(
            Pattern(r"illegal memory access"),
            beside=Pattern(
                r"offload_after_refit|prepare_for_(?:training|lp_inference)|DTensorPolicyWorker|MegatronPolicyWorker"
            ),
            certainty=Certainty.LIKELY,
        ),
    )
    cause = Text(
        "The policy's weights were moved to the CPU after they had gone to the engine, and the step that "
        "brings them back was left out.",
        "策略模型的权重传给引擎后被移到 CPU，而把它们移回的步骤被遗漏。",
    )
    cures = (
        Text(
            "prepare_for_training() before train(), prepare_for_lp_inference() before get_logprobs() and score()",
            "train() 之前调用 prepare_for_training()，get_logprobs() 与 score() 之前调用 prepare_for_lp_inference()",
        ),
    )
    confirm = (
        Text(
            "With CUDA_LAUNCH_BLOCKING=1 the error is in the policy's first layer; "
            "next(model.parameters()).device is cpu",
            "设 CUDA_LAUNCH_BLOCKING=1 后错误位于策略模型第一层；next(model.parameters()).device 为 cpu",
        ),
    )
