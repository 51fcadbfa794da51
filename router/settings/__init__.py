from router.settings.gateway import ServerSettings, Settings, load_settings, read_settings
from router.settings.models import load_model
from router.settings.problems import Problem, SettingsError

__all__ = [
    "Problem",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "load_model",
    "load_settings",
    "read_settings",
]
