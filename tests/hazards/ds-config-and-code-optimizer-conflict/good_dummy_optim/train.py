from accelerate import Accelerator
from accelerate.utils import DummyOptim
from transformers import AutoModelForCausalLM

from data import loader


def main():
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("models/qwen2-1.5b")
    optimizer = DummyOptim(model.parameters(), lr=2e-5)
    model, optimizer, train = accelerator.prepare(model, optimizer, loader())
    for batch in train:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()


main()
