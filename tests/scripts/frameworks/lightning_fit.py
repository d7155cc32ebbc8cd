"""PyTorch Lightning: a module, loaders for training and validation, two batches accumulated, and a validation each epoch."""

import warnings

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
        self.accuracy = MulticlassAccuracy(5)

    def forward(self, inputs):
        return self.body(inputs)

    def training_step(self, batch, index):
        inputs, target = batch
        loss = nn.functional.cross_entropy(self(inputs), target)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        inputs, target = batch
        self.accuracy(self(inputs), target)
        self.log("accuracy", self.accuracy)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


data = TensorDataset(torch.randn(960, 20), torch.randint(0, 5, (960,)))
trainer = pl.Trainer(
    max_epochs=100, accelerator="auto", devices=1, accumulate_grad_batches=2, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Classifier(), DataLoader(data, 8, shuffle=True), DataLoader(data, 8))
