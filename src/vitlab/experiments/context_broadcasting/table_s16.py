"""CB Table S16: CB, CB_gate and CB_hybrid after the MLP, after attention, and after both, in ViT-S.

The rows of CB and CB_gate are those of the supplement's Table S5; the text of Table S16 labels two of them wrongly.
"""

from __future__ import annotations

from typing import Any

from vitlab.core.experiment import Claim, Job, Published, Results, Scale, exact, judged, paired
from vitlab.core.verdicts import Verdict

TITLE = "CB Table S16: CB, CB_gate and CB_hybrid at MLP and MSA"

DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "full": (
        "ViT-S without a module is trained without repeated augmentation, as the networks with modules. The baseline "
        "of the paper has it; that of cb_table_2 too.",
    )
}

#: Module and position -> published additional FLOPs in millions, top-1 and top-5 in per cent.
_ROWS: dict[tuple[str, str], tuple[float, float | None, float | None]] = {
    ("cb", "end"): (0.9, 80.5, 95.3),
    ("cb", "attention"): (0.9, 80.1, 95.0),
    ("cb", "both"): (1.8, 80.1, 95.0),
    ("cb_gate", "end"): (0.9, 80.4, 95.1),
    ("cb_gate", "attention"): (0.9, 80.0, 95.0),
    ("cb_gate", "both"): (1.8, 80.0, 95.0),
    ("cb_hybrid", "end"): (1.8, 80.5, 95.0),
    ("cb_hybrid", "attention"): (1.8, 80.4, 95.3),
    ("cb_hybrid", "both"): (3.6, None, None),
}
_TITLES = {"cb": "CB", "cb_gate": "CB_gate", "cb_hybrid": "CB_hybrid"}
_CLASSES = {"cb": "ContextBroadcast", "cb_gate": "GatedContextBroadcast", "cb_hybrid": "HybridContextBroadcast"}
_SEAMS: dict[str, tuple[str, ...]] = {"end": ("mlp.out",), "attention": ("attn.out",), "both": ("mlp.out", "attn.out")}
_BASE_TOP1 = 79.9


def _arm(part: str, position: str) -> str:
    return f"{part} at {position}"


#: Arm -> the parts of its model expression. The modules are in all blocks.
_ARMS = {"plain": ""} | {
    _arm(part, position): "".join(f" | {_CLASSES[part]}(at={seam!r}, blocks='all')" for seam in _SEAMS[position])
    for part, position in _ROWS
}

#: Scale -> recipe, model, number of seeds and cost of each training run.
_TRAINED: dict[Scale, tuple[str, str, int, dict[str, Any]]] = {
    "smoke": (
        "quick(images=96, epochs=1)",
        "timm/vit_tiny_patch16_224(img_size=32, patch_size=4, embed_dim=64, depth=6, num_heads=4, num_classes=25)",
        1,
        {},
    ),
    "small": (
        "vit_tiny_cifar100",
        "timm/vit_tiny_patch16_224(img_size=32, patch_size=4, num_classes=100, num_heads=3, drop_path_rate=0.1)",
        5,
        {"needs": ("cifar-100-binary",), "gpu_minutes": 4.0, "gigabytes": 0.2},
    ),
    "full": (
        "context_broadcasting(size='small', part='cb')",
        "timm/deit_small_patch16_224(drop_path_rate=0.1)",
        3,
        {"needs": ("imagenet",), "gpu_minutes": 4800.0, "gigabytes": 150.0},
    ),
}

PAPER = [
    Published("ViT-S", "FLOPs [M]", 1260),
    Published("ViT-S", "Acc@1 [%]", _BASE_TOP1),
    Published("ViT-S", "Acc@5 [%]", 95.0),
    *(
        Published(f"+{_TITLES[part]} at {position}", column, value)
        for (part, position), values in _ROWS.items()
        for column, value in zip(("FLOPs [M]", "Acc@1 [%]", "Acc@5 [%]"), values, strict=True)
    ),
]

_FLOPS = {
    (part, position): Claim(
        f"flops_{part}_{position}",
        f"{_TITLES[part]} at {position} adds {added} M FLOPs to ViT-S",
        paper=added,
        deterministic=True,
        source="Table S16",
        unit="M",
    )
    for (part, position), (added, _, _) in _ROWS.items()
}
_TOP1 = {
    (part, position): Claim(
        f"top1_{part}_{position}",
        f"{_TITLES[part]} at {position} raises the top-1 accuracy of ViT-S",
        paper=round(top1 - _BASE_TOP1, 1),
        source="Table S16",
        unit="points",
    )
    for (part, position), (_, top1, _) in _ROWS.items()
    if top1 is not None
}
_BASE = Claim(
    "flops_base",
    "ViT-S without modules has 1260 M FLOPs",
    paper=1260,
    deterministic=True,
    source="Table S16; Table 4 prints 4.6 G, and 1260 M is the count of ViT-Ti",
    unit="M",
)
_BEST = Claim(
    "best_position",
    "CB is more accurate after the MLP than after attention",
    paper=0.4,
    source="Sec. B.7, Table S16",
    unit="points",
)

CLAIMS = [_BASE, *_FLOPS.values(), *_TOP1.values(), _BEST]


def plan(scale: Scale) -> list[Job]:
    """Counts of ViT-S at every scale; training on scenes, on CIFAR-100 (ViT-Ti), or as in the paper."""
    counted = [Job(arm, "sizes", model=f"timm/deit_small_patch16_224{parts}") for arm, parts in _ARMS.items()]
    if scale not in _TRAINED:
        return counted
    recipe, model, seeds, cost = _TRAINED[scale]
    trained = [
        Job(arm, "training", recipe=recipe, changes=(f"model={model}{parts}",), seed=seed, **cost)
        for arm, parts in _ARMS.items()
        for seed in range(seeds)
    ]
    return counted + trained


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; accuracies are paired by seed."""
    added = {row: _millions(results, _arm(*row), "added_macs") for row in _ROWS}
    top1 = {row: results.by_seed(_arm(*row), "training", "top1") for row in _ROWS}
    plain = results.by_seed("plain", "training", "top1")
    return [
        exact(_BASE, _millions(results, "plain", "macs"), tolerance=5),
        *(exact(claim, added[row], tolerance=0.05) for row, claim in _FLOPS.items()),
        *(judged(claim, paired(plain, top1[row])) for row, claim in _TOP1.items()),
        judged(_BEST, paired(top1["cb", "attention"], top1["cb", "end"])),
    ]


def _millions(results: Results, arm: str, value: str) -> float | None:
    count = results.by_seed(arm, "sizes", value).get(0)
    return None if count is None else count / 1e6
