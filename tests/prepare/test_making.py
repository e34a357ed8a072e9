"""What prepare makes: models' folders, tokenizers, rows, and the folder that holds them."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from prepare.published import all_models
from tokenizers import Tokenizer
from transformers import CONFIG_MAPPING

from gonogo.evidence.prepared import FOLDER, MANIFEST, PreparedStandIns, read_prepared
from gonogo.evidence.published.datasets import published_dataset
from gonogo.evidence.published.models import (
    TokenizerLayout,
    processor_files,
    published_model,
    similar_model_names,
    tokenizer_layout,
)
from gonogo.finding import UserError
from gonogo.prepare.folder import write_prepared_folder
from gonogo.prepare.generated.data_files import encode_rows, hub_dataset_files, png_image
from gonogo.prepare.generated.model_folder import model_files
from gonogo.prepare.generated.rows import FORMATS, RowGenerator, format_from_columns, generate_text
from gonogo.prepare.generated.sentencepiece import sentencepiece_model
from gonogo.prepare.generated.tokenizer import tokenizer_files
from gonogo.prepare.generated.vocabulary import merges_for_layout, tokens_by_id

LAYOUTS = sorted({model.tokenizer for model in all_models() if model.tokenizer})


def _last_ordinary(layout: TokenizerLayout) -> int:
    """The highest id that is no special token's: it has to have a row in the embedding."""
    special = layout.special_tokens()
    return next(number for number in reversed(range(layout.size)) if number not in special)


def test_the_table_is_whole() -> None:
    assert len(all_models()) >= 550
    of_transformers = [model for model in all_models() if "_class_name" not in model.config]  # as diffusers' have
    without = {model.model_type for model in of_transformers if model.tokenizer is None}
    assert without == {"vit", "siglip", "dinov2", "swin", "resnet", "wav2vec2", "hubert", "wavlm"}
    last = {name: _last_ordinary(tokenizer_layout(name)) for name in LAYOUTS}
    for model in of_transformers:
        assert model.model_type in CONFIG_MAPPING, model.name
        assert model.config["architectures"], model.name
        assert model.source, model.name
        if model.tokenizer is not None:
            size = model.config.get("vocab_size") or model.config["text_config"].get("vocab_size", 0)
            assert last[model.tokenizer] < size, model.name


def test_a_model_of_diffusers_is_its_configuration_alone() -> None:
    model = published_model("stabilityai/sd-vae-ft-mse")
    assert model is not None
    files = model_files(model)
    assert list(files) == ["config.json"]
    assert json.loads(files["config.json"])["_class_name"] == "AutoencoderKL"


def test_the_table_ships_small() -> None:
    folder = Path(__file__).parents[2] / "src" / "gonogo" / "evidence" / "tables" / "published"
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 350_000


def test_models_are_known_by_hub_names_and_by_folders() -> None:
    known = published_model("Qwen/Qwen2.5-7B")
    assert known is not None
    assert known.config["hidden_size"] == 3584
    for name in ("qwen/qwen2.5-7b", "/data/models/Qwen2.5-7B", "./Qwen2.5-7B/", "../x/y/Qwen2.5-7B"):
        assert published_model(name) == known, name
    for name in ("someone/Qwen2.5-7B", "/data/models/mine", "Qwen/Qwen-7B", ""):
        assert published_model(name) is None, name
    assert "Qwen/Qwen2.5-7B" in similar_model_names("Qwen2.5-7")


def test_a_mirror_of_modelscope_is_the_model_that_it_holds() -> None:
    """ModelScope's own name of Meta's model; what a mirror holds that isn't in the table stays unknown."""
    known = published_model("meta-llama/Meta-Llama-3.1-8B-Instruct")
    assert known is not None
    assert published_model("LLM-Research/Meta-Llama-3.1-8B-Instruct") == known
    judge = published_model("AI-ModelScope/Skywork-Reward-Llama-3.1-8B-v0.2")
    assert judge is not None
    assert judge.config["architectures"] == ["LlamaForSequenceClassification"]
    assert published_model("LLM-Research/nothing-of-the-kind") is None


@pytest.mark.parametrize("name", LAYOUTS)
def test_special_tokens_stand_where_they_are_published(name: str) -> None:
    layout = tokenizer_layout(name)
    tokens = tokens_by_id(layout, merges_for_layout(layout)[0])
    assert len(tokens) == layout.size == len(set(tokens))
    special = layout.special_tokens()
    assert all(tokens[number] == token for number, token in special.items())
    for role in (layout.bos, layout.eos, layout.pad):
        assert role is None or role in special.values()


@pytest.mark.parametrize("name", ["smollm2", "llama2", "t5", "bert", "clip"])
def test_a_word_of_two_letters_is_a_token(name: str) -> None:
    files = tokenizer_files(tokenizer_layout(name))
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    assert tokenizer.get_vocab_size() == tokenizer_layout(name).size
    words = generate_text(40, 7)
    ids = tokenizer.encode(words, add_special_tokens=False).ids
    assert len(ids) == 40
    assert tokenizer.decode(ids).strip().lower() == words
    said = "Größe: 12 → 好!"
    if name in ("smollm2", "llama2"):  # what falls back on bytes can say anything
        assert tokenizer.decode(tokenizer.encode(said, add_special_tokens=False).ids).strip() == said


@pytest.mark.parametrize("name", ["smollm2", "llama2", "t5"])
def test_a_letter_behind_a_blank_is_a_token_as_an_answer_is(name: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_files(tokenizer_layout(name))["tokenizer.json"].decode())
    assert [len(tokenizer.encode(f"ab {letter}", add_special_tokens=False).ids) for letter in "ADaz"] == [2, 2, 2, 2]


def _fields(data: bytes) -> list[tuple[int, bytes | int]]:
    """The fields of a protocol buffer's message."""
    found: list[tuple[int, bytes | int]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            length = 4 if key & 7 == 5 else varint()
            found.append((key >> 3, data[at : at + length]))
            at += length
    return found


def test_the_file_of_sentencepiece_holds_all_tokens() -> None:
    layout = tokenizer_layout("llama2")
    singles, merges = merges_for_layout(layout)
    tokens = tokens_by_id(layout, [*singles, *("".join(merge) for merge in merges)])
    fields = _fields(sentencepiece_model(layout, tokens))
    pieces = [dict(_fields(value)) for field, value in fields if field == 1 and isinstance(value, bytes)]
    assert [piece[1] for piece in pieces] == [token.encode() for token in tokens]
    assert [piece[3] for piece in pieces[:4]] == [2, 3, 3, 6]  # unknown, control, control, a byte
    trainer = dict(_fields(next(value for field, value in fields if field == 2 and isinstance(value, bytes))))
    assert (trainer[3], trainer[4], trainer[40], trainer[41], trainer[42]) == (2, 32000, 0, 1, 2)


def test_the_file_of_sentencepiece_names_its_first_and_last_token() -> None:
    """The library finds them by name (``SentencePieceProcessor.bos_id``): <s>, where the file has no other."""
    layout = tokenizer_layout("gemma")
    tokens = tokens_by_id(layout, ["a", "b"])
    fields = _fields(sentencepiece_model(layout, tokens))
    trainer = dict(_fields(next(value for field, value in fields if field == 2 and isinstance(value, bytes))))
    assert (trainer[41], trainer[42]) == (2, 1)
    assert (trainer[45], trainer[46], trainer[47], trainer[48]) == (b"<unk>", b"<bos>", b"<eos>", b"<pad>")


def test_a_vision_model_has_its_processor() -> None:
    model = published_model("Qwen/Qwen2.5-VL-7B-Instruct")
    assert model is not None
    files = model_files(model)
    assert {"config.json", "tokenizer.json", "preprocessor_config.json", "generation_config.json"} <= files.keys()
    assert json.loads(files["preprocessor_config.json"]) == processor_files("qwen2_5_vl")["preprocessor_config.json"]
    assert json.loads(files["tokenizer_config.json"])["processor_class"] == "Qwen2_5_VLProcessor"


@pytest.mark.parametrize("name", FORMATS)
def test_rows_have_the_tokens_that_were_asked_for(name: str) -> None:
    maker = RowGenerator(FORMATS[name], 400, {"image": "picture.png", "audio": "sound.wav"})
    rows = [maker.row(number) for number in range(4)]
    assert all(row.keys() == FORMATS[name].keys() for row in rows)
    assert rows == [maker.row(number) for number in range(4)]
    if name not in ("images", "speech", "preference-chat", "preference"):
        assert 400 * 0.7 < _words(rows[1]) < _words(rows[0]) < 400 * 1.2


def test_what_is_chosen_and_what_is_rejected_differ_in_the_last_answer_alone() -> None:
    row = RowGenerator(FORMATS["preference-chats"], 400, {}).row(3)
    assert row["chosen"][:-1] == row["rejected"][:-1]
    assert row["chosen"][-1] != row["rejected"][-1]


def _words(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_words(item) for item in value.values())
    if isinstance(value, list):
        return sum(_words(item) for item in value)
    return len(value.split()) if isinstance(value, str) and " " in value else 0


def test_formats_are_told_by_columns() -> None:
    assert format_from_columns(("input_ids", "conversations", "from", "value", "prompt")) == "sharegpt"
    assert format_from_columns(("instruction", "output")) == "alpaca"
    assert format_from_columns(("chosen", "rejected", "text")) == "preference"
    assert format_from_columns(("input_ids",)) is None


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".txt", ".parquet"])
def test_data_files_are_read_by_datasets(tmp_path: Path, suffix: str) -> None:
    from datasets import load_dataset

    maker = RowGenerator(FORMATS["alpaca"], 30, {})
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(encode_rows(path.name, [maker.row(number) for number in range(3)]))
    kind = {".jsonl": "json", ".txt": "text"}.get(suffix, suffix[1:])
    rows = load_dataset(kind, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(rows) == 3 or (suffix == ".txt" and len(rows) > 3)  # of which one text has several lines
    assert rows.column_names == (["text"] if suffix == ".txt" else ["instruction", "input", "output"])


def test_a_data_set_of_the_hub_has_its_splits_subsets_and_pictures(tmp_path: Path) -> None:
    from datasets import load_dataset

    known = published_dataset("linxy/LaTeX_OCR")
    assert known is not None
    (tmp_path / "picture.png").write_bytes(png_image(8, 6))
    maker = RowGenerator(known.columns, 20, {"image": str(tmp_path / "picture.png")})
    for name, content in hub_dataset_files(known.columns, [maker.row(0)], known.splits, ("small", "full")).items():
        path = tmp_path / "data set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    rows = load_dataset(str(tmp_path / "data set"), "full", split="validation", cache_dir=str(tmp_path / "cache"))
    assert rows[0]["image"].size == (8, 6)
    assert Image.open(io.BytesIO(png_image(8, 6))).size == (8, 6)


def first_made_row(folder: Path, dataset: str, tokens: int) -> Any:
    """A published data set's first row as it is made with a picture, read back by datasets."""
    from datasets import load_dataset

    known = published_dataset(dataset)
    assert known is not None
    (folder / "picture.png").write_bytes(png_image(8, 6))
    maker = RowGenerator(known.columns, tokens, {"image": str(folder / "picture.png")})
    for name, content in hub_dataset_files(known.columns, [maker.row(0)], known.splits, ()).items():
        path = folder / "data set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return load_dataset(str(folder / "data set"), split="train", cache_dir=str(folder / "cache"))[0]


def test_finevisions_rows_are_exchanges_on_pictures(tmp_path: Path) -> None:
    row = first_made_row(tmp_path, "HuggingFaceM4/FineVision", 40)
    assert [one.size for one in row["images"]] == [(8, 6)]
    assert [set(one) for one in row["texts"]] == [{"user", "assistant"}] * 2
    assert len(row["relevance_ratings"]) == len(row["texts"])


def test_messages_in_parts_name_a_picture_once(tmp_path: Path) -> None:
    row = first_made_row(tmp_path, "HuggingFaceH4/llava-instruct-mix-vsft", 20)
    assert [one.size for one in row["images"]] == [(8, 6)]
    kinds = [[part["type"] for part in message["content"]] for message in row["messages"]]
    assert kinds == [["text", "image"], ["text"], ["text"], ["text"]]
    assert "<image>" not in str(row["messages"])


def test_the_folder_is_whole_and_never_the_users(tmp_path: Path) -> None:
    folder = write_prepared_folder(tmp_path, {"models/a/config.json": b"{}"}, PreparedStandIns({"a/a": "models/a"}))
    assert read_prepared(folder) == PreparedStandIns({"a/a": "models/a"})
    write_prepared_folder(tmp_path, {"models/b/config.json": b"{}"}, PreparedStandIns({"b/b": "models/b"}))
    assert read_prepared(folder) == PreparedStandIns({"a/a": "models/a", "b/b": "models/b"})
    write_prepared_folder(tmp_path, {"models/a/other.json": b"{}"}, PreparedStandIns({"a/a": "models/a"}))
    files = sorted(str(path.relative_to(folder)) for path in (folder / "models").rglob("*.json"))
    assert files == ["models/a/other.json", "models/b/config.json"]
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]
    (folder / MANIFEST).unlink()
    with pytest.raises(UserError, match="was not created by gonogo"):
        write_prepared_folder(tmp_path, {}, PreparedStandIns())
    assert (folder / "models" / "b" / "config.json").exists()


@pytest.mark.slow
def test_a_base_model_has_the_chat_template_that_it_was_published_with() -> None:
    for name, has in (
        ("meta-llama/Meta-Llama-3-8B", False),
        ("meta-llama/Meta-Llama-3-8B-Instruct", True),
        ("meta-llama/Llama-2-7b-hf", False),
        ("meta-llama/Llama-2-7b-chat-hf", True),
        ("mistralai/Mistral-7B-v0.1", False),
        ("google/gemma-2b-it", True),
        ("Qwen/Qwen2.5-7B", True),
    ):
        model = published_model(name)
        assert model is not None
        config = json.loads(model_files(model)["tokenizer_config.json"])
        assert ("chat_template" in config) is has, name


def test_a_file_of_token_numbers_has_small_ones_at_either_width() -> None:
    data = encode_rows("data/train.bin", [{"text": "of to in it is be as at"} for _ in range(100)])
    for width in ("H", "I"):
        numbers = [number for (number,) in struct.iter_unpack(f"<{width}", data)]
        assert len(set(numbers)) > 10
        assert max(numbers) < 50


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("google/siglip-base-patch16-224", 203), ("google/siglip2-so400m-patch14-384", 1136),
        ("bigcode/starcoder", 15517), ("bigcode/starcoder2-15b", 15958), ("01-ai/Yi-1.5-9B", 8829),
        ("mistralai/Mistral-Nemo-Base-2407", 12248), ("mistralai/Ministral-8B-Instruct-2410", 8020),
        ("Qwen/Qwen3-Embedding-8B", 7567), ("allenai/OLMoE-1B-7B-0924", 6919), ("state-spaces/mamba-2.8b-hf", 2768),
        ("bert-base-multilingual-cased", 178), ("bert-base-chinese", 102), ("xlm-roberta-large", 560),
        ("microsoft/deberta-v3-base", 184), ("answerdotai/ModernBERT-large", 396), ("facebook/bart-large", 406),
        ("facebook/wav2vec2-xls-r-1b", 963), ("facebook/dinov2-giant", 1136), ("microsoft/resnet-50", 25.56),
        ("google/vit-huge-patch14-224-in21k", 632), ("microsoft/swin-base-patch4-window7-224", 88),
        ("openai/clip-vit-base-patch32", 151), ("llava-hf/llava-v1.6-mistral-7b-hf", 7567),
        ("Qwen/Qwen3.5-0.8B", 853), ("Qwen/Qwen3.5-2B", 2213), ("Qwen/Qwen3.5-4B", 4539), ("Qwen/Qwen3.5-9B", 9410),
    ],
)  # fmt: skip
def test_models_have_their_published_size(name: str, millions: float) -> None:
    import torch
    import transformers

    model = published_model(name)
    assert model is not None
    config = CONFIG_MAPPING[model.model_type].from_dict(dict(model.config))
    with torch.device("meta"):
        whole = getattr(transformers, model.config["architectures"][0])(config)
    assert sum(one.numel() for one in whole.parameters()) / 1e6 == pytest.approx(millions, rel=0.004)


@pytest.mark.parametrize("name", ["google/siglip-base-patch16-224", "google/vit-base-patch16-384"])
def test_pictures_have_the_size_that_the_model_takes(name: str) -> None:
    model = published_model(name)
    assert model is not None
    edge = int(name.rpartition("-")[2])
    assert json.loads(model_files(model)["preprocessor_config.json"])["size"] == {"height": edge, "width": edge}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "framed"),
    [
        ("bert-cased", "[CLS] ab CD [SEP]"), ("bert-chinese", "[CLS] ab cd 好 [SEP]"), ("mpnet", "<s> ab cd </s>"),
        ("xlm-r", "<s> ab CD</s>"), ("deberta-v3", "[CLS] ab CD[SEP]"), ("modernbert", "[CLS]ab CD[SEP]"),
        ("bart", "<s>ab CD</s>"), ("codet5", "<s>ab CD</s>"), ("mt5", "ab CD</s>"), ("starcoder", "ab CD"),
    ],
)  # fmt: skip
def test_a_text_stands_between_the_tokens_that_an_encoder_puts_there(tmp_path: Path, name: str, framed: str) -> None:
    from transformers import AutoTokenizer

    for file, content in tokenizer_files(tokenizer_layout(name)).items():
        (tmp_path / file).write_bytes(content)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == tokenizer_layout(name).size
    assert tokenizer.decode(tokenizer("ab CD 好" if "好" in framed else "ab CD")["input_ids"]) == framed
