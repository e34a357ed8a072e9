import json

import torch
from torch.utils.data import Dataset


class Supervised(Dataset):
    def __init__(self, path, tokenizer):
        self.rows = json.load(open(path))
        self.tokenizer = tokenizer

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        ids = self.tokenizer(self.rows[index]["text"], return_tensors="pt", truncation=True).input_ids[0]
        return dict(input_ids=ids, labels=ids.clone())


def make_data(tokenizer, path):
    def collate(rows):
        ids = torch.nn.utils.rnn.pad_sequence(
            [row["input_ids"] for row in rows], batch_first=True, padding_value=tokenizer.pad_token_id
        )
        labels = torch.nn.utils.rnn.pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
        return dict(input_ids=ids, labels=labels, attention_mask=ids.ne(tokenizer.pad_token_id))

    return dict(train_dataset=Supervised(path, tokenizer), eval_dataset=None, data_collator=collate)
