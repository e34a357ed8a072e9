from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Launch, Pattern, Run, Text, translated

_WEIGHTS_FILE_PATTERN = r"[^\s'\"]*\.(?:bin|pt|pth|ckpt|safetensors)"
_NO_PARENT_PATTERN = Pattern(rf"Parent directory ['\"`]?({_WEIGHTS_FILE_PATTERN})['\"`/]* does not exist")
_FILE_EXISTS_PATTERN = Pattern(rf"File exists: ['\"]({_WEIGHTS_FILE_PATTERN})['\"]")
_IS_FOLDER_PATTERN = Pattern(rf"Is a directory: ['\"]({_WEIGHTS_FILE_PATTERN})/?['\"]")
_SCRIPT_NAME_PATTERN = Pattern(r"zero_to_fp32|convert_zero_checkpoint_to_fp32_state_dict")


class CheckpointZeroToFp32OutputDir(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A call of zero_to_fp32.py whose second argument is a weights file's name."""
        program = launch.program.string
        if program is None or not program.endswith("zero_to_fp32.py"):
            return
        words = launch.options.positional
        value = words[1].value if len(words) > 1 else None
        if value is None or not value.endswith((".bin", ".pt", ".pth", ".ckpt", ".safetensors")):
            return
        release = run.environment.within("deepspeed", ">=0.15.3")
        if release is False:
            return
        folder = value.rpartition("/")[0] or "."
        place = words[1].place
        yield self.finding(
            self.texts["cause"].format(value=value),
            certainty=Certainty.CERTAIN if release else Certainty.LIKELY,
            cure=translated("Pass an output folder: {program} {checkpoint} {folder}").format(
                program=program, checkpoint=words[0].value or "…", folder=folder
            ),
            spans=(place.span(), run.environment.field("deepspeed").span()),
            fixes=self.fix(translated("pass an output folder"), place.edit(folder), safe=False)
            if place.source.writable and place.text == value
            else None,
            confirm=translated("The checkpoint was saved by DeepSpeed 0.15.3 or later"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """An error about an output folder that has the name of a weights file, and doesn't exist or is a file."""
        by_script = log.passes("zero_to_fp32", "convert_zero_checkpoint") or log.find(_SCRIPT_NAME_PATTERN) is not None
        by_script = by_script or log.setup.mentions(_SCRIPT_NAME_PATTERN.text)
        release = log.setup.release_numbers("deepspeed")
        older = release is not None and (*release, 99, 99)[:3] < (0, 15, 3)
        if older:
            return
        if found := log.find(_NO_PARENT_PATTERN):
            certainty = Certainty.CERTAIN if by_script else Certainty.LIKELY
        elif by_script and (found := log.find(_FILE_EXISTS_PATTERN) or log.find(_IS_FOLDER_PATTERN)):
            certainty = Certainty.LIKELY
        else:
            return
        named = next((group for group in found.match.groups() if group), "pytorch_model.bin")
        yield self.log_finding(
            found,
            Text(
                f"{named} was meant as a file; since DeepSpeed 0.15.3 zero_to_fp32.py takes a folder there.",
                f"{named} 本意是文件；DeepSpeed 0.15.3 起 zero_to_fp32.py 在该处需要目录。",
            ),
            certainty=certainty,
            confirm=translated("pip show deepspeed prints 0.15.3 or later, and the failed command was zero_to_fp32.py"),
        )
