"""Diffusion sampling: a text encoder once, a U-Net twenty times and a decoder once for each pair of images."""

import torch
from torch import nn

torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(4, 16, 3, stride=2, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.up, self.text = nn.ConvTranspose2d(16, 4, 4, stride=2, padding=1), nn.Linear(8, 16)

    def forward(self, latent, time, text):
        middle = self.down(latent).relu() + self.text(text).mean(1)[:, :, None, None] + time
        return self.up(self.middle(middle).relu())


class TextEncoder(nn.Sequential):
    pass


class Decoder(nn.Sequential):
    pass


encoder = TextEncoder(nn.Embedding(50, 8), nn.Linear(8, 8)).to(device).eval()
unet = UNet().to(device).eval()
decoder = Decoder(nn.ConvTranspose2d(4, 3, 8, stride=8)).to(device).eval()
with torch.no_grad():
    for _ in range(100):
        text = encoder(torch.randint(0, 50, (2, 7), device=device))
        # With and without the text, for guidance.
        text = torch.cat([torch.zeros_like(text), text])
        latent = torch.randn(2, 4, 8, 8, device=device)
        for time in torch.linspace(1, 0, 20, device=device):
            empty, told = unet(torch.cat([latent, latent]), time, text).chunk(2)
            latent = latent - 0.05 * (empty + 7.5 * (told - empty))
        images = decoder(latent).clamp(-1, 1)
