from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")
tokenizer.pad_token = tokenizer.eos_token


def collate(rows):
    return tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
