"""Proxies that the environment names for exporters over HTTP."""

from __future__ import annotations

import os
import ssl
from typing import Final

import httpx

_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def check_proxies(exporter: str, tls: ssl.SSLContext) -> None:
    """Whether a client can be made with the proxies of the environment.

    Parameters:
        exporter: its name, for errors.
        tls: of the client.

    Raises:
        ValueError: it cannot; names the exporter and the variables, but not their values, which may hold passwords.
    """
    try:
        httpx.Client(verify=tls).close()
    except ImportError:
        reason = "a SOCKS proxy needs the package socksio: pip install 'httpx[socks]'"
    except httpx.InvalidURL:
        reason = "not a valid URL"
    except ValueError:
        reason = "the scheme of a proxy must be http, https, socks5 or socks5h"
    else:
        return
    variables = " or ".join(sorted(name for name in os.environ if name.lower() in _VARIABLES and os.environ[name]))
    raise ValueError(f"exporters.{exporter}: the environment names a proxy that cannot be used, {variables}: {reason}")
