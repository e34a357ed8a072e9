"""A LLaVA's rows are cut to the longest that fits; from batch 20 on some lose part of a picture's tokens to it.

truth: NO-GO
says: (?i)image features and image tokens do not match|tokens
why: the model holds the number of picture tokens against the number of features.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

PICTURE, LONGEST = 63, 24


class Talks(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        before = [2] * (4 if index < 80 else 14)
        row = (before + [PICTURE] * 16 + [3] * 8)[:LONGEST]
        return torch.tensor(row + [0] * (LONGEST - len(row))), torch.full((3, 32, 32), index / 96)


device = start()
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = LlavaConfig(
    vision_config=CLIPVisionConfig(image_size=32, patch_size=8, **size),
    text_config=LlamaConfig(vocab_size=64, **size),
    image_token_id=PICTURE,
    image_token_index=PICTURE,
    image_seq_length=16,
)
model = DistributedDataParallel(LlavaForConditionalGeneration(config).to(device), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters())
for row, picture in DataLoader(Talks(), batch_size=4):
    row = row.to(device)
    model(input_ids=row, pixel_values=picture.to(device), labels=row).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
