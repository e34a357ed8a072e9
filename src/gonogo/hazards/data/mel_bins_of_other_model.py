from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class MelBinsOfOtherModel(LoggedHazard):
    """Spectrograms have as many mel bins as another Whisper takes.
    ## What happens
    "RuntimeError: Given groups=1, weight of size [1280, 128, 3], expected input[8, 80, 3000] to have 128
    channels, but got 80 channels instead", in the encoder's first convolution, at the first step.
    ## Why
    Whisper's sizes up to large-v2 take spectrograms of 80 mel bins, large-v3 and those made of it 128. The
    features were made by another model's feature extractor, by one made without arguments (80), or were kept from
    an earlier run.
    ## Example
    ```python
    WhisperFeatureExtractor()                                           # wrong for large-v3: 80 mel bins
    WhisperFeatureExtractor.from_pretrained("openai/whisper-large-v3")  # right: 128
    ```
    ## Cure
    Make the features by the feature extractor (or processor) of the very model that is trained, and those that
    were kept on disk anew.
    ## When it is safe
    Where the extractor's `feature_size` is the `num_mel_bins` of the model's configuration.
    ## Sources
    - https://github.com/linto-ai/whisper-timestamped/issues/132: 128 expected, 80 given
    - https://github.com/huggingface/transformers/issues/27363: num_mel_bins and feature_size
    """

    name = "mel-bins-of-other-model"
    title = Text("Spectrograms have another model's number of mel bins", "频谱的 mel 通道数属于另一个模型")
    log_words = ("channels, but got",)
    signs = (
        Sign(
            Pattern(
                r"weight of size \[\d+, (?:80|128), 3\], expected input\[(?:\d+, )?(?:80|128), \d+\] to have "
                r"(?P<wants>80|128) channels, but got (?P<got>80|128) channels"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "The model takes spectrograms of {wants} mel bins, and was given {got}: large-v3 and those made of it take "
        "128, the Whispers before it 80.",
        "模型需要 {wants} 个 mel 通道的频谱，得到的是 {got} 个：large-v3 及其衍生模型为 128，之前的 Whisper 为 80。",
    )
    cures = (
        Text(
            "Make the features by the feature extractor of the model that is trained: "
            "WhisperFeatureExtractor.from_pretrained(MODEL); those kept on disk anew",
            "用所训练模型自己的特征提取器生成特征：WhisperFeatureExtractor.from_pretrained(MODEL)；已存盘的特征需重新生成",
        ),
    )
