import torch


def fit(model, loader, held_out, optimizer):
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            model.eval()
            with torch.no_grad():
                print(sum(model(**one).loss.item() for one in held_out))
