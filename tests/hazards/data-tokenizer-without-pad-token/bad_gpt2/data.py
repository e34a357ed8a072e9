from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")


def collate(rows):
    return tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
