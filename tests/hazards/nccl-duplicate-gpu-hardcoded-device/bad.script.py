device = torch.device("cuda:0")
model = Net().to(device)
