from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsMonitorPackageMissing(ConfigHazard):
    def context_for(self, setting: Setting) -> Words | None:
        """The package if a complete listing of packages lacks it."""
        package = "comet-ml" if setting.keys[0] == "comet" else setting.keys[0]
        return {"package": package} if setting.run.environment.is_known_absent(package) else None
