from router.settings.gateway import ServerSettings, Settings, load_settings, read_settings
from router.settings.model_file.models import load_model
from router.settings.values.problems import SettingsError, SettingsProblem

__all__ = [
    "ServerSettings",
    "Settings",
    "SettingsError",
    "SettingsProblem",
    "load_model",
    "load_settings",
    "read_settings",
]
