from gonogo.hazards.config_rule import ConfigHazard, SettingInConfig, Words


class DsMonitorPackageMissing(ConfigHazard):
    def placeholder_values(self, setting: SettingInConfig) -> Words | None:
        """``package``: the monitor's package; None unless a complete listing of packages lacks it."""
        package = "comet-ml" if setting.keys[0] == "comet" else setting.keys[0]
        return {"package": package} if setting.run.environment.is_known_absent(package) else None
