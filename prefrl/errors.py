"""The errors a person can cause; each message names the thing, what was found, and how to mend it."""


class PrefrlError(Exception):
    """Root of all errors that prefrl raises on purpose; shown as one line, without a traceback."""


class ConfigError(PrefrlError):
    """A setting has a value that cannot work."""


class StoreError(PrefrlError):
    """The comparison database cannot be reached, read or written as asked."""


class FencedError(StoreError):
    """Another process has taken over this role or lease; the caller must stop using it."""


class EnvError(PrefrlError):
    """An environment is unknown, unsuitable, or returned a value that is not finite."""


class RewardError(PrefrlError):
    """The reward model produced, or was given, something unusable."""


class DataError(PrefrlError):
    """An imported or stored record is not valid."""
