"""Torch modules, without any file."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from verifier.errors import InputError
from verifier.network.judge import check_against
from verifier.network.models.module import ModuleModel


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding="same", dilation=2, groups=2)
        self.short = nn.Conv2d(2, 4, 1)
        self.head = nn.Linear(4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(0.9)

    def forward(self, x):
        y = self.second(self.relu(self.norm(self.first(x))))
        y = torch.relu(y + self.short(x))
        y = self.dropout(F.adaptive_avg_pool2d(y, 1)).view(x.size(0), -1)
        return self.head(y) - y.sum(dim=-1, keepdim=True)


class Shapes(nn.Module):
    def forward(self, x):
        n, c = x.shape[:2]
        left, right = x.permute(0, 2, 1).reshape(n, -1).chunk(2, dim=1)
        joined = torch.cat([right, left.relu(), torch.ones_like(left)], dim=1).unsqueeze(0).squeeze(0)
        return joined.view(n, -1)[:, ::2].expand(n, -1).contiguous() + c


MODULES = {
    "mlp": (nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)), (1, 3, 4)),
    "no batch axis": (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)), (5,)),
    "residual": (Residual(), (1, 2, 6, 6)),
    "shapes": (Shapes(), (1, 4, 6)),
    "pools": (
        nn.Sequential(
            nn.Conv1d(2, 3, 3, stride=2, padding=1, padding_mode="circular"),
            nn.MaxPool1d(3, 2, 1),
            nn.AvgPool1d(2, ceil_mode=True),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        ),
        (1, 2, 19),
    ),
    "images": (
        nn.Sequential(
            nn.ZeroPad2d((1, 0, 2, 1)),
            nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU6(),
            nn.AvgPool2d(3, 2, 1, count_include_pad=False),
            nn.PReLU(3),
            nn.AdaptiveAvgPool2d((3, 2)),
            nn.Flatten(),
            nn.Hardtanh(-0.1, 0.3),
        ),
        (1, 2, 5, 6),
    ),
    "3d": (nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten()), (1, 1, 4, 5, 4)),
    "identity": (nn.Identity(), (1, 3)),
    "relu only": (nn.ReLU(), (1, 3)),
    "double": (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double(), (1, 3)),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    torch.manual_seed(0)
    module, shape = MODULES[name]
    for child in module.modules():
        if isinstance(child, nn.BatchNorm2d):
            child.running_mean.normal_()
            child.running_var.uniform_(0.5, 2.0)
    model = ModuleModel(module, shape)
    network = model.network()
    ends = np.full(network.n_in, 2.0)
    assert check_against(model, network, (-ends, ends), count=12) <= 2e-6
    assert model.n_in == network.n_in
    assert model.n_out == network.n_out


def test_the_given_module_is_not_changed():
    module = Residual().train()
    before = copy.deepcopy(module.state_dict())
    model = ModuleModel(module, (1, 2, 6, 6))
    model.network()
    model.run(np.zeros(72, np.float32))
    assert module.training
    assert all(p.requires_grad for p in module.parameters())
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert not any(child._forward_pre_hooks for child in module.modules())


def test_digest_names_structure_and_weights():
    module = nn.Linear(3, 2)
    digest = ModuleModel(module, (1, 3)).sha256
    assert digest == ModuleModel(copy.deepcopy(module), (1, 3)).sha256
    with torch.no_grad():
        module.weight[0, 0] += 1
    assert digest != ModuleModel(module, (1, 3)).sha256


def test_bad_modules():
    broken = nn.Linear(2, 2)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(InputError, match="not finite"):
        ModuleModel(broken, (1, 2))
    with pytest.raises(InputError, match="positive"):
        ModuleModel(nn.ReLU(), (1, 0))
    with pytest.raises(InputError, match="cannot be run"):
        _ = ModuleModel(nn.Linear(3, 2), (1, 4)).output_shape
    with pytest.raises(InputError, match="takes 3 inputs"):
        ModuleModel(nn.Linear(3, 2), (1, 3)).run(np.zeros(4))
