"""Six models of the zoo as anybody would train them: torch, torchvision and timm, and nothing of profzoo."""

import sys

import torch
from timm.models.resnetv2 import resnetv2_50
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision.models import inception_v3, mobilenet_v2, vgg16
from torchvision.models.segmentation import deeplabv3_resnet50


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(300, 64, batch_first=True), nn.Linear(64, 2)

    def forward(self, words):
        return self.head(self.lstm(words)[1][0][-1])


def classify(network, batch=8, size=224, classes=1000):
    return network, batch, (3, size, size), (), classes


MODELS = {
    "mobilenetv2": lambda: classify(mobilenet_v2(weights=None)),
    "vgg16": lambda: classify(vgg16(weights=None)),
    "resnetv2_50": lambda: classify(resnetv2_50(num_classes=1000)),
    "inceptionv3": lambda: classify(inception_v3(weights=None, init_weights=False), size=299),
    "deeplab": lambda: (
        deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21, aux_loss=True), 2, (3, 256, 256), (256, 256), 21
    ),
    "lstm": lambda: (Sentiment(), 10, (256, 300), (), 2),
}  # fmt: skip

name = sys.argv[1]
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
network, batch, size, target_size, classes = MODELS[name]()
samples = [(torch.randn(size), torch.randint(classes, target_size)) for _ in range(2 * batch)] * 500
network.to(device)
kind = {"vgg16": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=5e-4)}.get(name, torch.optim.Adam)
optimizer = kind(network.parameters())
for inputs, target in DataLoader(samples, batch_size=batch, drop_last=True):
    inputs, target = inputs.to(device, non_blocking=True), target.to(device, non_blocking=True)
    outputs = network(inputs)
    if name == "inceptionv3":
        loss = cross_entropy(outputs[0], target) + 0.3 * cross_entropy(outputs[1], target)
    elif name == "deeplab":
        loss = cross_entropy(outputs["out"], target) + 0.5 * cross_entropy(outputs["aux"], target)
    else:
        loss = cross_entropy(outputs, target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
