from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TorchtitanMeshDimensionOfSizeOne(LoggedHazard):
    """A parallel degree of 1 leaves no such dimension in torchtitan's mesh.
    ## What happens
    `ValueError: Mesh 'tp' is not available. Ensure the corresponding parallelism dimension is enabled (size > 1).`,
    or `KeyError: "Invalid mesh_dim_names ('tp',)..."`, in a model's `parallelize` function.
    ## Why
    torchtitan builds the mesh out of the dimensions that are larger than one. Code that takes `get_mesh("tp")`
    without looking whether tensor parallelism is on worked before that change.
    ## Example
    ```python
    tp_mesh = parallel_dims.get_mesh("tp")             # wrong where the degree may be 1
    tp_mesh = parallel_dims.get_optional_mesh("tp")    # right: None then
    ```
    ## Cure
    Use parallel_dims.get_optional_mesh(...), or ask parallel_dims.tp_enabled first. Or update torchtitan, or set
    that degree above 1.
    ## When it is safe
    Where the degree is larger than one, or the optional form is used.
    ## Sources
    - https://github.com/pytorch/torchtitan/issues/2184: llama4 with tensor_parallel_degree=1
    - https://github.com/pytorch/pytorch/issues/159601: meshes of SimpleFSDP and TP
    - https://github.com/pytorch/torchtitan/pull/2888: another change of torchtitan's that code has to follow
    """

    name = "torchtitan-mesh-dimension-of-size-one"
    title = Text(
        "Code asks the device mesh for a dimension of size one, which does not exist",
        "代码向 device mesh 索取大小为 1 的维度，而它不存在",
    )
    ends_at = (("parallel_dims.py", "raise ValueError("),)
    log_words = ("is not available. Ensure the corresponding", "Invalid mesh_dim_name")
    signs = (
        Sign(
            says=Pattern(r"Mesh '\w+' is not available\. Ensure the corresponding parallelism dimension"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(
            says=Pattern(r"Invalid mesh_dim_names? \(?'?(?:tp|pp|cp|ep|dp\w*)"),
            frames=(("torchtitan", "parallelize", "parallel_dims"),),
        ),
        Sign(says=Pattern(r"Invalid mesh_dim_names? \(?'?(?:tp|pp|cp|ep|dp\w*)"), certainty=Certainty.POSSIBLE),
    )
    cause = Text("The mesh has no dimension of that name: its degree is 1.", "mesh 中没有该名字的维度：其并行度为 1。")
    cures = (
        Text(
            "Use parallel_dims.get_optional_mesh(...), or ask parallel_dims.tp_enabled first",
            "使用 parallel_dims.get_optional_mesh(...)，或先判断 parallel_dims.tp_enabled",
        ),
        Text("Or update torchtitan, or set that degree above 1", "或更新 torchtitan，或把该并行度设为大于 1"),
    )
    confirm = Text("The degree that is named is 1 in the job's config", "任务配置中该并行度为 1")
