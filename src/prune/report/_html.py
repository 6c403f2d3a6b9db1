"""One self-contained page: no script, no request, model output escaped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ._figures import figures
from .view import view


def page(report: Mapping[str, Any], speed: Mapping[str, Any] | None) -> str:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.from_string(Path(__file__).with_name("report.html.j2").read_text("utf-8"))
    pictures = {name: Markup(svg) for name, svg in figures(report).items()}
    return template.render(view=view(report, speed), pictures=pictures)
