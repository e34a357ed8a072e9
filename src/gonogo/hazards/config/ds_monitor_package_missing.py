from gonogo.hazards.config_rule import ConfigHazard, Setting, Words


class DsMonitorPackageMissing(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """The package, where a complete listing has none of it."""
        package = "comet-ml" if at.keys[0] == "comet" else at.keys[0]
        return {"package": package} if at.run.environment.known_absent(package) else None
