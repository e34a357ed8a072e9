import argparse

import torch
from sentence_transformers import SentenceTransformer


def embeddings_of(texts):
    model = SentenceTransformer("all-MiniLM-L6-v2", device="cuda")
    found = model.encode(texts, batch_size=256, convert_to_tensor=True)
    return torch.nn.functional.normalize(found, p=2, dim=1).cpu()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--embeddings", default=None)
    args = parser.parse_args()
    if args.embeddings is None:
        embeddings = torch.nn.functional.normalize(embeddings_of(open("texts.txt").read().splitlines()), dim=1)
        torch.save(embeddings, "embeddings.pt")
    else:
        embeddings = torch.load(args.embeddings)
    print(embeddings.shape)
