from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class AutoClassNotForModel(LoggedHazard):
    """The model is loaded through an Auto class that its kind does not belong to.
    ## What happens
    "ValueError: Unrecognized configuration class <class '...Qwen2_5_VLConfig'> for this kind of AutoModel:
    AutoModelForCausalLM. Model type should be one of ...".
    ## Why
    AutoModelForCausalLM knows models of text. Models that read images, sound or video belong to
    `AutoModelForImageTextToText` (in older releases `AutoModelForVision2Seq`), some to a class of their own; a
    framework that is told a model type of text (`--model_type qwen2_5` for a Qwen2.5-VL) does the same. transformers
    knows the model, but not under this class.
    ## Example
    ```python
    AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct")           # wrong
    AutoModelForImageTextToText.from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct")    # right
    ```
    ## Cure
    Load it with `AutoModelForImageTextToText`, or with the class that `architectures` in its config.json names; with
    ms-swift, LLaMA-Factory and the like give the model type and template of the multimodal model.
    ## When it is safe
    Where `transformers.MODEL_FOR_CAUSAL_LM_MAPPING` has the config's class.
    ## Sources
    - https://github.com/Liuziyu77/Visual-RFT/issues/83: a GRPO run with Qwen2-VL
    - https://github.com/modelscope/ms-swift/issues/3001: the model type of the text model was given
    - https://github.com/om-ai-lab/VLM-R1/issues/338: training of a vision-language model
    - https://github.com/Wan-Video/Wan2.1/issues/28: Qwen2.5-VL through AutoModelForCausalLM
    """

    name = "auto-class-not-for-model"
    title = Text("The Auto class does not know the model's kind", "Auto 类不支持该类模型")
    log_words = ("Unrecognized configuration class",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"Unrecognized configuration class <class '(?:[\w.]+\.)?(?P<config>\w+)'> for this "
                r"kind of AutoModel: (?P<auto>\w+)"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "{auto} does not load models of {config}: transformers knows the model, and under another class.",
        "{auto} 不能加载 {config} 的模型：transformers 认识该模型，但属于另一个类。",
    )
    cures = (
        Text(
            "Load it with the class that architectures in its config.json names; models that read images with "
            "AutoModelForImageTextToText",
            "用其 config.json 中 architectures 所写的类加载；读取图像的模型用 AutoModelForImageTextToText",
        ),
        Text(
            "With ms-swift, LLaMA-Factory and the like: the model type and the template of the multimodal model",
            "在 ms-swift、LLaMA-Factory 等框架中：指定多模态模型的 model_type 和 template",
        ),
    )
