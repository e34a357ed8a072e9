from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutMaxModelLenExceeded(LoggedHazard):
    """A prompt is longer than the engine's `max_model_len`, or prompt plus response than the model's context.
    ## What happens
    "The decoder prompt (length 3353) is longer than the maximum model length of 2560", "Prompt length of 4834 is longer
    than the maximum model length of 4096", "model context length should be greater than total sequence length", "This
    model's maximum context length is 4096 tokens".
    ## Why
    Trainers set the engine's `max_model_len` to the prompt length plus the completion length that were configured. Chat
    templates, image tokens and earlier turns come on top of what a filter counted; and two lengths may together pass
    the model's `max_position_embeddings`.
    ## Example
    ```sh
    python -m verl.trainer.main_ppo data.max_prompt_length=2048 data.max_response_length=8192  # wrong for 4096
    python -m verl.trainer.main_ppo data.max_prompt_length=1024 data.max_response_length=3072  # right
    ```
    ## Cure
    Filter or truncate prompts as the engine counts them (with chat template and image tokens), raise the prompt length
    or `max_model_len`, bound `max_pixels`, and shorten the response length until both fit the model's context.
    ## When it is safe
    Where the longest prompt with its template and images plus the response is at most `max_model_len`, and that at most
    the model's context.
    ## Sources
    - https://github.com/ritzz-ai/GUI-R1/issues/32: images make the prompt longer than the sum of both lengths
    - https://github.com/verl-project/verl/issues/1873: 2048 + 8192 tokens for a model of 4096
    - https://github.com/huggingface/trl/issues/3569: TRL: 3353 tokens against 2560
    - https://github.com/unslothai/unsloth/issues/2666: max_seq_length 256 beside max_prompt_length 1024
    """

    name = "rollout-max-model-len-exceeded"
    title = Text(
        "A prompt, or prompt and response, is longer than the engine's context",
        "提示（或提示加回答）超过引擎的上下文长度",
    )

    ends_at = (
        ("", "max_position_embeddings >= config.prompt_length"),
        ("vllm/", "_validate_model_input"),
        ("vllm/", "_validate_prompt_len"),
    )
    log_words = (
        "too long and exceeds limit",
        "maximum model length",
        "maximum context length",
        "model context length",
        "maximum allowed length",
        "derived max_model_len",
        "leaves no room for generation",
    )
    anywhere = True
    signs = (
        Sign(Pattern(r"model context length should be greater than total sequence length"), Certainty.CERTAIN),
        Sign(
            Pattern(
                r"[Pp]rompt (?:\(?length (?:of )?)?(?P<length>\d+)\)? is longer than the maximum model length of "
                r"(?P<limit>\d+)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "A prompt of {length} tokens is given to an engine whose max_model_len is {limit}: chat "
                "template, images and earlier turns count too.",
                "长度为 {length} 的提示交给了 max_model_len 为 {limit} 的引擎：对话模板、图像与之前的轮次也计算在内。",
            ),
        ),
        Sign(
            Pattern(
                r"Input length \((?P<length>\d+)\) leaves no room for generation with max_model_len \((?P<limit>\d+)\)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "A prompt of {length} tokens leaves no room for an answer in a max_model_len of {limit}: chat "
                "template, images and earlier turns count too.",
                "长度为 {length} 的提示在 max_model_len {limit} 中没有留下回答的空间：对话模板、图像与之前的轮次也"
                "计算在内。",
            ),
        ),
        Sign(
            Pattern(
                r"is longer than the maximum model length"
                r"|[Ii]nput prompt \(\d+ tokens\) is too long and exceeds limit of"
                r"|This model's maximum context length is \d+ tokens"
                r"|is longer than the model's context length|exceeds the (?:maximum allowed length"
                r"|model's maximum context length)"
                r"|User-specified max_model_len \(\d+\) is greater than the derived max_model_len"
                r"|[Mm]ax prompt length .* exceeds|prompt.* exceeds? max_model_len|max_model_len.* (?:is|be) (?:less"
                r"|smaller) than .*prompt"
            )
        ),
    )
    cause = Text(
        "What the engine is given, or is to reach with its response, is longer than its max_model_len or "
        "the model's context.",
        "交给引擎的内容（或加上回答后的长度）超过其 max_model_len 或模型的上下文。",
    )
    cures = (
        Text(
            "Filter or truncate prompts as the engine counts them: with chat template, image tokens and "
            "earlier turns (verl: data.filter_overlong_prompts=True)",
            "按引擎的计数方式过滤或截断提示：含对话模板、图像 token 与之前的轮次（verl："
            "data.filter_overlong_prompts=True）",
        ),
        Text(
            "Raise the prompt length or max_model_len, lower max_pixels, or shorten the response; prompt + "
            "response may not pass the model's max_position_embeddings",
            "增大提示长度或 max_model_len，降低 max_pixels，或缩短回答；提示加回答不得超过模型的 "
            "max_position_embeddings",
        ),
    )
    confirm = (
        Text(
            "The longest prompt, tokenized with template and images, is longer than max_model_len less the response",
            "带模板与图像分词后，最长的提示超过 max_model_len 减去回答长度",
        ),
    )
