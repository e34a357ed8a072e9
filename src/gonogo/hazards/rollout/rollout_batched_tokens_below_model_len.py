from gonogo.hazards.rollout._settings import verl
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutBatchedTokensBelowModelLen(LoggedHazard):
    """Without chunked prefill vLLM takes a whole prompt at once, and its batch of tokens is smaller than that.
    ## What happens
    "max_num_batched_tokens (8192) is smaller than max_model_len (16384). This effectively limits the maximum sequence
    length to max_num_batched_tokens and makes vLLM reject longer sequences", or verl's "Enable chunked prefill,
    max_num_batched_tokens is smaller than max_model_len".
    ## Why
    With chunked prefill off, a prompt is processed in one batch of at most `max_num_batched_tokens` (8192 in verl). A
    longer `max_model_len` (prompt + response) is refused.
    ## Example
    ```sh
    … data.max_response_length=16384 actor_rollout_ref.rollout.enable_chunked_prefill=False                      # wrong
    … data.max_response_length=16384 actor_rollout_ref.rollout.max_num_batched_tokens=18432                      # right
    ```
    ## Cure
    Raise `actor_rollout_ref.rollout.max_num_batched_tokens` to at least `max_prompt_length + max_response_length`, or
    `enable_chunked_prefill=True`.
    ## When it is safe
    With chunked prefill on.
    ## Sources
    - https://docs.vllm.ai/en/latest/configuration/optimization.html: chunked prefill and the batch of tokens
    - https://github.com/verl-project/verl/issues/606: verl with long responses and vLLM
    """

    name = "rollout-batched-tokens-below-model-len"
    title = Text("max_num_batched_tokens is smaller than max_model_len", "max_num_batched_tokens 小于 max_model_len")

    log_words = ("max_num_batched_tokens",)
    anywhere = True
    signs = (
        Sign(
            Pattern(r"max_num_batched_tokens \((?P<batch>\d+)\) is smaller than max_model_len \((?P<length>\d+)\)"),
            Certainty.CERTAIN,
            cause=Text(
                "The engine takes {batch} tokens a batch, and a sequence may have {length}; without chunked "
                "prefill it has to fit.",
                "引擎每批 {batch} 个 token，而序列可达 {length}；未启用 chunked prefill 时必须放得下。",
            ),
        ),
        Sign(
            Pattern(r"Enable chunked prefill, max_num_batched_tokens is smaller than max_model_len"), Certainty.CERTAIN
        ),
    )
    cause = Text(
        "The engine's batch of tokens is smaller than its longest sequence, and chunked prefill is off.",
        "引擎的 token 批次小于最长序列，而 chunked prefill 未启用。",
    )
    cures = (
        Text(
            "Raise max_num_batched_tokens to prompt + response length, or set enable_chunked_prefill=True",
            "把 max_num_batched_tokens 提高到提示加回答的长度，或设 enable_chunked_prefill=True",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """verl's lengths against its batch of tokens, where the command turns chunked prefill off."""
        command = verl(launch, run)
        if command is None or command.field("actor_rollout_ref.rollout.enable_chunked_prefill").truth is not False:
            return
        tokens = command.number("actor_rollout_ref.rollout.max_num_batched_tokens")
        prompt, response = command.number("data.max_prompt_length"), command.number("data.max_response_length")
        if tokens is None or prompt is None or response is None or prompt.value + response.value <= tokens.value:
            return
        yield self.finding(
            Text(
                "A sequence may have {prompt} + {response} tokens, the engine's batch has {tokens}, and chunked "
                "prefill is off.",
                "序列可达 {prompt} + {response} 个 token，引擎每批 {tokens} 个，而 chunked prefill 已关闭。",
            ).format(prompt=prompt.value, response=response.value, tokens=tokens.value),
            certainty=Certainty.LIKELY,
            cure=self.cures,
            spans=(tokens.span or response.span or prompt.span, response.span, launch.place.span()),
            confirm=Text(
                "The engine's max_model_len is prompt + response length", "引擎的 max_model_len 为提示与回答长度之和"
            ),
        )
