from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Severity, Text

_SAID = Pattern(r"tokenization mismatch: (?P<counted>\d{1,6}) vs\.? (?P<there>\d{1,6})")

_NO_LOSS = Pattern(r"'loss': (?:0\.0,|nan)")


class LlavaTokenizationMismatch(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """The warning, and how often it stands there."""
        lines = tuple(log.find_all(_SAID))
        if not lines:
            return
        match = _SAID.search(lines[0].text)
        yield self.log_finding(
            lines[0],
            Text(
                "A conversation was counted as {counted} tokens where it has {there}: all of its labels are masked, "
                "and "
                "it adds nothing to the loss.",
                "一段对话按 {counted} 个 token 计算，实际有 {there} 个：其标签全部被屏蔽，对 loss 没有贡献。",
            ).format(counted=str(match.group("counted")), there=str(match.group("there")))
            if match is not None
            else self.title,
            certainty=Certainty.LIKELY if log.says(_NO_LOSS) else Certainty.POSSIBLE,
            severity=Severity.WARNING,
            cure=(
                Text(
                    "Give --version the template of this model (v1: Vicuna, LLaMA-2; mpt: Qwen, Yi; llama_3), and "
                    "install the "
                    "transformers and tokenizers that the project names",
                    "--version 使用该模型的模板（v1：Vicuna、LLaMA-2；mpt：Qwen、Yi；llama_3），并安装项目指定的 "
                    "transformers 与 "
                    "tokenizers",
                ),
                Text(
                    "Decode one sample's input ids whose labels are not -100: they have to be the answers",
                    "解码一个样本中标签不为 -100 的 input ids：应当正是回答",
                ),
            ),
            confirm=Text(
                "The warning stands there for most samples, and the loss is 0", "大多数样本都有该警告，且 loss 为 0"
            ),
        )
