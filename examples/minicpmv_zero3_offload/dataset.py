"""Pictures and questions about them, as MiniCPM-V takes them."""

import json

import torch
from PIL import Image, ImageDraw
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

IGNORE_INDEX = -100


def draw(image):
    """The picture that a row describes: coloured shapes on white."""
    width, height = image["size"]
    picture = Image.new("RGB", (width, height), "white")
    canvas = ImageDraw.Draw(picture)
    for shape in image["shapes"]:
        left, top = shape["at"][0] * width, shape["at"][1] * height
        box = (left, top, left + shape["size"] * width, top + shape["size"] * width)
        if shape["kind"] == "circle":
            canvas.ellipse(box, fill=shape["colour"])
        else:
            canvas.rectangle(box, fill=shape["colour"])
    return picture


def image_placeholder(target_sizes, grid):
    """The tokens that stand for a picture: its overview, then its slices row by row. 16 patches make one token."""
    overview, *slices = [height * width // 16 for height, width in target_sizes.tolist()]
    text = "<image>" + "<|image_pad|>" * overview + "</image>"
    rows, columns = grid
    for row in range(rows):
        if row:
            text += "\n"
        for tokens in slices[row * columns : (row + 1) * columns]:
            text += "<slice>" + "<|image_pad|>" * tokens + "</slice>"
    return text


class SupervisedDataset(Dataset):
    def __init__(self, path, tokenizer, image_processor, max_length):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        image = self.image_processor(draw(row["image"]), return_tensors="pt")
        placeholder = image_placeholder(image["target_sizes"], image["grids"][0])

        input_ids, labels = [], []
        for turn in row["conversations"]:
            head = self.tokenizer(f"<|im_start|>{turn['role']}\n").input_ids
            body = self.tokenizer(turn["content"].replace("<image>", placeholder) + "<|im_end|>\n").input_ids
            input_ids += head + body
            labels += [IGNORE_INDEX] * len(head)
            labels += body if turn["role"] == "assistant" else [IGNORE_INDEX] * len(body)
        if len(input_ids) > self.max_length:
            raise ValueError(f"row {index} has {len(input_ids)} tokens, more than {self.max_length}")
        return {
            "input_ids": torch.tensor(input_ids),
            "labels": torch.tensor(labels),
            "pixel_values": image["pixel_values"],
            "target_sizes": image["target_sizes"],
        }


def data_collator(examples, pad_token_id):
    """Texts are padded; pictures are packed one after the other along the patches."""
    input_ids = pad_sequence([e["input_ids"] for e in examples], batch_first=True, padding_value=pad_token_id)
    return {
        "input_ids": input_ids,
        "labels": pad_sequence([e["labels"] for e in examples], batch_first=True, padding_value=IGNORE_INDEX),
        "attention_mask": input_ids.ne(pad_token_id).long(),
        "pixel_values": torch.cat([e["pixel_values"] for e in examples], dim=-1),
        "target_sizes": torch.cat([e["target_sizes"] for e in examples]),
    }
