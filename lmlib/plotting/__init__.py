"""The book's figure style, and every drawing that is longer than a cell."""

from lmlib.plotting.axes import draw_blocks, draw_readings
from lmlib.plotting.checkpointing import draw_rates, draw_resumes
from lmlib.plotting.depth import draw_depth
from lmlib.plotting.flops import draw_context_flops
from lmlib.plotting.formats import (
    FORMAT_COLORS,
    Loss,
    draw_bit_fields,
    draw_loss_scales,
    draw_losses,
    draw_outlier_damage,
    draw_ranges,
    draw_relative_spacing,
    draw_sum_errors,
    format_color,
)
from lmlib.plotting.memmap import (
    draw_bytes,
    draw_order,
    draw_read_times,
    draw_resident,
)
from lmlib.plotting.memory import (
    DominanceMap,
    draw_dominance,
    draw_ledgers,
    draw_memory_growth,
    draw_timelines,
)
from lmlib.plotting.optimizers import (
    OPTIMIZER_COLORS,
    draw_sensitivity,
    draw_trajectories,
)
from lmlib.plotting.precision import (
    DTYPE_COLORS,
    draw_gradients,
    draw_saved,
    draw_stall,
)
from lmlib.plotting.products import draw_parameter_shares, draw_products
from lmlib.plotting.roofline import draw_roofline
from lmlib.plotting.style import (
    COLORS,
    FIGURE_WIDTH,
    PAGE_COLORS,
    ROW_COLORS,
    TEXT_COLOR,
    contrast,
    use_book_style,
)
from lmlib.plotting.tokens import (
    TINT,
    color_tokens,
    draw_compression,
    draw_language_costs,
    draw_merge_tree,
    draw_speeds,
)
from lmlib.plotting.training import draw_rate_sweep, draw_run
from lmlib.plotting.walks import (
    MAX_CELLS,
    MAX_COLUMNS,
    MAX_ROWS,
    draw_tensor,
    draw_walks,
)

__all__ = [
    "COLORS",
    "DTYPE_COLORS",
    "FIGURE_WIDTH",
    "FORMAT_COLORS",
    "MAX_CELLS",
    "MAX_COLUMNS",
    "MAX_ROWS",
    "OPTIMIZER_COLORS",
    "PAGE_COLORS",
    "ROW_COLORS",
    "TEXT_COLOR",
    "TINT",
    "DominanceMap",
    "Loss",
    "color_tokens",
    "contrast",
    "draw_bit_fields",
    "draw_blocks",
    "draw_bytes",
    "draw_compression",
    "draw_context_flops",
    "draw_depth",
    "draw_dominance",
    "draw_gradients",
    "draw_language_costs",
    "draw_ledgers",
    "draw_loss_scales",
    "draw_losses",
    "draw_memory_growth",
    "draw_merge_tree",
    "draw_order",
    "draw_outlier_damage",
    "draw_parameter_shares",
    "draw_products",
    "draw_ranges",
    "draw_rate_sweep",
    "draw_rates",
    "draw_read_times",
    "draw_readings",
    "draw_relative_spacing",
    "draw_resident",
    "draw_resumes",
    "draw_roofline",
    "draw_run",
    "draw_saved",
    "draw_sensitivity",
    "draw_speeds",
    "draw_stall",
    "draw_sum_errors",
    "draw_tensor",
    "draw_timelines",
    "draw_trajectories",
    "draw_walks",
    "format_color",
    "use_book_style",
]
