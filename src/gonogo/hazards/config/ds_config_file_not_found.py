import os
from pathlib import Path

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.paths import is_folder, may_exist
from gonogo.hazards.facts.nearest import find_similar_file_name
from gonogo.hazards.rule import Certainty, Edit, Field, Finding, Findings, Hazard, Launch, Pattern, Run, translated

_CONFIG_NOT_FOUND_MESSAGES = (
    "Expected a string path to an existing deepspeed config",
    "expecting either a path to a DeepSpeed config file or a pre-populated dict",
    "DeepSpeed configuration file could not be found",
)
_RECEIVED_PATH_PATTERN = Pattern(r"Received: ?(\S[^\n]{0,300}?)(?:\s|$)")
_BASE64_ERROR_PATTERN = Pattern(r"binascii\.Error: (?:Incorrect padding|Invalid base64-encoded string)")
_CONFIG_READING_FRAMES = (
    "HfTrainerDeepSpeedConfig", "HfDeepSpeedConfig", "accelerate/utils/deepspeed.py", "transformers/deepspeed.py",
    "transformers/integrations/deepspeed.py", "deepspeed/runtime/config.py", "urlsafe_b64decode(config",
)  # fmt: skip
_CONFIG_NAME_PATTERN = Pattern(
    r"(?i)(?:deepspeed|(?:^|[/_.-])ds(?:[_-]|\.)|zero[_-]?[0-3]|stage[_-]?[0-3])[^/]{0,80}\.json\b"
)


_SUFFIXES = (".json", ".jsonc", ".json5", ".yaml", ".yml")


class DsConfigFileNotFound(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A path that does not exist relative to the folder in which the launch runs."""
        field = launch.deepspeed_config
        written = field.string
        if run.config is not None or not written or not written.endswith(_SUFFIXES) or {"{", "\n"} & {*written}:
            return
        path = launch.path_of(field)
        if path is None or _may_be_present(path) or os.path.normpath(path) in launch.written_files:
            return
        if os.path.isabs(os.path.expanduser(written)) and not is_folder(path.parent):
            return  # a path on another machine
        alike = find_similar_file_name(path, _SUFFIXES)
        typed = not launch.source.writable
        elsewhere = _is_in_parent_folder(launch, written)
        if elsewhere and not typed:
            return  # valid relative to another working folder, from which the launch may be started
        made = any(os.fsencode(path.name) in script.source.data for script in run.scripts)
        if made or launch.source.data.count(os.fsencode(path.name)) > 1:
            return  # other code names the file too, and may create it
        new = os.path.join(os.path.dirname(written), alike)
        edit = _replace_path(launch, field, new) if alike and not os.path.isabs(written) else None
        sure = typed or launch.cwd_known
        yield self.finding(
            self.texts["cause_in_launch"].format(written=written, path=path),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY if alike else Certainty.POSSIBLE,
            cure=(translated("Pass {new} instead: that file exists").format(new=new) if alike else self.texts["cure"]),
            spans=field.span(),
            fixes=self.fix(translated("Pass {new} instead").format(new=new), edit, safe=False) if edit else None,
        )

    log_words = (*_CONFIG_NOT_FOUND_MESSAGES, "urlsafe_b64decode", "Incorrect padding", "Invalid base64-encoded string")

    def in_log(self, log: FailureLog) -> Findings:
        """The error, failed decoding under a frame that reads the config, or a missing file with such a name."""
        if evidence := first_match(log, *_CONFIG_NOT_FOUND_MESSAGES):
            received = _RECEIVED_PATH_PATTERN.search(matched_text(log, evidence))
            path = received.group(1) if received and "{" not in received.group(1) else None
            yield self._build_finding(evidence, path, Certainty.CERTAIN)
            return
        for error in log.errors:
            decoding = error.type == "UnicodeDecodeError" or "binascii" in error.raised.qualified
            decoding = decoding or (error.type == "JSONDecodeError" and error.passes("json.loads(config_file_or_dict)"))
            if decoding and error.passes(*_CONFIG_READING_FRAMES):
                yield self._build_finding(error, None, Certainty.CERTAIN)
                return
            if decoding and error.last_user_frame is not None:  # the program decodes something of its own
                return
            missing = _CONFIG_NAME_PATTERN.search(error.message)
            if missing and error.type == "FileNotFoundError":
                quoted = (part for part in error.message.split("'") if missing.group(0) in part)
                yield self._build_finding(error, next(quoted, missing.group(0)), Certainty.LIKELY)
                return
        if cut := first_match(log, "urlsafe_b64decode(config"):  # a traceback without its end
            yield self._build_finding(cut, None, Certainty.LIKELY)
        elif found := log.find(_BASE64_ERROR_PATTERN):
            deepspeed = log.setup.mentions("(?i)deepspeed") or log.has("deepspeed") or log.has("DeepSpeed")
            yield self._build_finding(found.line, None, Certainty.LIKELY if deepspeed else Certainty.POSSIBLE)

    def _build_finding(self, evidence: LoggedError | LogLine, path: str | None, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            self.texts["not_found_cause"].format(path=path or translated("The DeepSpeed config that was given")),
            certainty=certainty,
        )


def _may_be_present(path: Path) -> bool:
    return may_exist(path)


def _is_in_parent_folder(launch: Launch, config_path: str) -> bool:
    """Whether a parent folder has the file at that path: people start scripts from the project root."""
    folder = launch.cwd
    for _ in range(3):
        folder = folder.parent
        if _may_be_present(folder / config_path):
            return True
    return False


def _replace_path(launch: Launch, field: Field, new: str) -> Edit | None:
    for name in ("deepspeed", "deepspeed_config", "deepspeed_config_file"):
        for options in (launch.options, launch.launcher_options):
            if name in options and options.can_edit(name) and options.get(name).value == field.value:
                return options.replacing(name, new)
    return None
