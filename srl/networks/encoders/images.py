"""Convolutional encoders for images."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.api.spaces import Box
from srl.networks.parameters import orthogonal_layers
from srl.networks.spaces.boxes import NATURE_SIDE, Layout, layout_of

HIDDEN_GAIN = math.sqrt(2.0)


def planes(layout: Layout, observation: Tensor) -> Tensor:
    """Convert images [B, ...] to floats [B, C, H, W] in channels-last memory order, in which CPU convolutions are 1.45x
    faster."""
    if layout.order == "CHW":
        # Stacking byte planes is the fastest conversion, twice as fast as torch's own.
        observation = torch.stack(observation.unbind(1), dim=-1)
    elif layout.order == "SHWC":
        observation = observation.permute(0, 2, 3, 1, 4).flatten(3)
    elif layout.order == "HW":
        observation = observation.unsqueeze(-1)
    return observation.float().permute(0, 3, 1, 2)


class WideLinear(nn.Module):
    """A dense layer for many inputs, with weights [inputs, outputs]. For a few rows it is twice as fast as
    torch.nn.Linear, whose weights are [outputs, inputs] (8 rows, 3136 inputs: 0.4, not 0.8 ms); for many rows, no
    slower."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs))
        self.bias = nn.Parameter(torch.empty(num_outputs))

    def forward(self, rows: Tensor) -> Tensor:
        return torch.addmm(self.bias, rows, self.weight)


class ImageEncoder(nn.Module):
    """Convolutions followed by a dense layer. The activations are flattened in memory order, pixel by pixel, which
    avoids reordering 64 x 7 x 7 of them."""

    linear: WideLinear

    def __init__(self, space: Box, num_features: int = 256) -> None:
        super().__init__()
        self.layout = layout_of(space)
        self.num_features = num_features

    def convolve(self, image: Tensor) -> Tensor:
        """Map unscaled pixels [B, C, H, W] to activations [B, c, h, w]."""
        raise NotImplementedError

    def forward(self, observation: Tensor) -> Tensor:
        hidden = self.convolve(planes(self.layout, observation))
        features: Tensor = self.linear(hidden.permute(0, 2, 3, 1).flatten(1)).relu_()
        return features

    def _divided_first(self, first: nn.Conv2d, image: Tensor) -> Tensor:
        # Divide the weights instead of the pixels: there are far fewer of them.
        return functional.conv2d(image, first.weight / self.layout.divisor, first.bias, stride=first.stride).relu_()


class Convolutions(nn.Module):
    """The convolutions of an encoder without its dense layer, for networks that have their own: features are the
    flattened activations, scaled and ordered as in the encoder."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        self.num_features = encoder.linear.weight.shape[0]
        del encoder.linear
        self.encoder = encoder

    def forward(self, observation: Tensor) -> Tensor:
        hidden = self.encoder.convolve(planes(self.encoder.layout, observation))
        return hidden.permute(0, 2, 3, 1).flatten(1)


class NatureEncoder(ImageEncoder):
    """The convolutions from Mnih et al. 2015 (32x8s4, 64x4s2, 64x3s1, 512 features)."""

    def __init__(self, space: Box) -> None:
        super().__init__(space, num_features=512)
        self.first = nn.Conv2d(self.layout.channels, 32, 8, 4)
        self.second = nn.Conv2d(32, 64, 4, 2)
        self.third = nn.Conv2d(64, 64, 3, 1)
        rows, columns = (((side - 8) // 4 + 1 - 4) // 2 - 1 for side in self.layout.sides)
        self.linear = WideLinear(64 * rows * columns, self.num_features)
        orthogonal_layers(HIDDEN_GAIN, self.first, self.second, self.third, self.linear)

    def convolve(self, image: Tensor) -> Tensor:
        hidden: Tensor = self.third(self.second(self._divided_first(self.first, image)).relu_()).relu_()
        return hidden


class LeanEncoder(ImageEncoder):
    """The convolutions from Mnih et al. 2013 and A3C (16x8s4, 32x4s2, 256 features): a third of Nature's work."""

    def __init__(self, space: Box) -> None:
        super().__init__(space)
        self.first = nn.Conv2d(self.layout.channels, 16, 8, 4)
        self.second = nn.Conv2d(16, 32, 4, 2)
        rows, columns = (((side - 8) // 4 + 1 - 4) // 2 + 1 for side in self.layout.sides)
        self.linear = WideLinear(32 * rows * columns, self.num_features)
        orthogonal_layers(HIDDEN_GAIN, self.first, self.second, self.linear)

    def convolve(self, image: Tensor) -> Tensor:
        hidden: Tensor = self.second(self._divided_first(self.first, image)).relu_()
        return hidden


class SmallEncoder(ImageEncoder):
    """Three 3x3 convolutions (32, 64, 64) with 256 features, for images too small for Nature. They preserve the size
    of images up to 16 pixels and halve larger ones twice."""

    def __init__(self, space: Box) -> None:
        super().__init__(space)
        stride = 1 if max(self.layout.sides) <= 16 else 2
        shapes = ((self.layout.channels, 32, stride), (32, 64, stride), (64, 64, 1))
        self.convolutions = nn.ModuleList([nn.Conv2d(a, b, 3, step, padding=1) for a, b, step in shapes])
        rows, columns = (-(-side // stride**2) for side in self.layout.sides)
        self.linear = WideLinear(64 * rows * columns, self.num_features)
        orthogonal_layers(HIDDEN_GAIN, *self.convolutions, self.linear)

    def convolve(self, image: Tensor) -> Tensor:
        hidden = image / self.layout.divisor
        for convolution in self.convolutions:
            hidden = convolution(hidden).relu_()
        return hidden


class ImpalaEncoder(ImageEncoder):
    """The deep residual network from Espeholt et al. 2018: stages of 16, 32 and 32 channels, 256 features."""

    def __init__(self, space: Box) -> None:
        super().__init__(space)
        self.stages = nn.ModuleList([_Stage(a, b) for a, b in pairwise((self.layout.channels, 16, 32, 32))])
        # Each stage halves the sides, rounding up.
        rows, columns = (-(-side // 2 ** len(self.stages)) for side in self.layout.sides)
        self.linear = WideLinear(32 * rows * columns, self.num_features)
        orthogonal_layers(HIDDEN_GAIN, self.linear)

    def convolve(self, image: Tensor) -> Tensor:
        hidden = image / self.layout.divisor
        for stage in self.stages:
            hidden = stage(hidden)
        return hidden.relu()


class _Stage(nn.Module):
    """A convolution, a pooling layer that halves the sides, and two residual blocks."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.entry = nn.Conv2d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(4)])

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = functional.max_pool2d(self.entry(hidden), 3, stride=2, padding=1)
        for first, second in (self.blocks[:2], self.blocks[2:]):
            hidden = hidden + second(first(hidden.relu()).relu_())
        return hidden


def build_image_encoder(space: Box, body: str) -> ImageEncoder:
    if body == "impala":
        return ImpalaEncoder(space)
    if min(layout_of(space).sides) < NATURE_SIDE:
        return SmallEncoder(space)
    return LeanEncoder(space) if body == "lean" else NatureEncoder(space)
