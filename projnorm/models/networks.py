"""ResNet18, ResNet50 and VGG11 with torchvision's module names, so that its weight files load, and a small CNN."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

IMAGENET_CLASSES = 1000


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, channels_in: int, channels: int, stride: int, downsample: nn.Module | None) -> None:
        """`channels_in` to `channels`; `downsample` brings the shortcut to the same shape."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(n, channels_in, h, w)`` to ``(n, channels, h / stride, w / stride)``."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, and a shortcut; the stride is on the 3x3."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int, downsample: nn.Module | None) -> None:
        """`channels_in` to ``4 * channels``; `downsample` brings the shortcut to the same shape."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(n, channels_in, h, w)`` to ``(n, 4 * channels, h / stride, w / stride)``."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    """He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016)."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], blocks: tuple[int, int, int, int], num_outputs: int
    ) -> None:
        """`blocks` of the given kind in each of the four stages."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(block, 64, 64, blocks[0], stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, blocks[1], stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, blocks[2], stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, num_outputs)
        _draw_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images of shape ``(n, 3, h, w)`` to outputs of shape ``(n, num_outputs)``."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    """Simonyan and Zisserman, "Very Deep Convolutional Networks" (ICLR 2015), without batch norm."""

    def __init__(self, widths: tuple[int | None, ...], num_outputs: int) -> None:
        """One 3x3 convolution per entry of `widths`; ``None`` is a pooling layer."""
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in widths:
            if width is None:
                layers.append(nn.MaxPool2d(2, stride=2))
            else:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(channels * 49, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, num_outputs),
        )
        _draw_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images of shape ``(n, 3, h, w)`` to outputs of shape ``(n, num_outputs)``."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class SmallCNN(nn.Module):
    """Three strided 3x3 convolutions with batch norm, and pooling: enough for the digits data on one core."""

    def __init__(self, num_outputs: int, widths: tuple[int, int, int] = (32, 64, 128)) -> None:
        """`widths` are the channels of the three convolutions."""
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in widths:
            layers += [
                nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(4 * channels, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Images of shape ``(n, 3, h, w)`` to outputs of shape ``(n, num_outputs)``."""
        return self.fc(torch.flatten(self.avgpool(self.features(x)), 1))


def resnet18(num_outputs: int = IMAGENET_CLASSES) -> ResNet:
    """ResNet18; 11,177,025 parameters with one output."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_outputs)


def resnet50(num_outputs: int = IMAGENET_CLASSES) -> ResNet:
    """ResNet50."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_outputs)


def vgg11(num_outputs: int = IMAGENET_CLASSES) -> VGG:
    """VGG11 without batch norm."""
    return VGG((64, None, 128, None, 256, 256, None, 512, 512, None, 512, 512, None), num_outputs)


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "vgg11": vgg11,
    "small-cnn": SmallCNN,
}
HEADS = {"resnet18": "fc", "resnet50": "fc", "vgg11": "classifier.6", "small-cnn": "fc"}


def _draw_convolutions(network: nn.Module) -> None:
    """Draw the weights of all convolutions as He et al. (2015) do; biases become zero."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _stage(
    block: type[BasicBlock | Bottleneck], channels_in: int, channels: int, count: int, *, stride: int
) -> nn.Sequential:
    channels_out = channels * block.expansion
    downsample = None
    if stride != 1 or channels_in != channels_out:
        downsample = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
        )
    first = block(channels_in, channels, stride, downsample)
    rest = (block(channels_out, channels, 1, None) for _ in range(count - 1))
    return nn.Sequential(first, *rest)
