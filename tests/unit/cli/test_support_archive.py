"""`kubectl hajob bundle`: everything about a job, and no secret of anybody."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from hajob.cli.bundle import Bundle, write_archive
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.redaction import REMOVED, redact_object, redact_text
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job
from tests.rigs.told_server import EVENTS, PODS, READY, ToldServer, rank_pod_object

SPACES = ("hajob-system", "kube-system")
OPERATOR_PODS = "/api/v1/namespaces/hajob-system/pods"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
PLANTED = {
    "a variable": "wandb-7f3a9c",
    "an option": "planted-option-value",
    "an option apart": "planted-next-argument",
    "a header": "planted.bearer-value",
    "a web token": TOKEN,
    "a password in a URL": "planted-url-password",
    "a key": "MIIEplantedkey",
    "a line of a log": "planted-log-password",
    "a token of a hub": "hf_planted0123456789abcdef",
    "an annotation": "planted-annotation",
    "the operator's line": "planted-operator-secret",
}
"""Secrets where people leave them, each of which must be gone."""


def planted_job() -> dict[str, Any]:
    job = told_job()
    trainer = job["spec"]["template"]["spec"]["containers"][0]
    trainer["env"] = [
        {"name": "WANDB_API_KEY", "value": PLANTED["a variable"]},
        {"name": "DATA", "value": f"https://bob:{PLANTED['a password in a URL']}@store/x"},
        {"name": "HARMLESS", "value": "stays"},
        {"name": "FROM_SECRET_TOKEN", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}},
    ]
    trainer["command"] = ["bash", "run.sh", f"--hub-token={PLANTED['an option']}", "--api-key"]
    trainer["args"] = ["--password", PLANTED["an option apart"], PLANTED["a token of a hub"]]
    job["metadata"]["annotations"] = {
        "example.org/access-token": PLANTED["an annotation"],
        "kubectl.kubernetes.io/last-applied-configuration": str(PLANTED),
    }
    job["status"]["journal"] = '{"phase": "Running"}'
    job["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    return job


LOG = f"""step 41 | tokens: 4096 | loss 2.1
login with Authorization: Bearer {PLANTED["a header"]}
read {TOKEN}
-----BEGIN RSA PRIVATE KEY-----
{PLANTED["a key"]}
-----END RSA PRIVATE KEY-----
password: "{PLANTED["a line of a log"]}"
"""


class Logs:
    """Logs by path, as the server has them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.forbidden = False

    def __call__(self, path: str) -> str:
        self.asked.append(path)
        if self.forbidden:
            raise ForbiddenError(f"GET {path}: forbidden")
        if path.startswith(OPERATOR_PODS):
            mine = f"job {NAMESPACE}/{NAME}: secret={PLANTED['the operator' + chr(39) + 's line']}"
            return f"{mine}\njob other/job: not of this one\n"
        return LOG


def server() -> ToldServer:
    pod = rank_pod_object(
        0, **READY, containerStatuses=[{"name": "trainer", "restartCount": 1, "state": {"running": {}}}]
    )
    events = [
        {"involvedObject": {"kind": "HATrainingJob", "name": NAME}, "message": "Recovering", "eventTime": "2026-01-01"},
        {"involvedObject": {"kind": "Pod", "name": f"{NAME}-3-gone"}, "message": "Killing"},
        {"involvedObject": {"kind": "Pod", "name": "somebody-else"}, "message": "not of this job"},
    ]
    node = {"metadata": {"name": "node-0"}, "status": {"images": [{"names": ["other/image"]}], "conditions": []}}
    operator = {"metadata": {"name": "hajob-operator-a"}}
    found: dict[str, Any] = {PODS: {"items": [pod]}, EVENTS: {"items": events}, "/api/v1/nodes/node-0": node}
    return ToldServer(
        planted_job(), **found, **{OPERATOR_PODS: {"items": [operator]}, "/version": {"gitVersion": "v1"}}
    )


def collected(there: ToldServer, logs: Logs) -> tuple[dict[str, str], list[str]]:
    bundle = Bundle(there, logs, NOW_MS)
    return bundle.collect_all(NAMESPACE, NAME, SPACES), bundle.missing


def test_everything_about_a_job_is_there() -> None:
    contents, _ = collected(server(), Logs())
    assert sorted(contents) == [
        "doctor.txt",
        "events.yaml",
        "job.yaml",
        "journal.json",
        "nodes/node-0.yaml",
        "operator/hajob-operator-a.log",
        f"pods/{NAME}-0-aa.trainer.log",
        f"pods/{NAME}-0-aa.trainer.previous.log",
        f"pods/{NAME}-0-aa.yaml",
        "report.txt",
        "status.txt",
        "timeline.txt",
        "versions.yaml",
        "why.txt",
    ]
    assert "Killing" in contents["events.yaml"]
    assert "not of this" not in contents["events.yaml"] + contents["operator/hajob-operator-a.log"]
    assert "other/image" not in contents["nodes/node-0.yaml"]
    assert "step 41 | tokens: 4096 | loss 2.1" in contents[f"pods/{NAME}-0-aa.trainer.log"]
    assert "93%" in contents["status.txt"]


@pytest.mark.parametrize("where", PLANTED)
def test_no_planted_secret_is_left(where: str) -> None:
    contents, _ = collected(server(), Logs())
    assert [name for name, content in contents.items() if PLANTED[where] in content] == []


def test_what_is_no_secret_stays() -> None:
    contents, _ = collected(server(), Logs())
    job = contents["job.yaml"]
    assert "stays" in job
    assert "managedFields" not in job
    assert "secretKeyRef" in job
    assert "name: wandb" in job


@pytest.mark.parametrize(
    "told",
    [
        'CreateContainerConfigError: secret "wandb" not found',
        "step 4 | tokens: 4096 | token 42 of 8192",
        "--tokenizer-type Llama2Tokenizer --tokenizer-model /ckpt/tokenizer",
        "the token of the service account has expired",
        *(
            "KeyError: 'vocabulary'",
            "key 5 of 7",
            "the keys are: a, b",
            "author: me",
            "task: train",
            "forward pass: done",
        ),
        *("mask=1 disk: /dev/sda", "monkey: banana", "{'key': 'node-role'}", "- key: node.kubernetes.io/not-ready"),
        *("bypass=yes", "--tokenizer-type Llama --hidden-size 4096", "step:[ 5/ 10]"),
    ],
)
def test_words_about_secrets_are_no_secrets(told: str) -> None:
    assert redact_text(told) == told


def test_fields_that_name_a_secret_stay() -> None:
    volume = {"name": "keys", "secret": {"secretName": "my-keys"}, "automountServiceAccountToken": False}
    assert redact_object([volume]) == [volume]
    assert redact_object({"password": "x", "n": 1}) == {"password": REMOVED, "n": 1}


def test_what_may_not_be_read_is_listed_with_the_right() -> None:
    there, logs = server(), Logs()
    there.forbidden, logs.forbidden = {OPERATOR_PODS, EVENTS, "/api/v1/nodes/node-0"}, True
    contents, missing = collected(there, logs)
    wanted = {
        "list pods in hajob-system",
        f"list events in {NAMESPACE}",
        "get node node-0",
        f"get pods/log in {NAMESPACE}",
    }
    assert {f"unknown: needs the right to {right}" for right in wanted} <= set(missing)
    assert contents["missing.txt"].splitlines() == missing
    assert len(missing) == len(set(missing))


def test_there_is_no_bundle_of_a_job_that_is_not_there() -> None:
    with pytest.raises(ClusterError, match="there is no HATrainingJob other"):
        Bundle(ToldServer(), Logs(), NOW_MS).collect_all(NAMESPACE, "other", SPACES)


def test_the_archive_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    write_archive(path, {"a.txt": "one", "pods/b.log": "two"}, NOW_MS)
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["b/a.txt", "b/pods/b.log"]
    with pytest.raises(ClusterError, match="cannot be written: No such file or directory"):
        write_archive(tmp_path / "absent" / "b.tar.gz", {}, NOW_MS)


SECRET = "S3cr3tV4lue"


@pytest.mark.parametrize(
    "line",
    [
        f"export WANDB_KEY={SECRET}",
        f"OBS_AK='{SECRET}' OBS_SK=\"{SECRET}\"",
        f"ak={SECRET}, sk: {SECRET}",
        f"DB_PASS={SECRET} MYSQL_PWD={SECRET} AUTH={SECRET}",
        f"https://store/x?access_token={SECRET}&a=1",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={SECRET}-11",
        f"https://open.feishu.cn/open-apis/bot/v2/hook/{SECRET}",
        f"https://hooks.slack.com/services/T00/B00/{SECRET}",
        f'curl -H "Authorization: Basic {SECRET}" -H "Cookie: session={SECRET}"',
        f"curl -u me:{SECRET} http://x; curl --user=me:{SECRET} http://x",
        f"sshpass -p {SECRET} ssh a; docker login -p {SECRET} x; mysql -p{SECRET}",
        f'{{"auths": {{"x": {{"auth": "{SECRET}"}}}}}}',
        f"train --auth-key {SECRET} --key={SECRET}",
        f"url?signature={SECRET}",
    ],
)
def test_secrets_in_the_forms_of_clouds_and_robots_go(line: str) -> None:
    assert SECRET not in redact_text(line)


def test_a_password_of_digits_is_no_count() -> None:
    assert redact_text("password=123456") == f"password={REMOVED}"
    assert redact_text("token: 42 of 4096") == "token: 42 of 4096"


@pytest.mark.parametrize("name", ["WANDB_KEY", "OBS_SK", "AK", "DB_PASS", "MYSQL_PWD", "AUTH", "HUAWEICLOUD_SDK_SK"])
def test_a_variable_of_such_a_name_goes(name: str) -> None:
    assert redact_object({"name": name, "value": SECRET}) == {"name": name, "value": REMOVED}
    assert redact_object([f"--{name.lower()}", SECRET]) == [f"--{name.lower()}", REMOVED]


def test_a_word_without_end_is_looked_at_once() -> None:
    assert redact_text("a" * 1_000_000) == "a" * 1_000_000, "letter by letter it would take hours"
