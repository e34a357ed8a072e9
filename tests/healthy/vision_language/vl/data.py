import json

from PIL import Image
from torch.utils.data import Dataset


class Samples(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.rows = [json.loads(line) for line in file]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Collator:
    """Every sample has an image, so every rank runs the vision tower."""

    def __init__(self, processor):
        self.processor = processor

    def __call__(self, rows):
        texts = [self.processor.apply_chat_template(row["messages"], tokenize=False) for row in rows]
        images = [Image.open(row["image"]).convert("RGB") for row in rows]
        batch = self.processor(text=texts, images=images, padding=True, return_tensors="pt")
        labels = batch["input_ids"].clone()
        labels[labels == self.processor.tokenizer.pad_token_id] = -100
        batch["labels"] = labels
        return batch
