"""Starts the app in this process, for people on this machine unless told otherwise."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import webbrowser
from pathlib import Path

from labeling_app.source import DB_VARIABLE, RUN_VARIABLE
from prefrl.errors import ConfigError
from prefrl.run.people import free_port

ACCESS_VARIABLE = "PREFRL_ACCESS_CODE"  # to come in at all
CODE_VARIABLE = "PREFRL_OWNER_CODE"  # to change what others said
USER_VARIABLE = "PREFRL_USER_HEADER"  # of a trusted proxy that has found out who the visitor is
SCRIPT = Path(__file__).with_name("app.py")
SETTINGS = {
    "browser.gatherUsageStats": False,
    "client.showErrorDetails": "none",
    "client.toolbarMode": "viewer",  # no developer's menu, and the key C is ours
    "global.developmentMode": False,
    "server.enableStaticServing": False,
    "server.fileWatcherType": "none",
    "server.headless": True,  # a browser is opened here, where the address is known
    "server.runOnSave": False,
    # small print is this colour at 60 %, and must still stand out from white (WCAG AA: 4.5 to 1)
    "theme.light.textColor": "#0b0c10",
}


def serve(
    url: str, run_name: str, *, host: str = "127.0.0.1", port: int | None = None, open_browser: bool = False
) -> None:
    """Serves the app until it is interrupted.

    Args:
        url: The comparison database.
        run_name: The run to show; "" is the newest one.
        host: The address to listen on; others than this machine's own let everybody in who can reach it.
        port: The port to listen on; None takes the first free one from 8501 on.
        open_browser: Opens the page in a browser on this machine.

    Raises:
        ConfigError: The port is in use, or the address is none of this machine's, or Streamlit is missing.
    """
    try:
        import streamlit as st
    except ImportError as error:
        raise ConfigError(f"the app needs the extra `app`: pip install 'prefrl[app]' ({error})") from error
    from labeling_app.clips import routes

    chosen = free_port(host, port)
    if not is_loopback(host):
        _say(f"warning: {_open_to(host)}")
    os.environ[DB_VARIABLE], os.environ[RUN_VARIABLE] = url, run_name
    where = f"http://{_shown(host)}:{chosen}"
    _say(f"label: {where}  (ctrl-c ends it)")
    if open_browser:
        threading.Timer(1.5, webbrowser.open, [where]).start()
    # nothing of the command line is for Streamlit
    sys.argv = [str(SCRIPT)]
    app = st.App(SCRIPT, routes=routes())
    app.run(config={**SETTINGS, "server.address": host, "server.port": chosen})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may mean anything
        return False


def _open_to(host: str) -> str:
    """What those may do who reach an address that is not this machine's alone."""
    who = f"who can reach {host}"
    who = f"{who} and knows the code in {ACCESS_VARIABLE}" if os.environ.get(ACCESS_VARIABLE) else f"everybody {who}"
    name = f"the name in {USER_VARIABLE}" if os.environ.get(USER_VARIABLE) else "any name"
    may = f"{who} may answer, under {name}, and see and export all answers"
    if not os.environ.get(ACCESS_VARIABLE):
        may += f" ({ACCESS_VARIABLE}=CODE keeps others out)"
    if os.environ.get(CODE_VARIABLE):
        return f"{may}; to change answers and settings and to import takes the code in {CODE_VARIABLE}"
    return f"{may}; nobody may change answers or import there: {CODE_VARIABLE}=CODE lets those who type it"


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
