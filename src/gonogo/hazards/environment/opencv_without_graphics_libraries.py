from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class OpencvWithoutGraphicsLibraries(LoggedHazard):
    """OpenCV's desktop build is imported in an image without graphics libraries.
    ## What happens
    "ImportError: libGL.so.1: cannot open shared object file", raised by `import cv2`; then libgthread-2.0.so.0,
    libSM.so.6 or libXext.so.6. In training it comes with what reads images and videos: mmcv, albumentations, a VLM's
    data code, LeRobot.
    ## Why
    `opencv-python` is built to open windows and links OpenGL, GLib and X11. Images for training (CUDA's, PyTorch's
    runtime) have none of them.
    ## Example
    ```text
    opencv-python==4.11.0.86             # wrong in a bare image
    opencv-python-headless==4.11.0.86    # right
    ```
    ## Cure
    `pip uninstall -y opencv-python opencv-contrib-python && pip install opencv-python-headless` (all three put the same
    files in their place: uninstall first), or `apt-get install -y libgl1 libglib2.0-0`.
    ## When it is safe
    With the headless build, or where `python -c "import cv2"` works in the very image.
    ## Sources
    - https://github.com/Physical-Intelligence/openpi/pull/484: a policy's training in Docker; the two packages
    - https://github.com/open-mmlab/mmdetection/pull/3891: the same in mmdetection's image
    - https://github.com/TannerGilbert/Tensorflow-Object-Detection-API-Train-Model/issues/16: libgl1 mended it
    - https://github.com/sendeniz/yolov1-real-time-obj-detection/issues/2: a workspace of a cloud
    """

    name = "opencv-without-graphics-libraries"
    title = Text("OpenCV needs graphics libraries that the image lacks", "OpenCV 需要镜像中没有的图形库")
    log_words = ("libGL.so", "libgthread-2", "libSM.so", "libXext.so", "libXrender.so")
    anywhere = True
    signs = (
        Sign(
            Pattern(r"lib(?:GL|gthread-2\.0|SM|Xext|Xrender)\.so\.\d+: cannot open shared object file"),
            Certainty.CERTAIN,
            frames=(("cv2/", "import cv2"),),
        ),
        Sign(Pattern(r"lib(?:GL|gthread-2\.0|SM|Xext|Xrender)\.so\.\d+: cannot open shared object file")),
    )
    cause = Text(
        "The desktop build of OpenCV links graphics libraries, and this image has none.",
        "桌面版 OpenCV 链接了图形库，而该镜像中没有。",
    )
    cures = (
        Text(
            "pip uninstall -y opencv-python opencv-contrib-python && pip install opencv-python-headless",
            "改装 headless 版：pip uninstall -y opencv-python opencv-contrib-python && pip install "
            "opencv-python-headless",
        ),
        Text(
            "Or in the image: apt-get install -y libgl1 libglib2.0-0",
            "或在镜像中：apt-get install -y libgl1 libglib2.0-0",
        ),
    )
    confirm = Text('python -c "import cv2" fails in the same way', 'python -c "import cv2" 以同样方式失败')
