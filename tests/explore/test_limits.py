"""Numbers of images that a page cannot show are refused before the models are loaded."""

from __future__ import annotations

import pytest

from vitlab.core.errors import VitlabError
from vitlab.explore.app import explore


@pytest.mark.parametrize("images", [-1, 0, 1001, 10**9])
def test_numbers_of_images_out_of_range(images: int) -> None:
    with pytest.raises(VitlabError, match=f"invalid --images {images}; expected 1 to 1,000"):
        explore(["timm/no_such_model"], images=images)
