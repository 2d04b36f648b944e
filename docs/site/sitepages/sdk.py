"""The references that are generated from docstrings: ports, the SDK, its entry points, errors."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points

from mirage import plugin, ports
from mirage.domain import errors
from mirage.predictors.registry import GROUP, TRAINERS, predictor_names
from sitepages.markdown import code, fenced, page, plain, table

_GROUPS = (
    (GROUP, "a factory of a predictor: takes the text after the name's colon, returns a `Predictor`"),
    (TRAINERS, "a factory without arguments of a `Trainer`, for `mirage train NAME`"),
)
_ABOUT = """\
[Predictors as packages](../plugins.md) describes such a package. `mirage plugins` lists the installed ones."""


def sdk_page() -> str:
    """The SDK that a plugin may import, its entry points, and all ports."""
    return page(
        "# Predictors, ports and the SDK",
        "## Entry points",
        table(("group", "content"), ((code(name), about) for name, about in _GROUPS)),
        _ABOUT,
        f"Installed at generation time: {_named(predictor_names())}; trainers of {_named(trainer_names())}.",
        "## mirage.plugin",
        plain(inspect.getdoc(plugin) or ""),
        *(f"::: mirage.plugin.{name}" for name in plugin.__all__),
        "## mirage.ports",
        plain(inspect.getdoc(ports) or ""),
        *(f"::: mirage.ports.{name}" for name in _defined_in(ports)),
    )


def errors_page() -> str:
    """The tree of the errors, and each error with its fields."""
    about, _, tree = (inspect.getdoc(errors) or "").partition("\n\n")
    return page(
        "# Errors",
        "The errors that Mirage raises on purpose. The command line prints one line and exits with the error's "
        "code ([Commands](commands.md#exit-codes)); the REST API answers `application/problem+json`.",
        plain(about),
        fenced(tree),
        *(f"::: mirage.domain.errors.{name}" for name in _defined_in(errors)),
    )


def trainer_names() -> tuple[str, ...]:
    """Predictors that installed packages can train."""
    return tuple(sorted({point.name for point in entry_points(group=TRAINERS)}))


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(code(name) for name in names)


def _defined_in(module: object) -> list[str]:
    """Classes of a module, in its order, without those that it imports."""
    name = getattr(module, "__name__", "")
    return [key for key, value in vars(module).items() if inspect.isclass(value) and value.__module__ == name]
