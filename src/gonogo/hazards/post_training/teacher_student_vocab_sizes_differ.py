from gonogo.evidence.config.model import read_model
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_SIZES = Pattern(
    r"The size of tensor \w \((?P<a>[2-9]\d{4}|[1-9]\d{5})\) must match the size of tensor \w "
    r"\((?P<b>[2-9]\d{4}|[1-9]\d{5})\)"
    r"|equal size, but got \[[\d, ]+, (?P<c>[2-9]\d{4}|[1-9]\d{5})\] at entry 0 and "
    r"\[[\d, ]+, (?P<d>[2-9]\d{4}|[1-9]\d{5})\]"
)
_DISTILLS = ("gkd", "distil", "teacher", "minillm", "kd_loss", "jsd", "kl_div", "knowledge")


class TeacherStudentVocabSizesDiffer(LoggedHazard):
    """Distillation compares logits of two models whose (padded) vocabulary sizes differ.
    ## What happens
    "The size of tensor a (151936) must match the size of tensor b (152064) at non-singleton dimension 2", "stack
    expects each tensor to be equal size" in the divergence of GKD, MiniLLM, torchtune or a distillation trainer.
    ## Why
    Models of one family share a tokenizer and yet pad the embedding differently: Qwen2.5 up to 3B has `vocab_size`
    151936, from 7B on 152064. The loss needs one distribution over the same entries.
    ## Example
    ```python
    loss = kl(student_logits, teacher_logits)                                    # wrong: 151936 against 152064
    loss = kl(student_logits, teacher_logits[..., : student_logits.shape[-1]])   # right
    ```
    ## Cure
    Cut the teacher's logits to the student's size (`teacher_logits[..., :student_vocab]`; entries beyond the tokenizer
    are padding), resize, or take a teacher with the same `vocab_size`; for other tokenizers a cross-tokenizer method
    (GOLD, ULD).
    ## When it is safe
    Where `vocab_size` of both config.json is the same.
    ## Sources
    - https://github.com/huggingface/trl/issues/2215: GKD: Qwen2.5-3B and 72B
    - https://github.com/meta-pytorch/torchtune/issues/2119: 14B to 3B, and cutting the logits
    - https://github.com/microsoft/LMOps/issues/286: MiniLLM: 151936 and 152064
    - https://github.com/huggingface/trl/pull/6252: TRL's check
    """

    name = "teacher-student-vocab-sizes-differ"
    title = Text("Teacher and student have vocabularies of different size", "教师与学生模型的词表大小不同")

    log_words = ("must match the size of tensor b", "vocab_size", "equal size")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"(?i)(?:student|teacher).{0,80}vocab(?:ulary)?[ _]?sizes?.{0,60}(?:differ|match|same|share)|(?:same"
                r"|share).{0,40}vocab.{0,60}(?:student|teacher)"
            ),
            Certainty.LIKELY,
        ),
        Sign(_SIZES, types=("RuntimeError",), frames=(_DISTILLS,)),
        Sign(_SIZES, beside=Pattern(r"(?i)distil|teacher|\bGKD\b|\bkd_|minillm|student")),
        Sign(
            Pattern(
                r"The size of tensor \w \((?P<a>15193[0-9]"
                r"|15206[0-9])\) must match the size of tensor \w \((?P<b>15193[0-9]|15206[0-9])\)"
            )
        ),
        Sign(_SIZES, certainty=Certainty.POSSIBLE),
        Sign(
            types=("",),
            frames=(("generalized_jsd_loss", "kl_div", "jsd"), ("gkd", "distil", "teacher")),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The teacher's and the student's logits have different numbers of entries: the models pad the "
        "vocabulary differently.",
        "教师与学生的 logits 条目数不同：两个模型对词表的填充不同。",
    )
    cures = (
        Text(
            "Cut the teacher's logits to the student's vocab_size, or take a teacher with the same vocab_size",
            "把教师的 logits 截到学生的 vocab_size，或选 vocab_size 相同的教师",
        ),
    )
    confirm = (Text("vocab_size differs in the config.json of both models", "两个模型 config.json 的 vocab_size 不同"),)

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The vocabularies of both config.json, where both lie at hand."""
        field = run.arguments.get("teacher_model_name_or_path")
        field = field if field.known else run.arguments.get("teacher_model")
        name = field.string
        if name is None or run.model is None or str(run.arguments.get("rlhf_type").get("gkd")) != "gkd":
            return
        teacher, student = read_model(name, launch.cwd).value("vocab_size"), run.model.value("vocab_size")
        if not isinstance(teacher, int) or not isinstance(student, int) or teacher == student:
            return
        yield self.finding(
            Text(
                "The teacher's vocab_size is {teacher}, the student's {student}: their logits cannot be compared.",
                "教师的 vocab_size 为 {teacher}，学生为 {student}：两者的 logits 无法比较。",
            ).format(teacher=teacher, student=student),
            certainty=Certainty.LIKELY,
            cure=self.cures,
            spans=(field.span(), run.arguments.model.span(), launch.place.span()),
            confirm=Text(
                "The trainer's release neither cuts nor resizes the logits", "该版本的训练器不会截断或调整 logits"
            ),
        )
