import torch
