"""Does the tangent kernel of my network exist? One line each for five kinds of networks.

A vision transformer, a residual network with group norm, a BERT with what its tokenizer gives, a network with ten
outputs, and an LSTM, whose parameters are left to plain autograd. Replace them by your own.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification

import projnorm as pn

torch.manual_seed(0)
images, tokens = torch.randn(12, 3, 32, 32), torch.randint(1, 500, (12, 16))
batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "num_labels": 1}


class Residual(nn.Module):
    """A convolution with group norm, beside a shortcut."""

    def __init__(self, channels: int) -> None:
        """As many channels in as out."""
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both."""
        return x + torch.relu(self.norm(self.conv(x)))


class Last(nn.Module):
    """The last state of an LSTM, read as one number."""

    def __init__(self) -> None:
        """Rows of pixels go in."""
        super().__init__()
        self.lstm, self.head = nn.LSTM(96, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From images, row by row."""
        return self.head(self.lstm(x.movedim(2, 1).flatten(2))[0][:, -1])


vit = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, **small)).eval()
resnet = nn.Sequential(nn.Conv2d(3, 8, 3), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)).eval()
bert = BertForSequenceClassification(BertConfig(vocab_size=500, **small)).eval()
ten = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.GELU(), nn.Linear(64, 10)).eval()
kernels = {
    "vision transformer": pn.gram(vit, images),
    "group norm": pn.gram(resnet, images),
    "BERT": pn.gram(bert, batch),
    "ten outputs": pn.gram(ten, images),
    "LSTM": pn.gram(Last().eval(), images),
}
for name, kernel in kernels.items():
    print(f"{name}: {kernel}")

figure, axes = plt.subplots(1, len(kernels), figsize=(10, 2.4), layout="constrained")
for axis, (name, kernel) in zip(axes, kernels.items(), strict=True):
    axis.imshow(kernel.train / kernel.train.max(), cmap="cividis")
    axis.set(title=name, xticks=[], yticks=[])
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "kernels_of_networks.png", dpi=80)
