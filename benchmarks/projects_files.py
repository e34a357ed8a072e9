"""What a launch of a public project opens, made here: model folders without weights, tokenizers, rows, images, sound.

``projects.py`` lays these files into a copy of the project. A model has its published configuration at its true size;
its tokenizer has as many entries and the same special tokens, but was trained on nothing (a letter is a token); a file
of data has a few rows with the columns that the project's script reads.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[1] / "tests" / "projects"
_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_TEXT = "Seven men went to sea in a sieve, and what they saw there nobody has written down. "


def lay(folder: Path, prepare: dict[str, Any]) -> None:
    """Make in ``folder`` what ``prepare`` says: models, rows, texts; then the edits."""
    for place, kind in prepare.get("models", {}).items():
        model(folder / place, kind)
    for place in prepare.get("critics", []):
        critic(folder / place)
    for place, kind in prepare.get("rows", {}).items():
        _made(folder / place)
        MAKERS[kind](folder / place)
    for place, kind in prepare.get("lacking", {}).items():  # files of the repository that a mirror of it has not
        if not (folder / place).exists():
            _made(folder / place)
            MAKERS[kind](folder / place)
    for place, text in prepare.get("texts", {}).items():
        _made(folder / place).write_text(text, encoding="utf-8")
    for edit in prepare.get("edits", []):
        path = folder / edit["file"]
        text = path.read_text(encoding="utf-8")
        if edit["from"] not in text:
            raise ValueError(f"{path}: no {edit['from']!r} in it")
        path.write_text(text.replace(edit["from"], edit["to"]), encoding="utf-8")


def critic(folder: Path) -> None:
    """The weights of a reward model, as DeepSpeed-Chat's step 2 leaves them: names and shapes, of no size."""
    import torch
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        weights = AutoModel.from_config(config).state_dict()
    shapes = {f"rwtransformer.{name}": one.shape for name, one in weights.items()}
    shapes["v_head.weight"] = torch.Size([1, config.word_embed_proj_dim])
    zero = torch.zeros((), dtype=torch.float16)
    torch.save({name: zero.expand(shape) for name, shape in shapes.items()}, folder / "pytorch_model.bin")


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _json(path: Path, value: object) -> None:
    _made(path).write_text(json.dumps(value, indent=1), encoding="utf-8")


# Models: the files that a folder holds, out of tests/projects/models.json


def model(folder: Path, kind: str) -> None:
    """A model's folder: each of its JSON files as published, and its tokenizer."""
    described = json.loads((TABLES / "models.json").read_text(encoding="utf-8"))[kind]
    for name, content in described["files"].items():
        _json(folder / name, content)
    tokenizer = described.get("tokenizer")
    if tokenizer is not None:
        {"fast": _fast, "sentencepiece": _sentencepiece, "gpt2": _gpt2}[tokenizer["layout"]](folder, tokenizer)


def _letters() -> list[str]:
    """The 256 letters that stand for bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def _vocabulary(tokenizer: dict[str, Any]) -> dict[str, int]:
    """Special tokens at their numbers, letters and fillers at the rest, up to the size."""
    specials = {text: number for text, number in tokenizer["special"].items() if number < tokenizer["size"]}
    numbers = iter(sorted(set(range(tokenizer["size"])) - set(specials.values())))
    vocabulary = dict(specials)
    for letter in _letters():
        vocabulary[letter] = next(numbers)
    for number in numbers:
        vocabulary[f"filler{number}"] = number
    return vocabulary


def _added(tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [
        {"id": number, "content": text, **plain} for text, number in sorted(tokenizer["special"].items(), key=_second)
    ]


def _second(pair: tuple[str, int]) -> int:
    return pair[1]


def _settings(folder: Path, tokenizer: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"model_max_length": tokenizer.get("length", 32768), **tokenizer["settings"]}
    if tokenizer.get("chat") == "chatml":
        settings["chat_template"] = _CHATML
    if tokenizer["layout"] == "fast":
        settings["added_tokens_decoder"] = {
            str(token.pop("id")): token for token in (dict(token) for token in _added(tokenizer))
        }
    _json(folder / "tokenizer_config.json", settings)
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    _json(folder / "special_tokens_map.json", {name: settings[name] for name in names if settings.get(name)})


def _fast(folder: Path, tokenizer: dict[str, Any]) -> None:
    """``tokenizer.json``, and ``vocab.json`` with ``merges.txt``, which the slow classes read."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    vocabulary = _vocabulary(tokenizer)
    _json(
        folder / "tokenizer.json",
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(tokenizer),
            "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": [],
            },
        },
    )  # fmt: skip
    _gpt2(folder, tokenizer)


def _gpt2(folder: Path, tokenizer: dict[str, Any]) -> None:
    _json(folder / "vocab.json", _vocabulary(tokenizer))
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    _settings(folder, tokenizer)


def _sentencepiece(folder: Path, tokenizer: dict[str, Any]) -> None:
    """``tokenizer.model``: the pieces of LLaMA's order, written as the protocol buffer that sentencepiece reads."""
    normal, unknown, control, byte = 1, 2, 3, 6
    pieces = [("<unk>", unknown), ("<s>", control), ("</s>", control)]
    pieces += [(f"<0x{number:02X}>", byte) for number in range(256)]
    pieces += [(letter, normal) for letter in ["\u2581", *(chr(number) for number in range(33, 127))]]
    pieces += [(f"\u2581filler{number}", normal) for number in range(len(pieces), tokenizer["size"])]
    body = io.BytesIO()
    for text, kind in pieces:
        encoded = text.encode()
        piece = b"\x0a" + _varint(len(encoded)) + encoded + b"\x15" + struct.pack("<f", 0.0) + b"\x18" + _varint(kind)
        body.write(b"\x0a" + _varint(len(piece)) + piece)
    trainer = b"\x18\x02" + b"\x98\x02\x01"  # model_type: BPE; byte_fallback
    normalizer = b"\x0a\x08identity" + b"\x18\x01\x20\x00\x28\x01"
    body.write(b"\x12" + _varint(len(trainer)) + trainer + b"\x1a" + _varint(len(normalizer)) + normalizer)
    _made(folder / "tokenizer.model").write_bytes(body.getvalue())
    _settings(folder, tokenizer)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


# Data: some rows of the columns that a script reads


def _sentences(count: int) -> Iterator[str]:
    for number in range(count):
        yield _TEXT * (1 + number % 5)


def _alpaca(path: Path) -> None:
    rows = [{"instruction": "Tell me a story.", "input": "", "output": text} for text in _sentences(200)]
    _json(path, rows)


def _dialogues(path: Path) -> None:
    said = "The conversation between human and AI assistant.\n[|Human|] Go on.\n[|AI|] {text}\n[|Human|] "
    _json(path, [{"topic": "a story", "input": said.format(text=text)} for text in _sentences(1000)])


def _alpaca_lines(path: Path) -> None:
    rows = [{"instruction": "Tell me a story.", "output": text} for text in _sentences(600)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _pairs_lines(path: Path) -> None:
    rows = [{"prompt": "Human: Go on. Assistant:", "chosen": text, "rejected": text[:40]} for text in _sentences(800)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _sharegpt(path: Path) -> None:
    rows = [
        {"id": f"row{number}", "conversations": [{"from": "human", "value": "Go on."}, {"from": "gpt", "value": text}]}
        for number, text in enumerate(_sentences(400))
    ]
    _json(path, rows)


def _messages_lines(path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": text}]}
        for text in _sentences(400)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _messages_many(path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": text}]}
        for text in _sentences(3000)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _preferences_many(path: Path) -> None:
    def turn(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": text}]

    rows = [{"chosen": turn(text), "rejected": turn(text[:40])} for text in _sentences(3000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _question_lines(path: Path) -> None:
    rows = [{"question": "Go on.", "response": text} for text in _sentences(600)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _png(path: Path) -> None:
    """An image of 448 to 448 pixels, written without a library."""
    size = 448
    line = b"\0" + bytes(value % 251 for value in range(3 * size))

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(line * size)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def _wav(path: Path) -> None:
    """Three seconds of silence, 16 kHz, one channel."""
    data = bytes(2 * 3 * 16000)
    path.write_bytes(
        b"RIFF" + struct.pack("<I", 36 + len(data))
        + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
        + b"data" + struct.pack("<I", len(data)) + data
    )  # fmt: skip


def _speech_lines(path: Path) -> None:
    """Rows of a sound and what is said in it, all of one file beside this one."""
    sound = path.with_name("one.wav")
    _wav(sound)
    audio = {"path": str(sound)}
    rows = [{"audio": audio, "sentence": text[:80], "language": "English", "duration": 3} for text in _sentences(600)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _llava(path: Path) -> None:
    """LLaVA's JSON: rows with an image, and every fourth without."""
    rows = []
    for number, text in enumerate(_sentences(400)):
        row: dict[str, Any] = {"id": str(number)}
        ask = "Go on."
        if number % 4:
            row["image"] = "one.png"
            ask = "<image>\nWhat is it?"
        row["conversations"] = [{"from": "human", "value": ask}, {"from": "gpt", "value": text}]
        rows.append(row)
    _json(path, rows)


def _multiple_choice(path: Path) -> None:
    """MMLU's JSON lines: a question of five shots in some 700 words, its answer a letter."""
    rows = [
        {"subject": "law", "input": 40 * f"{text} A. One B. Two C. Three D. Four Answer: ", "output": "ABCD"[at % 4]}
        for at, text in enumerate(_sentences(8))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _tokens(path: Path) -> None:
    """A million token numbers below 50000, of 16 bits, as nanoGPT's prepare.py writes them."""
    path.write_bytes(b"".join(struct.pack("<H", number * 7919 % 50000) for number in range(1_000_000)))


def _token_rows(path: Path) -> None:
    rows = [{"input_ids": [*range(32, 232)], "label": [*range(32, 232)], "length": 200} for _ in range(64)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _reasoning(path: Path) -> None:
    """Questions with the steps that lead to their answers."""
    rows = [
        {"question": text[:80], "answer": "seven", "steps": [text[:40]] * (1 + at % 4)}
        for at, text in enumerate(_sentences(1000))
    ]
    _json(path, rows)


MAKERS: dict[str, Callable[[Path], None]] = {
    "alpaca": _alpaca,
    "alpaca-lines": _alpaca_lines,
    "dialogues": _dialogues,
    "pairs-lines": _pairs_lines,
    "sharegpt": _sharegpt,
    "messages-lines": _messages_lines,
    "messages-many": _messages_many,
    "preferences-many": _preferences_many,
    "question-lines": _question_lines,
    "png": _png,
    "wav": _wav,
    "speech-lines": _speech_lines,
    "llava": _llava,
    "multiple-choice": _multiple_choice,
    "tokens": _tokens,
    "token-rows": _token_rows,
    "reasoning": _reasoning,
}
