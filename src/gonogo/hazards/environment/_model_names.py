"""The names by which transformers knows models: families, model types, and their classes."""

from gonogo.evidence.patterns import Pattern
from gonogo.finding import Text

_MODEL_FAMILY_PATTERN = (
    r"qwen|llama|mllama|mistral|mixtral|ministral|pixtral|voxtral|gemma|paligemma|t5gemma|phi|chatglm|glm"
    r"|internlm|internvl"
    r"|baichuan|deepseek|minicpm|minimax|olmo|cohere|aya_vision|starcoder|stablelm|falcon|mamba|jamba|bamba|zamba|llava"
    r"|idefics|smol|granite|gpt_oss|gpt_neox|gpt_bigcode|gptj|nemotron|exaone|kimi|ernie|bailing|hunyuan|dbrx"
    r"|dots1|seed_oss"
    r"|arcee|recurrent_gemma|persimmon|fuyu|kosmos|blip|instructblip|siglip|modernbert|colpali|colqwen|janus"
    r"|emu3|molmo|ovis"
    r"|florence|whisper|moonshine|bloom|opt|mpt|codegen|yi|aquila|xverse|telechat|apertus|lfm|longcat|step3"
)
FAMILIES = (
    r"Qwen|Llama|Mllama|Mistral|Mixtral|Ministral|Pixtral|Gemma|PaliGemma|Phi|Glm|ChatGLM|InternLM|InternVL|Llava"
    r"|MiniCPM|Deepseek|DeepseekV|Olmo|Cohere|Falcon|Mamba|Idefics|SmolVLM|SmolLM|Granite|GptOss|GPTNeoX|GPT2|Nemotron"
    r"|Kimi|Ernie|Whisper|Bert|Roberta|XLMRoberta|ModernBert|T5|Bart|Blip|Clip|CLIP|Siglip|Florence|Bloom|OPT|Yi|Baichuan"
)
"""Prefixes of the names of model classes."""
MODEL_TYPE_PATTERN = Pattern(rf"^'?((?:{_MODEL_FAMILY_PATTERN})\d*(?:[._-]\w+)*)'?$")
"""A model type, such as qwen2_vl."""
MODEL_CLASS_PATTERN = Pattern(
    r"'([A-Z]\w*(?:For(?:CausalLM|ConditionalGeneration|SequenceClassification|TokenClassification|Vision2Seq)"
    r"|(?:Qwen|Llama|Mllama|Mistral|Mixtral|Gemma|Phi|Glm|Internlm|InternVL|Llava|MiniCPM|Deepseek)\w*"
    r"(?:Config|Model|Tokenizer(?:Fast)?|Processor|ImageProcessor(?:Fast)?|DecoderLayer|Attention)))'"
)
"""A quoted class name of a model."""


def model_type_label(kind: str) -> Text:
    """The label of a model whose config.json has this ``model_type``."""
    return Text(f"model_type {kind}", f"model_type 为 {kind}")
