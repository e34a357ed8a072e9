"""Programs get the variables that a launch needs, and never a secret."""

from __future__ import annotations

import base64
import json
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.confinement.placeholders import without_secrets
from gonogo.confinement.variables import check_named, program_environment
from gonogo.finding import UserError

HF = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0."
    "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)
PEM = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\nAgEAAoIBAQC7VJTUt9Us8cKj\n"
    "-----END PRIVATE KEY-----\n"
)
HEXADECIMAL = "0123456789abcdef0123456789abcdef01234567"

HANDED_ON = {
    "PATH": "/usr/bin", "HOME": "/home/a", "USER": "a", "LANG": "C", "LC_ALL": "C", "TZ": "UTC", "TMPDIR": "/tmp",
    "PYTHONPATH": "/x", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "LD_LIBRARY_PATH": "/l", "CUDA_VISIBLE_DEVICES": "0",
    "NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5", "HCCL_CONNECT_TIMEOUT": "1", "ASCEND_HOME_PATH": "/a",
    "TORCH_LOGS": "x",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "HF_HOME": "/hf", "TRANSFORMERS_CACHE": "/t", "DS_SKIP": "1",
    "ACCELERATE_USE_FSDP": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TRITON_CACHE_DIR": "/t",
    "XDG_CACHE_HOME": "/c", "MASTER_PORT": "29500", "MASTER_ADDR": "node-1", "WORLD_SIZE": "8", "LOCAL_RANK": "0",
    "SLURM_JOB_ID": "1", "OMPI_COMM_WORLD_RANK": "0", "PMI_RANK": "0", "WANDB_PROJECT": "p", "MODELSCOPE_CACHE": "/m",
    "VLLM_USE_V1": "1", "RAY_ADDRESS": "auto", "USE_HF": "1", "GONOGO_PROGRESS": "lines", "no_proxy": "localhost",
    "MAX_PIXELS": "1003520", "HF_TOKEN_PATH": "/home/a/token", "WANDB_MODE": "offline",
}  # fmt: skip
WITHHELD = {
    "SSH_AUTH_SOCK": "/tmp/agent", "SSH_CONNECTION": "10.0.0.1", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
    "MY_DATA": "/data", "COMPANY_VAULT": "x", "GITHUB_TOKEN": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1", "LS_COLORS": "x", "XDG_RUNTIME_DIR": "/run/user/1", "VAULT_ADDR": "http://v",
    "BASH_ENV": "/home/a/env.sh", "BASH_FUNC_module%%": "() { true; }", "DB_PASSWORD": "hunter2",
}  # fmt: skip


def test_what_a_launch_needs_is_handed_on_as_it_is() -> None:
    given_ = program_environment({**HANDED_ON, **WITHHELD})
    assert given_.environment == HANDED_ON
    assert given_.withheld == tuple(sorted(WITHHELD))
    assert given_.replaced == {}


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --data $MY_DATA\n",
        'parser.add_argument("--data", default=os.environ["MY_DATA"])',
        "data: ${oc.env:MY_DATA}",
        "MY_DATA",
    ],
)
def test_a_variable_that_the_launch_names_is_handed_on(text: str) -> None:
    given_ = program_environment(WITHHELD, texts=["set -eu\n", text])
    assert given_.environment == {"MY_DATA": "/data"}


@pytest.mark.parametrize("text", ["MY_DATASET", "$MY_DATA_DIR", "XMY_DATA", "my_data", "MY-DATA"])
def test_another_word_is_not_its_name(text: str) -> None:
    assert program_environment({"MY_DATA": "/data"}, texts=[text]).withheld == ("MY_DATA",)


def test_what_speaks_for_the_user_is_handed_on_only_where_the_option_names_it() -> None:
    names = ["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "BASH_ENV"]
    assert program_environment(WITHHELD, texts=names).environment == {}
    assert program_environment(WITHHELD, env_options=names).environment == {name: WITHHELD[name] for name in names}


def test_a_shell_function_counts_by_its_own_name() -> None:
    given_ = program_environment(WITHHELD, texts=["module load cuda/12.4"])
    assert list(given_.environment) == ["BASH_FUNC_module%%"]


def test_the_texts_are_read_only_where_a_variable_may_be_named_in_them() -> None:
    def texts() -> object:
        raise AssertionError("read for nothing")
        yield

    assert program_environment(HANDED_ON, texts=texts()).environment == HANDED_ON  # type: ignore[arg-type]


SECRETS = {
    "HF_TOKEN": HF,
    "OPENAI_API_KEY": "sk-proj-abcdEFGH1234567890abcdEFGH1234",
    "WANDB_API_KEY": HEXADECIMAL,
    "HF_ENDPOINT_AUTH": JWT,
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SIGNING_KEY": PEM,
    "MLFLOW_TRACKING_PASSWORD": "p@ss w0rd!",
    "MLFLOW_TRACKING_TOKEN": "letmein",
    "AZURE_STORAGE_SAS": "sv=2022-11-02&sig=abcDEF0123456789abcDEF0123456789%3D",
    "SWANLAB_WEBHOOK": "https://hooks.slack.com/services/T0000/B0000/abcdEFGH1234ijkl",
    "COMET_COOKIE": "session=abc",
    "MODELSCOPE_SDK_TOKEN": "01234567-89ab-cdef-0123-456789abcdef",
    "WANDB_PASSWORD": "12345678",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_handed_on_as_a_placeholder_that_looks_like_it(name: str) -> None:
    secret = SECRETS[name]
    given_ = program_environment({name: secret})
    placeholder = given_.environment[name]
    assert given_.replaced == {name: placeholder}
    assert placeholder != secret
    assert len(placeholder) == len(secret)
    assert program_environment({name: secret}).environment == given_.environment
    for run in re.findall(r"[A-Za-z0-9]{8,}", secret):
        assert run in ("services", "-----BEGIN") or run not in placeholder or run == JWT.partition(".")[0]


def test_known_formats_keep_what_tells_their_kind() -> None:
    made = program_environment(SECRETS).environment
    assert re.fullmatch(r"hf_[A-Za-z]{34}", made["HF_TOKEN"])
    assert re.fullmatch(r"sk-proj-[A-Za-z0-9]{30}", made["OPENAI_API_KEY"])
    assert re.fullmatch(r"[0-9a-f]{40}", made["WANDB_API_KEY"])
    assert re.fullmatch(r"AKIA[A-Z0-9]{16}", made["AWS_ACCESS_KEY_ID"])
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", made["MODELSCOPE_SDK_TOKEN"])
    assert made["AWS_SIGNING_KEY"].startswith("-----BEGIN PRIVATE KEY-----\n")
    assert made["AWS_SIGNING_KEY"].endswith("\n-----END PRIVATE KEY-----\n")
    assert made["SWANLAB_WEBHOOK"].startswith("https://hooks.slack.com/")
    header, payload, signature = made["HF_ENDPOINT_AUTH"].split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "HS256", "typ": "JWT"}
    assert set(json.loads(base64.urlsafe_b64decode(payload + "=="))) == {"sub"}
    assert len(signature) == 43


def test_credentials_in_json_stay_json() -> None:
    credentials = {
        "type": "service_account", "project_id": "my-secret-project", "private_key": PEM, "expires": 3,
        "token_uri": "https://oauth2.googleapis.com/token",
    }  # fmt: skip
    made = json.loads(without_secrets("GOOGLE_CREDENTIALS", json.dumps(credentials)))
    assert made["type"] == "service_account"
    assert made["token_uri"] == credentials["token_uri"]
    assert made["expires"] == 3
    assert len(made["project_id"]) == len("my-secret-project")
    assert "secret" not in made["project_id"]
    assert "MIIEvQ" not in made["private_key"]
    assert "PRIVATE KEY" in made["private_key"]


@pytest.mark.parametrize(
    ("name", "value", "made"),
    [
        ("https_proxy", "http://bob:hunter2@proxy.corp:3128", r"http://[a-z]{3}:[a-z0-9]{7}@proxy\.corp:3128"),
        ("PIP_INDEX_URL", "https://u:p%40ss@pypi.corp/simple", r"https://[a-z]:[a-z0-9]{6}@pypi\.corp/simple"),
        ("HF_ENDPOINT", "https://hf-mirror.com", r"https://hf-mirror\.com"),
        ("MLFLOW_TRACKING_URI", "http://localhost:5000", r"http://localhost:5000"),
        ("PYTHONPATH", f"/x:{HF}", r"/x:hf_[A-Za-z]{34}"),
        ("SM_HPS", f'{{"hub_token": "{HF}", "lr": 1}}', r'\{"hub_token": "hf_[A-Za-z]{34}", "lr": 1\}'),
    ],
)
def test_of_other_values_only_what_is_secret_is_replaced(name: str, value: str, made: str) -> None:
    placeholder = program_environment({name: value}).environment[name]
    assert re.fullmatch(made, placeholder)
    assert not {"hunter2", "p%40ss", HF} & set(re.split(r"[:@/]", placeholder))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_MAX_TOKENS", "4096"), ("TOKENIZERS_PARALLELISM", "false"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("DS_EOS_TOKEN", "</s>"), ("TRL_PAD_TOKEN", "<|endoftext|>"), ("USE_KEYBOARD", "us"), ("MASTER_PORT", "29500"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/a/key.json"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/run/token"),
        ("WANDB_KEY_TYPE", "short"), ("HF_TOKEN", ""), ("OLDPWD", "/home/a"), ("DS_KEYS", "a,b"), ("SM_PASSES", "2"),
        ("XLA_FLAGS", "--xla_dump_to=/tmp/dump"), ("RAY_TMPDIR", "/tmp/ray"), ("TORCH_LOGS", "+dynamo"),
        ("LD_LIBRARY_PATH", "/opt/hpcx/ompi/lib:/usr/local/cuda-12.4/lib64:/opt/conda/envs/py310_torch240_cu124/lib"),
    ],
)  # fmt: skip
def test_settings_are_no_secrets(name: str, value: str) -> None:
    assert program_environment({name: value}).environment == {name: value}


def test_the_option_hands_on_and_sets() -> None:
    environ = {"MY_DATA": "/data", "MY_TOKEN": HF, "PATH": "/bin"}
    given_ = program_environment(environ, env_options=["MY_DATA", "MY_TOKEN", "NEW=a=b", "PATH=/usr/bin", "EMPTY="])
    assert given_.environment["MY_DATA"] == "/data"
    assert re.fullmatch(r"hf_[A-Za-z]{34}", given_.environment["MY_TOKEN"])  # a name alone lets no secret out
    assert given_.environment["MY_TOKEN"] != HF
    assert given_.environment["NEW"] == "a=b"
    assert given_.environment["EMPTY"] == ""
    assert given_.environment["PATH"] == "/usr/bin"
    typed = program_environment(environ, env_options=["MY_TOKEN=hunter2"])
    assert typed.environment["MY_TOKEN"] == "hunter2"  # what was typed is what is wanted
    assert typed.typed == ("hunter2",)
    assert typed.withheld == ("MY_DATA",)


@pytest.mark.parametrize(
    ("named", "en", "zh"),
    [
        ("NOT_THERE", "--env NOT_THERE: NOT_THERE is not set here: export it first, or give its value", "没有设置"),
        ("1x=2", "--env '1x': not the name of an environment variable", "不是环境变量名"),
        ("", "--env '': not the name", "不是环境变量名"),
        ("A B=c", "--env 'A B': not the name", "不是环境变量名"),
    ],
)
def test_an_option_that_is_unusable(named: str, en: str, zh: str) -> None:
    with pytest.raises(UserError) as raised:
        check_named([named], {"PATH": "/bin"})
    assert raised.value.text.en.startswith(en)
    assert zh in raised.value.text.zh
    assert "\n" not in raised.value.text.en


ALPHABETS = st.sampled_from([string.ascii_letters, string.ascii_letters + string.digits, string.printable])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_placeholder_has_the_secret(data: st.DataObject) -> None:
    alphabet = data.draw(ALPHABETS)
    secret = data.draw(st.text(alphabet=alphabet, min_size=4, max_size=80))
    prefix = data.draw(st.sampled_from(["", "hf_", "sk-", "ghp_", "AKIA", "eyJ", "http://u:"]))
    value = prefix + secret
    placeholder = without_secrets("SOME_PASSWORD", value)
    if re.search(r"[A-Za-z0-9]", secret):
        assert placeholder != value
    if value.lstrip()[:1] not in ("{", "["):
        assert len(placeholder) == len(value)
