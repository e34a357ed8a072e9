from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, translated


class SaveOnlyModelWithBestModelAtEnd(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Both arguments, or a resume from a checkpoint of the folder that this run writes."""
        only = run.arguments.get("save_only_model")
        if only.truth is not True or not run.deepspeed_on or not with_trainer(run):
            return
        best = run.arguments.get("load_best_model_at_end")
        resume = run.arguments.get("resume_from_checkpoint")
        deepspeed = run.config_field.span(translated("DeepSpeed is on"))
        if best.truth is True:
            yield self.finding(
                translated(
                    "save_only_model and load_best_model_at_end are both on, under DeepSpeed: the best checkpoint "
                    "can't be loaded back."
                ),
                cure=translated("Drop save_only_model (save_total_limit limits disk usage), or load_best_model_at_end"),
                spans=(only.span(), best.span(), deepspeed),
            )
            return
        output = run.arguments.get("output_dir").string
        if resume.string and output and resume.string.startswith(output.rstrip("/") + "/"):
            yield self.finding(
                translated(
                    "The run resumes from {resume}, but checkpoints in {output} are written with "
                    "save_only_model: such a checkpoint has no optimizer states, and DeepSpeed can't load it."
                ).format(resume=resume.string, output=output),
                severity=Severity.WARNING,
                certainty=Certainty.POSSIBLE,
                cure=translated(
                    "Resume from a checkpoint that has a global_step folder; drop save_only_model if you plan to "
                    "resume again"
                ),
                spans=(resume.span(), only.span(), deepspeed),
                confirm=translated("ls {resume} shows no global_step folder").format(resume=resume.string),
            )
