from gonogo.hazards.rollout._settings import find_verl_launch
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated


class RolloutBatchedTokensBelowModelLen(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """verl's prompt and response lengths above ``max_num_batched_tokens``, with chunked prefill off."""
        command = find_verl_launch(launch, run)
        if command is None or command.field("actor_rollout_ref.rollout.enable_chunked_prefill").truth is not False:
            return
        tokens = command.number("actor_rollout_ref.rollout.max_num_batched_tokens")
        prompt, response = command.number("data.max_prompt_length"), command.number("data.max_response_length")
        if tokens is None or prompt is None or response is None or prompt.value + response.value <= tokens.value:
            return
        yield self.finding(
            self.texts["cause"].format(prompt=prompt.value, response=response.value, tokens=tokens.value),
            certainty=Certainty.LIKELY,
            spans=(tokens.span or response.span or prompt.span, response.span, launch.place.span()),
            confirm=translated("The engine's max_model_len is prompt + response length"),
        )
