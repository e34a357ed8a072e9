from gonogo.evidence.config.model import read_model_config
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated


class TeacherStudentVocabSizesDiffer(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The vocabulary sizes in both config.json files, if both are available locally."""
        field = run.arguments.get("teacher_model_name_or_path")
        field = field if field.known else run.arguments.get("teacher_model")
        name = field.string
        if name is None or run.model is None or str(run.arguments.get("rlhf_type").get("gkd")) != "gkd":
            return
        teacher, student = (
            read_model_config(name, launch.cwd).first_value("vocab_size"),
            run.model.first_value("vocab_size"),
        )
        if not isinstance(teacher, int) or not isinstance(student, int) or teacher == student:
            return
        yield self.finding(
            self.texts["cause"].format(teacher=teacher, student=student),
            certainty=Certainty.LIKELY,
            spans=(field.span(), run.arguments.model.span(), launch.place.span()),
            confirm=translated("This release of the trainer neither truncates nor resizes the logits"),
        )
