from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.rule import Certainty, Findings, Launch, Run, translated

_RENAMED_KEYS = {"trainer.val_generations_to_log_to_wandb": ("trainer.log_val_generations", "0.3")}
"""verl's renamed keys, with the release that renamed them (verl/trainer/config/ppo_trainer.yaml)."""


class HydraKeyNotInConfigVersion(LoggedHazard):
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
                confirm=() if newer else translated("pip show verl says {since} or newer").format(since=since),
            )
