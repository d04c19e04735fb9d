"""Every figure and table, and the page that shows them. A figure draws what was computed elsewhere.

Everything is imported when it is first used, matplotlib when the first figure is drawn.
"""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from figures.report import Report, save_figures, save_tables
    from figures.style import Drawing, plot, save
    from figures.table import Number, Table
    from figures.theory import theory_page, theory_reports
    from figures.timeline import draw as draw_timeline
