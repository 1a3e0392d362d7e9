"""Where the app listens."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from labeling_app import source
from labeling_app.serve import ACCESS_VARIABLE, CODE_VARIABLE, SETTINGS, USER_VARIABLE, _open_to, is_loopback
from prefrl.errors import ConfigError, StoreError
from prefrl.run.people import free_port

ROOT = Path(__file__).parents[2]


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot have port {port} on 127.0.0.1 .*in use"):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", port) == port
    assert free_port("127.0.0.1", None) >= 8501


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ConfigError, match="cannot have port 8501 on 192"):
        free_port("192.0.2.1", 8501)


def test_what_strangers_may_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.0.0.2", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "192.0.2.1", "localhost.example.org")))
    for variable in (ACCESS_VARIABLE, CODE_VARIABLE, USER_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    assert "nobody may change answers or import there: PREFRL_OWNER_CODE=CODE lets" in _open_to("0.0.0.0")
    monkeypatch.setenv(CODE_VARIABLE, "secret")
    assert "to change answers and settings and to import takes the code in PREFRL_OWNER_CODE" in _open_to("0.0.0.0")
    assert "everybody who can reach 0.0.0.0 may answer, under any name" in _open_to("0.0.0.0")
    monkeypatch.setenv(ACCESS_VARIABLE, "secret")
    monkeypatch.setenv(USER_VARIABLE, "X-User")
    line = _open_to("0.0.0.0")
    assert "who can reach 0.0.0.0 and knows the code in PREFRL_ACCESS_CODE may answer, under the name in" in line
    assert "secret" not in line


def test_settings_that_must_not_change() -> None:
    assert SETTINGS["client.showErrorDetails"] == SETTINGS["server.fileWatcherType"] == "none"
    assert SETTINGS["browser.gatherUsageStats"] is SETTINGS["server.enableStaticServing"] is False
    assert SETTINGS["client.toolbarMode"] == "viewer"


def test_the_environment_names_the_run(desk, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(source.DB_VARIABLE, raising=False)
    with pytest.raises(StoreError, match="PREFRL_DB is not set"):
        source.source()
    monkeypatch.setenv(source.DB_VARIABLE, database_url)
    monkeypatch.setenv(source.RUN_VARIABLE, "cheetah")
    assert source.source() == source.Source(database_url, "cheetah")
    assert source.find_run(desk.db, "cheetah").id == source.find_run(desk.db, "").id == desk.run.id
    assert source.find_run(desk.db, "nobody") is None
    assert source.exists(database_url)
    assert not source.exists("sqlite:////nowhere/at/all.db")


def test_the_app_loads_no_torch() -> None:
    code = "import sys, labeling_app.label_page, labeling_app.serve, labeling_app.clips; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "streamlit" in loaded
    assert not loaded & {"torch", "mujoco", "stable_baselines3", "tensorboard", "matplotlib"}
