from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class SaveOnlyModelWithBestModelAtEnd(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Both arguments, or a resume from a checkpoint of the folder that this run writes."""
        only = run.arguments.get("save_only_model")
        if only.truth is not True or not run.deepspeed_on or not with_trainer(run):
            return
        best = run.arguments.get("load_best_model_at_end")
        resume = run.arguments.get("resume_from_checkpoint")
        deepspeed = run.config_field.span(Text("DeepSpeed is on", "启用了 DeepSpeed"))
        if best.truth is True:
            yield self.finding(
                Text(
                    "save_only_model and load_best_model_at_end are both on, under DeepSpeed: the best checkpoint "
                    "can't be loaded back.",
                    "在 DeepSpeed 下同时打开了 save_only_model 与 load_best_model_at_end：最好的 checkpoint 无法加载回"
                    "来。",
                ),
                cure=Text(
                    "Drop save_only_model (save_total_limit keeps the disk free), or load_best_model_at_end",
                    "去掉 save_only_model（可用 save_total_limit 控制磁盘占用），或去掉 load_best_model_at_end",
                ),
                spans=(only.span(), best.span(), deepspeed),
            )
            return
        output = run.arguments.get("output_dir").string
        if resume.string and output and resume.string.startswith(output.rstrip("/") + "/"):
            yield self.finding(
                Text(
                    "The run resumes from {resume}, and checkpoints in {output} are written with save_only_model: one "
                    "that was has no optimizer states, and DeepSpeed can't load it.",
                    "本次训练从 {resume} 续训，而 {output} 中的 checkpoint 以 save_only_model 写出：其中没有优化器状态"
                    "，DeepSpeed 无法加载。",
                ).format(resume=resume.string, output=output),
                severity=Severity.WARNING,
                certainty=Certainty.POSSIBLE,
                cure=Text(
                    "Resume from a checkpoint that has a global_step folder; drop save_only_model if more resumes are "
                    "meant",
                    "从含有 global_step 目录的 checkpoint 续训；若之后还要续训，请去掉 save_only_model",
                ),
                spans=(resume.span(), only.span(), deepspeed),
                confirm=Text("ls {resume} shows no global_step folder", "ls {resume} 中没有 global_step 目录").format(
                    resume=resume.string
                ),
            )
