"""From a file, from text, or from nothing to a `Configuration`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from headgate.config.addresses import Address
from headgate.config.listeners import Listener, ListenerType
from headgate.config.mistakes import InvalidConfigurationError, Mistake
from headgate.config.reader import Reader
from headgate.config.recorder import DEFAULT_FOLDER
from headgate.config.root import Configuration
from headgate.config.scalars import Place, not_a_folder, obstructed


@dataclass(frozen=True, slots=True)
class Draft:
    """A configuration as far as it could be read, for whoever looks for further mistakes."""

    source: str
    configuration: Configuration
    """Whatever has a mistake in it is illegible (`contract/schema.py`)."""
    mistakes: tuple[Mistake, ...]

    def final(self) -> Configuration:
        """The configuration, if there is no mistake in it."""
        if self.mistakes:
            raise InvalidConfigurationError(self.source, self.mistakes)
        return self.configuration


def load(path: str | Path) -> Configuration:
    """Read a configuration file; `InvalidConfigurationError` names every mistake in it.

    Relative paths in it start from its own folder, and the files that it names must be readable.
    """
    return draft(path).final()


def draft(path: str | Path) -> Draft:
    """Read a configuration file; only one that is no YAML mapping at all is refused."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise InvalidConfigurationError(str(path), [Mistake(0, 0, "", message)]) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        mistake = Mistake(line, column, "", "is not UTF-8 text: save the file as UTF-8")
        raise InvalidConfigurationError(str(path), [mistake]) from None
    return _parse(text, str(path), Place(path.parent.absolute(), check_files=True))


def parse(text: str, source: str = "configuration") -> Configuration:
    """Read a configuration from text. Files are not looked for; paths stay as they are."""
    return _parse(text, source, Place(Path(), check_files=False)).final()


def defaults(
    host: str = "127.0.0.1", port: int = 1883, data_dir: str | Path = "data"
) -> Configuration:
    """What runs without a file: one TCP listener; anonymous clients on this machine only.

    A host that others can reach is refused: to open it to everyone is a decision, in a file.
    """
    listener = Listener(type=ListenerType.TCP, address=Address(host=host, port=port))
    configuration = Configuration(listeners=(listener,), data_dir=Path(data_dir))
    if not listener.address.is_local:
        raise InvalidConfigurationError(
            "command line",
            [
                Mistake(
                    0,
                    0,
                    "host",
                    f"anyone who reaches {listener.address} could connect without a password: "
                    "use a configuration file with an auth section",
                )
            ],
        )
    return configuration


def _parse(text: str, source: str, place: Place) -> Draft:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise InvalidConfigurationError(source, [_syntax_mistake(error)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        message = f"the character {error.character:#x} is not allowed in YAML"
        raise InvalidConfigurationError(source, [Mistake(line, column, "", message)]) from None
    except (RecursionError, ValueError) as error:
        message = (
            "is nested too deeply" if isinstance(error, RecursionError) else f"bad YAML: {error}"
        )
        raise InvalidConfigurationError(source, [Mistake(0, 0, "", message)]) from None
    reader = Reader(place)
    configuration = Configuration() if node is None else reader.record(Configuration, node, "")
    if not isinstance(configuration, Configuration):
        raise InvalidConfigurationError(source, reader.mistakes)
    if not reader.mistakes:
        # The default is relative to the same folder as a written one.
        data_dir = place.folder / configuration.data_dir
        configuration = msgspec.structs.replace(configuration, data_dir=data_dir)
        recorder = configuration.recorder
        if recorder is not None and recorder.url is None:
            folder = place.folder / (recorder.folder or DEFAULT_FOLDER)
            recorder = msgspec.structs.replace(recorder, folder=folder)
            configuration = msgspec.structs.replace(configuration, recorder=recorder)
        reader.mistakes += _unusable(configuration, place)
    return Draft(source, configuration, tuple(reader.mistakes))


def _unusable(configuration: Configuration, place: Place) -> list[Mistake]:
    """Folders that were not written down, and are not where they would have to be."""
    folders = {"data_dir": configuration.data_dir}
    if configuration.recorder is not None and configuration.recorder.folder is not None:
        folders["recorder.folder"] = configuration.recorder.folder
    mistakes = []
    for key, folder in folders.items():
        obstacle = obstructed(folder) if place.check_files else None
        if obstacle is not None:
            mistakes.append(Mistake(0, 0, key, not_a_folder(obstacle)))
    return mistakes


def _syntax_mistake(error: yaml.MarkedYAMLError) -> Mistake:
    mark = error.problem_mark or error.context_mark
    message = f"not YAML: {error.problem or 'cannot be read'}"
    if error.context:
        message += f" ({error.context})"
    if mark is None:
        return Mistake(0, 0, "", message)
    return Mistake(mark.line + 1, mark.column + 1, "", message)
