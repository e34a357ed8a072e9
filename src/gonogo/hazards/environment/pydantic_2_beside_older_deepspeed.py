from gonogo.evidence.environment.compatibility import known_bad
from gonogo.hazards.facts.installed import fault_finding, known_faults, listing
from gonogo.hazards.rule import Environment, Findings, Hazard, Run, Text


class Pydantic2BesideOlderDeepspeed(Hazard):
    """pydantic 2 beside a DeepSpeed whose config is written for pydantic 1.

    ## What happens
    `import deepspeed` ends in pydantic: "PydanticUserError", "`Config` ... has been removed", or "A non-annotated
    attribute was detected" in `deepspeed/runtime/config_utils.py`.

    ## Why
    DeepSpeed up to 0.9.4 uses pydantic 1 and names no upper limit for it; pydantic 2 came in June 2023 and changed
    its API. 0.9.5 and newer pin it or use either.

    ## Example
    ```text
    deepspeed==0.9.2
    pydantic==2.5.3    # wrong
    pydantic==1.10.13    # right
    ```

    ## Cure
    Pin pydantic<2, or take a newer DeepSpeed.

    ## When it is safe
    With DeepSpeed 0.9.5 or newer.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/3280: DeepSpeed and pydantic 2
    - https://github.com/OptimalScale/LMFlow/issues/544: the import that fails in a training project
    """

    name = "pydantic-2-beside-older-deepspeed"
    title = Text("This DeepSpeed needs pydantic 1", "该 DeepSpeed 需要 pydantic 1")

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """DeepSpeed up to 0.9.4 with pydantic 2."""
        rows = tuple(row for row in known_bad("deepspeed") if "pydantic" in row.beside)
        for row in known_faults(environment, rows):
            names = (row.package, *row.beside)
            cause = Text("{told}: {text}.", "{told}：{text}。").format(told=listing(environment, names), text=row.text)
            yield fault_finding(self, row, environment, run, cause)
            return
