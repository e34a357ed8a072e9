import re

from gonogo.hazards.facts.hydra_config import hydra_folder, names_nowhere
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, Script, translated

_RENAMED_KEYS = {"trainer.val_generations_to_log_to_wandb": ("trainer.log_val_generations", "0.3")}
"""verl's renamed keys, with the release that renamed them (verl/trainer/config/ppo_trainer.yaml)."""


_OVERRIDE_PATTERN = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)*=")
"""An override of a key that has to be there: without the prefix ``+``, ``++`` or ``~``, and of no package."""
_ADDS_CONFIGS = (b"ConfigStore", b"SearchPathPlugin", b"searchpath", b"sys.argv", b"override_dirname", b"set_struct")
_CHOOSES_CONFIGS = (
    "config-name",
    "cn",
    "config-path",
    "cp",
    "config-dir",
    "cd",
    "package",
    "p",
    "cfg",
    "c",
    "help",
    "h",
)


class HydraKeyNotInConfigVersion(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Overrides of keys that none of the project's own configs names, where ``hydra.main`` composes only those."""
        launch = run.launch
        if launch is None or not run.scripts or script is not run.scripts[0] or b"hydra.main" not in script.source.data:
            return
        if run.any_script_contains(*_ADDS_CONFIGS) or any(name in launch.options for name in _CHOOSES_CONFIGS):
            return
        if run.environment.within("hydra-core", "<1") is True or (folder := hydra_folder(script)) is None:
            return
        for word in launch.options.positional:
            override = _OVERRIDE_PATTERN.match(word.value or "")
            if override is None or override[1] == "hydra" or not names_nowhere(folder, override[1]):
                continue
            key = override[0].removesuffix("=")
            yield self.finding(
                translated("No config in {folder} has {key}: Hydra refuses the override.").format(
                    folder=folder.name, key=key
                ),
                title=translated("The command overrides a key that the config does not have"),
                cure=translated("Correct the name of {key}, or write +{key}=… if the code reads it").format(key=key),
                spans=(word.place.span(),),
            )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Overrides of keys that verl has renamed, if the installed release is newer."""
        program = launch.program.string or ""
        if not program.endswith(("verl.trainer.main_ppo", "verl/trainer/main_ppo.py")):
            return
        for word in launch.options.positional:
            key = (word.value or "").partition("=")[0]
            if key not in _RENAMED_KEYS:
                continue
            now, since = _RENAMED_KEYS[key]
            newer = run.environment.within("verl", f">={since}")
            if newer is False:
                continue
            yield self.finding(
                translated("verl {since} renamed {key} to {now}: Hydra refuses the override.").format(
                    since=since, key=key, now=now
                ),
                certainty=Certainty.CERTAIN if newer else Certainty.POSSIBLE,
                cure=translated("Use {now} instead").format(now=now),
                spans=(word.place.span(), run.environment.field("verl").span()),
                confirm=translated("pip show verl says {since} or newer").format(since=since),
            )
