from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class GeneratorOnOtherDevice(LoggedHazard):
    """Random numbers are drawn on one device with a generator of another.
    ## What happens
    "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'" (or the other way round), at the
    first batch of a shuffled DataLoader, or where noise is drawn.
    ## Why
    A `torch.Generator` draws on its own device only. Given to `torch.randn(..., device="cuda", generator=...)`
    it has to be made for CUDA. And after `torch.set_default_device("cuda")` (or `set_default_tensor_type`) the
    sampler of a shuffled DataLoader draws its permutation on the accelerator, with a generator that it made on
    the CPU.
    ## Example
    ```python
    gen = torch.Generator().manual_seed(42)                     # wrong: of the CPU
    noise = torch.randn(shape, generator=gen, device="cuda")
    gen = torch.Generator(device="cuda").manual_seed(42)        # right
    ```
    ## Cure
    Make the generator for the device on which it draws: `torch.Generator(device=x.device)`. With a default
    device that is an accelerator: no `set_default_device` before the data is loaded (`.to(device)` where
    tensors are needed), or `DataLoader(..., generator=torch.Generator(device="cuda"))`. To have the same noise
    on every hardware: draw on the CPU and move it.
    ## When it is safe
    Where generator and tensor are of one device.
    ## Sources
    - https://github.com/huggingface/accelerate/pull/1627: a default tensor type of CUDA, and the sampler's generator
    - https://github.com/dbolya/yolact/issues/664: a shuffled DataLoader after set_default_tensor_type
    - https://github.com/NarcissusEx/CuNeRF/issues/8: torch.randperm in the sampler
    """

    name = "generator-on-other-device"
    title = Text("Random numbers are drawn with a generator of another device", "用另一设备的生成器产生随机数")
    log_words = ("device type for generator",)
    signs = (
        Sign(
            Pattern(r"Expected a '(?P<wanted>[\w:]+)' device type for generator but found '(?P<found>[\w:]+)'"),
            Certainty.CERTAIN,
            frames=(("sampler.py",),),
            cause=Text(
                "A DataLoader's sampler draws its order on {wanted}, which is the default device, with a generator "
                "that it made on {found}.",
                "DataLoader 的采样器在默认设备 {wanted} 上产生顺序，而它的生成器在 {found} 上。",
            ),
        ),
        Sign(
            Pattern(r"Expected a '(?P<wanted>[\w:]+)' device type for generator but found '(?P<found>[\w:]+)'"),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "Random numbers are drawn on {wanted} with a generator of {found}; a generator draws on its own device only.",
        "在 {wanted} 上用属于 {found} 的生成器产生随机数；生成器只能在自己的设备上使用。",
    )
    cures = (
        Text(
            "Make the generator for the device on which it draws: torch.Generator(device=…)",
            "在使用它的设备上创建生成器：torch.Generator(device=…)",
        ),
        Text(
            "Where torch.set_default_device or set_default_tensor_type made it so: without it, with "
            ".to(device) where tensors are needed; or DataLoader(…, generator=torch.Generator(device='cuda'))",
            "若由 torch.set_default_device 或 set_default_tensor_type 引起：去掉它，在需要处 .to(device)；或 "
            "DataLoader(…, generator=torch.Generator(device='cuda'))",
        ),
    )
