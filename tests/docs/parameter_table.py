"""The table of everything gin can set; run as a script, it is written into `docs/reference/parameters.md`."""

import re

from pages import DOCS

from explore._config.configuration import ROOT
from explore._config.discovery import discover
from explore._config.parameters import parameters
from explore._running.experiment import Experiment
from explore.hooks import SLOTS

PAGE = DOCS / "reference" / "parameters.md"
TABLE = re.compile(r"(?<=<!-- parameters -->\n).*(?=<!-- end of parameters -->)", re.DOTALL)


def parameter_table():
    """All that gin can set, in the order of the slots."""
    found = sorted(discover().components.values(), key=lambda component: list(SLOTS).index(component.slot))
    selectors = {component.cls: component.selector for component in found}
    lines = ["| component | parameter | default | meaning |", "|---|---|---|---|"]
    for name, cls in [(ROOT, Experiment), *((component.selector, component.cls) for component in found)]:
        known = list(parameters(cls).values())
        for parameter in known:
            default = "required" if parameter.required else f"`{parameter.default!r}`"
            if parameter.default in selectors:
                default = f"`@{selectors[parameter.default]}`"
            owner = f"`{name}`" if parameter is known[0] else ""
            lines.append(f"| {owner} | `{parameter.name}` | {default} | {parameter.documentation} |")
        if not known:
            lines.append(f"| `{name}` | | | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: parameter_table(), PAGE.read_text()))
