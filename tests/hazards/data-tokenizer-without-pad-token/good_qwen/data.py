from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")


def collate(rows):
    return tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
