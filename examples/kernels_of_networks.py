"""Do a transformer, a ResNet with group norm, a BERT, ten outputs and an LSTM have tangent kernels, in a line each?"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import transformers as hf
from torch import nn

import projnorm as pn

# Five networks, three of them from `transformers`, all without changes. Parameters are followed through the calls of
# torch, so it does not matter which modules they belong to.
torch.manual_seed(0)
images, tokens = torch.randn(12, 3, 32, 32), torch.randint(1, 500, (12, 16))
batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}  # what a tokenizer gives
small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "num_labels": 1}
vit = hf.ViTForImageClassification(hf.ViTConfig(image_size=32, patch_size=8, **small))
bert = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=500, **small))
sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic", "num_labels": 1}
resnet = hf.ResNetForImageClassification(hf.ResNetConfig(**sizes))
for name in [name for name, module in resnet.named_modules() if isinstance(module, nn.BatchNorm2d)]:
    resnet.set_submodule(name, nn.GroupNorm(4, resnet.get_submodule(name).num_features))
ten = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.GELU(), nn.Linear(64, 10))
lstm = nn.LSTM(96, 8, batch_first=True)  # its parameters are left to plain autograd
lstm.register_forward_hook(lambda _module, _inputs, outputs: outputs[0][:, -1])  # the last state

# A line each. What no rule covers, such as the weights of an LSTM, is left to autograd, and the result names it.
kernels = {
    "vision transformer": pn.gram(vit.eval(), images),
    "group norm": pn.gram(resnet.eval(), images),
    "BERT": pn.gram(bert.eval(), batch),
    "ten outputs": pn.gram(ten.eval(), images),
    "LSTM": pn.gram(lstm.eval(), images.movedim(2, 1).flatten(2)),
}
figure, axes = plt.subplots(1, len(kernels), figsize=(10, 2.4), layout="constrained")
for axis, (name, kernel) in zip(axes, kernels.items(), strict=True):
    print(f"{name}: {kernel}")
    axis.imshow(kernel.train / kernel.train.max(), cmap="cividis")
    axis.set(title=name, xticks=[], yticks=[])
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "kernels_of_networks.png", dpi=80)
