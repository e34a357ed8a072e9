from gonogo.hazards.config_rule import ConfigHazard, Setting, Words
from gonogo.hazards.facts.deepspeed_settings import newer_than


class DsElasticityWithBatchSizes(ConfigHazard):
    def context_for(self, at: Setting) -> Words | None:
        """The batch sizes beside it, in releases that have elasticity."""
        ignored = at.config.raw("elasticity", "ignore_non_elastic_batch_info").truth
        given = [key for key in self.beside if not at.config.raw(key).absent]
        return {"given": ", ".join(given)} if given and not ignored and not newer_than(at.run, ">=0.19.8") else None
