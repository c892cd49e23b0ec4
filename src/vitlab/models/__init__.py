"""Architectures of the papers that timm does not have. `import vitlab.models` registers them with timm."""

from vitlab.models import (
    alternet as alternet,
)
from vitlab.models import (
    conv_vit as conv_vit,
)
from vitlab.models import (
    extra_block_vit as extra_block_vit,
)
from vitlab.models import (
    fan as fan,
)
from vitlab.models import (
    local_vit as local_vit,
)
from vitlab.models import (
    preact_resnet as preact_resnet,
)
from vitlab.models import (
    pvt as pvt,
)
from vitlab.models import (
    rvt as rvt,
)
from vitlab.models import (
    small_images as small_images,
)
from vitlab.models import (
    t2t_vit as t2t_vit,
)
