"""`headgate check`: one run names all that can be found, in whichever file it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.main import commands
from headgate.errors import ConfigurationError


def check(file: Path) -> list[str]:
    """The lines that the command says."""
    ran = CliRunner().invoke(commands, ["check", str(file)])
    if ran.exception is not None:
        assert isinstance(ran.exception, ConfigurationError), ran.exception
        return str(ran.exception).splitlines()
    return ran.output.splitlines()


def test_a_good_file(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text("overflow: newest\n")
    (line,) = check(file)
    assert "ok: 1 listener" in line


def test_mistakes_of_every_kind_and_in_every_file_come_in_one_run(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("nonsense\nmore nonsense\n")
    (tmp_path / "secret").write_text("short")
    for name in ("server.pem", "server.key", "ca.pem"):
        (tmp_path / name).write_text("no PEM")
    file = tmp_path / "headgate.yaml"
    file.write_text(
        "overflow: x\n"
        "hooks: [nowhere_to_be_found:Hook, pathlib:Nothing, wrong]\n"
        "store: json:Store\n"
        "listeners:\n"
        "- type: tls\n"
        "  address: nowhere\n"
        "  tls: {certificate: server.pem, key: server.key, client_ca: ca.pem}\n"
        "- {type: tls, address: '127.0.0.1:1', tls: {certificate: gone, key: server.key}}\n"
        "auth: {scram: maybe, password_file: users, jwt: {secret_file: secret}}\n"
    )
    lines = check(file)
    for number, words in enumerate(
        [
            "headgate.yaml:1:11: overflow: ",
            "headgate.yaml:2:",  # wrong
            "headgate.yaml:6:12: listeners[0].address: ",
            "headgate.yaml:8:",  # gone
            "headgate.yaml:9:15: auth.scram: ",
            "users:1:1: nonsense: ",
            "users:2:1: more nonsense: ",
            "secret: the secret has 5 bytes",
            "server.pem and ",
            "ca.pem holds no certificates",
            "nowhere_to_be_found:Hook: cannot import",
            "pathlib:Nothing: pathlib has no",
            "json:Store: json has no",
        ]
    ):
        assert words in lines[number], lines
    assert len(lines) == 13


@pytest.mark.parametrize("text", ["- a\n", "a: [\n"])
def test_what_is_no_mapping_is_told_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(text)
    assert len(check(file)) == 1


@pytest.mark.parametrize(
    ("text", "place", "right"),
    [
        ("data_dir: a-file", "1:11: data_dir: ", "a-file is not a folder"),
        ("data_dir: a-file/deeper", "1:11: data_dir: ", "a-file is not a folder"),
        ("recorder: {folder: a-file}", "1:20: recorder.folder: ", "a-file is not a folder"),
        ("planner: {knowledge: a-file}", "1:22: planner.knowledge: ", "a-file is not a folder"),
        ("recorder: {url: 'ftp://host/records'}", "1:17: recorder.url: ", "known are s3://, "),
        ("recorder: {url: 's3://'}", "1:17: recorder.url: ", "such as s3://bucket/records"),
        (
            "recorder: {folder: records, url: 's3://bucket/records'}",
            "1:20: recorder.folder: ",
            "leave out folder, or leave out url",
        ),
        ("recorder: {messages: 0.3}", "1:22: recorder.messages: ", "are 0.25, 0.333 and 0.5"),
        ("recorder: {messages: 0.9}", "1:22: recorder.messages: ", "0.5 and 1"),
        (
            "planner: {periods: [{topic: '$SYS/#', min: 1s, max: 10s}]}",
            "1:29: planner.periods[0].topic: ",
            "such as weather/#",
        ),
    ],
)
def test_what_could_not_work_is_named_before(
    tmp_path: Path, text: str, place: str, right: str
) -> None:
    (tmp_path / "a-file").write_text("x")
    file = tmp_path / "headgate.yaml"
    file.write_text(text + "\n")
    (line,) = check(file)
    assert f"headgate.yaml:{place}" in line
    assert right in line


@pytest.mark.parametrize("name", ["data", "records"])
def test_a_file_where_a_default_folder_belongs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    file = tmp_path / "headgate.yaml"
    file.write_text("recorder: {}\n")
    (line,) = check(file)
    assert f"{tmp_path / name} is not a folder" in line


@pytest.mark.parametrize("fraction", ["0", "1", "0.5", "0.33", "0.1", "0.001", "0.0007"])
def test_fractions_that_are_one_of_a_whole_number(tmp_path: Path, fraction: str) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(f"recorder: {{messages: {fraction}}}\n")
    (line,) = check(file)
    assert "ok: " in line
