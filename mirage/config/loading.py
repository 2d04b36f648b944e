"""Load one configuration from files and environment, with the origin of every value, and show its values."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from mirage.atomic_file import read_regular
from mirage.config.model import Config
from mirage.config.places import SOCKET, default_file, default_places, in_url, is_absent
from mirage.documentreading import Fault, faults_of, more_faults, parse_toml
from mirage.domain.errors import ConfigError
from mirage.domain.texts import without_secrets
from mirage.simulator.configuration.toml_errors import did_you_mean, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirage.config.places import Places


def settings(config: BaseModel, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every key with its value, sections flattened, in the order of the model."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from settings(value, (*above, name))
        else:
            yield (*above, name), value


def masked(value: object) -> object:
    """Return the value with passwords in URLs hidden."""
    return without_secrets(value) if isinstance(value, str) else value


_PREFIX = "MIRAGE_"
_NO_FILE = "default"

Key = tuple[str, ...]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """One file, or the environment."""

    name: str
    document: Document
    text: str = ""
    """The file's text; empty for the environment."""

    def place(self, key: Key) -> str:
        """Return the place of ``key``: file and line, or the variable."""
        if not self.text:
            return _PREFIX + "__".join(key).upper()
        line = line_of(self.text, key)
        return f"{self.name}:{line}" if line else self.name


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration with the origin of its values."""

    config: Config
    sources: tuple[Source, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Configuration files that were read."""
        return tuple(Path(source.name) for source in self.sources if source.text)

    def origin(self, key: Key) -> str:
        """Return file and line, the variable, or ``default``."""
        return _origin(self.sources, key)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add the place to every ``ConfigError`` inside that names only a key."""
        try:
            yield
        except ConfigError as error:
            key = tuple(error.where.split("."))
            if key not in {known for known, _ in settings(self.config)} or self.origin(key) == _NO_FILE:
                raise
            raise ConfigError(f"{self.origin(key)}: {error.where}", error.problem) from error


def load_config(file: Path | None = None) -> Loaded:
    """The configuration of ``file`` (default: root's or the user's own, if there is one) and the environment.

    Files of the directory ``conf.d`` next to it override it in order of their names; variables such as
    ``MIRAGE_LOOP__INTERVAL`` override both. Raises ``ConfigError`` with file, line and key of the first error.
    """
    file = file or default_file(os.environ, os.getuid())
    sources = (*(_read(path) for path in _files(file)), _environment())
    return Loaded(_validated(sources, default_places(os.environ, os.getuid())), sources)


def _files(file: Path | None) -> tuple[Path, ...]:
    return (file, *_overrides(file.parent / "conf.d")) if file else ()


def _overrides(folder: Path) -> list[Path]:
    """Raises ``ConfigError`` for a directory that cannot be listed: its files may restrict users."""
    if is_absent(folder):
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        problem = f"cannot be listed: {error.strerror}; let the daemon's account read it, or remove it"
        raise ConfigError(str(folder), problem) from error


def _read(path: Path) -> Source:
    try:
        text = read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from error
    try:
        return Source(str(path), parse_toml(text), text or "\n")
    except ValueError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise ConfigError(f"{path}:{line[1]}" if line else str(path), f"not TOML: {error}") from error


def _environment() -> Source:
    for name in os.environ:
        section, nested, _ = name.removeprefix(_PREFIX).partition("__")
        if name.startswith(_PREFIX) and nested and section.lower() not in Config.model_fields:
            raise ConfigError(name, f"there is no section {section.lower()!r}")
    try:
        return Source("environment", EnvSettingsSource(Config)())
    except SettingsError as error:
        raise ConfigError("environment", str(error)) from error


def _validated(sources: tuple[Source, ...], places: Places) -> Config:
    document: Document = {}
    for source in sources:
        document = _merged(document, source.document)
    try:
        return _with_places(Config.model_validate(document), places)
    except ValidationError as error:
        raise _fault(error, sources) from error


def _merged(below: Document, above: Document) -> Document:
    both = dict(below)
    for key, value in above.items():
        under = both.get(key)
        both[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both


def _with_places(config: Config, places: Places) -> Config:
    """Fill in the default directories, database and socket."""
    state = config.service.state or str(places.state)
    beside = places.runtime == places.state  # an ordinary user's socket is in the state directory
    runtime = config.service.runtime or (state if beside else str(places.runtime))
    filled = {
        "service": {"state": state, "runtime": runtime},
        "store": {"url": config.store.url or _default_store(state, places)},
        "api": {"socket": config.api.socket or str(Path(runtime, SOCKET))},
    }
    sections = {name: getattr(config, name).model_copy(update=update) for name, update in filled.items()}
    return config.model_copy(update=sections)


def _default_store(state: str, places: Places) -> str:
    if places.shared is not None and places.self_driven and state == str(places.state):
        return f"directory://{in_url(places.shared)}"
    return f"sqlite:///{in_url(Path(state, 'mirage.db').absolute())}"


def _fault(error: ValidationError, sources: tuple[Source, ...]) -> ConfigError:
    """Return the first error with its place and the number of further ones."""
    found = faults_of(error)
    key = tuple(map(str, found[0].path))
    return ConfigError(f"{_origin(sources, key)}: {found[0].key}", _problem(found[0], key) + more_faults(found))


def _problem(fault: Fault, key: Key) -> str:
    if fault.kind == "extra_forbidden":
        return f"no such key{did_you_mean(key[-1], _keys_of(key[:-1]))}"
    if fault.kind in ("model_type", "model_attributes_type"):
        return "expected a section, not a value"
    return fault.said


def _keys_of(section: Key) -> tuple[str, ...]:
    model: type[BaseModel] = Config
    for name in section:
        field = model.model_fields.get(name)
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return ()
        model = field.annotation
    return tuple(model.model_fields)


def _origin(sources: tuple[Source, ...], key: Key) -> str:
    for source in reversed(sources):
        if _has(source.document, key):
            return source.place(key)
    return _NO_FILE


def _has(document: Mapping[str, Any], key: Key) -> bool:
    value: object = document
    for part in key:
        if not isinstance(value, dict) or part not in value:
            return isinstance(value, list | tuple) and part.isdigit()
        value = value[part]
    return True
