"""Models that are asked for outputs: networks and their weights, forward passes, scikit-learn, transformers and ONNX.

Names are imported when they are first used; only what runs a network imports torch.
"""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.data.image_settings import ImageNetwork
    from projnorm.models.networks import NETWORKS, resnet18, resnet50, vgg11
    from projnorm.models.recipe import Recipe
    from projnorm.models.text_networks import LoadedPairClassifier, TextClassifier, load_pair_classifier
    from projnorm.models.weights import LoadedNetwork, load_network
