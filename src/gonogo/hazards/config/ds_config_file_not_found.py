from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.hazards.config._missing_file import missing_config
from gonogo.hazards.rule import (
    Certainty,
    FailureLog,
    Finding,
    Findings,
    Hazard,
    Launch,
    LoggedError,
    Pattern,
    Run,
    Text,
)

_REFUSED = (
    "Expected a string path to an existing deepspeed config",
    "expecting either a path to a DeepSpeed config file or a pre-populated dict",
    "DeepSpeed configuration file could not be found",
)
_RECEIVED = Pattern(r"Received: ?(\S[^\n]{0,300}?)(?:\s|$)")
_BASE64 = Pattern(r"binascii\.Error: (?:Incorrect padding|Invalid base64-encoded string)")
_READS_CONFIG = (
    "HfTrainerDeepSpeedConfig", "HfDeepSpeedConfig", "accelerate/utils/deepspeed.py", "transformers/deepspeed.py",
    "transformers/integrations/deepspeed.py", "deepspeed/runtime/config.py", "urlsafe_b64decode(config",
)  # fmt: skip
_CONFIG_NAME = Pattern(r"(?i)(?:deepspeed|(?:^|[/_.-])ds(?:[_-]|\.)|zero[_-]?[0-3]|stage[_-]?[0-3])[^/]{0,80}\.json\b")


class DsConfigFileNotFound(Hazard):
    """The path of the DeepSpeed JSON does not exist where the program runs.

    ## What happens
    "ValueError: Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string.
    Received: ./scripts/zero2.json", often after "binascii.Error: Incorrect padding" or "Invalid base64-encoded
    string", or "UnicodeDecodeError: 'utf-8' codec can't decode byte".

    ## Why
    The argument may be a path, a dictionary or base64. A path that is no file is taken for base64, and its decoding
    fails: the errors about padding say nothing else. Usual causes: a relative path and another working directory, a
    typo, a quoted `~`, a file that one node lacks, or an option given without a value.

    ## Cure
    Give the absolute path of an existing file, on every node; `ls` it in the directory from which the program starts.

    ## When it is safe
    Where the file is there and is JSON.

    ## Sources
    - https://github.com/haotian-liu/LLaVA/issues/979: a relative path from another directory
    - https://github.com/lm-sys/FastChat/issues/2208: a typo in the path
    - https://github.com/deepspeedai/DeepSpeed/issues/5378: DeepSpeed's own reading of base64
    """

    name = "ds-config-file-not-found"
    title = Text(en="The DeepSpeed JSON is not where its path says", zh="DeepSpeed JSON 不在所给的路径")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A path that is no file in the folder where the launch runs."""
        yield from missing_config(self, launch, run)

    log_words = (*_REFUSED, "urlsafe_b64decode", "Incorrect padding", "Invalid base64-encoded string")

    def in_log(self, log: FailureLog) -> Findings:
        """The refusal, the failed decoding under a frame that reads the config, or a missing file of such a name."""
        if evidence := first_match(log, *_REFUSED):
            received = _RECEIVED.search(matched_text(log, evidence))
            path = received.group(1) if received and "{" not in received.group(1) else None
            yield self._found(evidence, path, Certainty.CERTAIN)
            return
        for error in log.errors:
            decoding = error.type == "UnicodeDecodeError" or "binascii" in error.raised.qualified
            decoding = decoding or (error.type == "JSONDecodeError" and error.passes("json.loads(config_file_or_dict)"))
            if decoding and error.passes(*_READS_CONFIG):
                yield self._found(error, None, Certainty.CERTAIN)
                return
            if decoding and error.users_frame is not None:  # the program decodes something of its own
                return
            missing = _CONFIG_NAME.search(error.message)
            if missing and error.type == "FileNotFoundError":
                yield self._found(error, missing.group(0), Certainty.LIKELY)
                return
        if cut := first_match(log, "urlsafe_b64decode(config"):  # a traceback that was quoted without its end
            yield self._found(cut, None, Certainty.LIKELY)
        elif found := log.find(_BASE64):
            deepspeed = log.setup.mentions("(?i)deepspeed") or log.has("deepspeed") or log.has("DeepSpeed")
            yield self._found(found.line, None, Certainty.LIKELY if deepspeed else Certainty.POSSIBLE)

    def _found(self, evidence: LoggedError | LogLine, path: str | None, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            Text(
                en="{path} is no file where the program runs, so it was taken for base64 text or not found at all.",
                zh="在程序运行处，{path} 不是一个文件，因此被当作 base64 文本，或直接找不到。",
            ).format(path=path or Text("The DeepSpeed config that was given", "所给的 DeepSpeed 配置")),
            cure=(
                Text(
                    en="Give the absolute path of an existing file (on every node); check with ls in the working "
                    "directory of the launch",
                    zh="给出确实存在的绝对路径（每个节点都要有）；在启动时的工作目录中用 ls 核对",
                ),
            ),
            certainty=certainty,
            confirm=(Text("ls PATH fails in the launch's directory", "在启动目录中 ls 该路径会失败"),),
        )
