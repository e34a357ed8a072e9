from gonogo.evidence.config.model import read_model
from gonogo.evidence.field import whole_number
from gonogo.hazards.rollout._settings import verl
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutTpNotDividingHeads(LoggedHazard):
    """The engine shards attention by heads, and their number is not a multiple of the tensor-parallel size.
    ## What happens
    "Total number of attention heads (28) must be divisible by tensor parallel size (8)" (vLLM), "assert
    self.total_num_heads % tp_size == 0" (SGLang, older vLLM).
    ## Why
    Each rank of a tensor-parallel group gets whole heads. Qwen2.5-7B has 28, Qwen2.5-1.5B and -VL-3B 12 and 16, so 8 is
    no choice for the first.
    ## Example
    ```sh
    swift rlhf --model Qwen/Qwen2.5-7B --vllm_mode colocate --vllm_tensor_parallel_size 8  # wrong: 28 heads
    swift rlhf --model Qwen/Qwen2.5-7B --vllm_mode colocate --vllm_tensor_parallel_size 4  # right
    ```
    ## Cure
    Take a divisor of the number of heads (`num_attention_heads` in config.json; key-value heads are copied where there
    are fewer), and more data-parallel engines.
    ## When it is safe
    Where num_attention_heads is a multiple of it.
    ## Sources
    - https://github.com/THU-KEG/AdaptThink/issues/1: 28 heads, tensor-parallel size 8
    - https://github.com/MIV-XJTU/FSDrive/issues/21: 12 heads, tensor-parallel size 8
    - https://github.com/vllm-project/vllm/issues/11797: where vLLM checks it
    """

    name = "rollout-tp-not-dividing-heads"
    title = Text(
        "The model's attention heads do not divide by the tensor-parallel size", "模型的注意力头数不能被张量并行数整除"
    )

    log_words = ("attention heads", "total_num_heads", "total_num_kv_heads")
    ends_at = (("vllm/config", "verify_with_parallel_config"),)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"(?:[Nn]umber of "
                r"|[Nn]um )?(?:vision )?attention heads \((?P<heads>\d+)\) must be divisible by (?:the )?tensor "
                r"parallel size \((?P<tp>\d+)\)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "The model has {heads} attention heads, which {tp} ranks cannot share evenly.",
                "模型有 {heads} 个注意力头，无法由 {tp} 个 rank 平分。",
            ),
        ),
        Sign(
            types=("AssertionError", ""),
            frames=(
                ("total_num_heads % ", "num_heads % tp_size", "num_attention_heads % ", "total_num_kv_heads % "),
                ("vllm", "sglang"),
            ),
        ),
    )
    cause = Text(
        "The engine shards attention by heads, and the model's do not divide by the tensor-parallel size.",
        "引擎按头切分注意力，而模型的头数不能被张量并行数整除。",
    )
    cures = (
        Text(
            "Take a tensor-parallel size that divides num_attention_heads of config.json",
            "张量并行数取 config.json 中 num_attention_heads 的约数",
        ),
    )
    confirm = (
        Text(
            "num_attention_heads in the model's config.json is no multiple of the tensor-parallel size",
            "模型 config.json 的 num_attention_heads 不是张量并行数的整数倍",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The engine's size in the command against the heads in the model's config.json."""
        command = verl(launch, run)
        if command is not None:
            field = command.field("actor_rollout_ref.rollout.tensor_model_parallel_size")
            name = command.field("actor_rollout_ref.model.path").string
            model = read_model(name, launch.cwd) if name else None
        else:
            field, model = run.arguments.get("vllm_tensor_parallel_size"), run.model
        size = whole_number(field)
        heads = model.value("num_attention_heads", "n_head") if model is not None else None
        if size is None or size < 2 or not isinstance(heads, int) or heads % size == 0:
            return
        yield self.finding(
            Text(
                "The model has {heads} attention heads, and the engine's tensor-parallel size is {size}: it "
                "refuses to start.",
                "模型有 {heads} 个注意力头，而引擎的张量并行数为 {size}：引擎会拒绝启动。",
            ).format(heads=heads, size=size),
            cure=Text("Take a divisor of {heads}: {divisors}", "取 {heads} 的约数：{divisors}").format(
                heads=heads, divisors=", ".join(str(one) for one in range(1, heads + 1) if heads % one == 0)[:60]
            ),
            spans=(field.span(), launch.place.span()),
        )
